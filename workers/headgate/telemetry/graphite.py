"""Metrics to Graphite by its plaintext protocol, if METRICS_GRAPHITE, GRAPHITE_PREFIX and GRAPHITE_URL are set.

One line per number: `prefix.name.labels value seconds`. Names are built from the same samples as for Prometheus. The
values of labels become parts of the path, a histogram its count, sum and the counts of its buckets. It never blocks a
caller: when Graphite is unavailable or too slow, this round's lines are dropped and counted, and the next round tries
again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headgate.errors import InvalidRequest
from headgate.telemetry.metrics import Registry, Sample

PORT = 2003
EVERY_S = 10.0
WITHIN_S = 3.0
PREFIX = "headgate"

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_URL = re.compile(r"(?:(?:tcp|graphite)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\s\[\]]+)(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True)
class GraphiteSettings:
    """The target of the lines, and their prefix."""

    host: str
    port: int = PORT
    prefix: str = PREFIX
    every_s: float = EVERY_S


def read_graphite(environment: Mapping[str, str]) -> GraphiteSettings | None:
    """From the environment of the process; None where it is not requested."""
    wanted = environment.get("METRICS_GRAPHITE", "").strip().lower()
    if wanted in ("", "false", "0", "no", "off"):
        return None
    if wanted not in ("true", "1", "yes", "on"):
        raise InvalidRequest("METRICS_GRAPHITE must be true or false", given=repr(wanted))
    url = environment.get("GRAPHITE_URL", "").strip()
    match = _URL.fullmatch(url)
    if match is None or not 0 < int(match["port"] or PORT) < 65536:
        remedy = f"write host[:port] or tcp://host[:port]; default port: {PORT}"
        raise InvalidRequest("GRAPHITE_URL is not the address of a Graphite server", given=repr(url), remedy=remedy)
    prefix = environment.get("GRAPHITE_PREFIX", "").strip().strip(".") or PREFIX
    if not all(part and not _UNFIT.search(part) for part in prefix.split(".")):
        raise InvalidRequest("GRAPHITE_PREFIX must be names separated by dots", given=repr(prefix))
    return GraphiteSettings(match["host"].strip("[]"), int(match["port"] or PORT), prefix)


def lines_of(registry: Registry, prefix: str, at_s: int) -> list[str]:
    """All numbers, as Graphite takes them."""
    return [
        f"{prefix}.{path} {value:.15g} {at_s}\n" for sample in registry.samples() for path, value in _paths(sample)
    ]


def _paths(sample: Sample) -> Iterator[tuple[str, float]]:
    path = ".".join([sample.name, *(_UNFIT.sub("_", value) or "_" for _, value in sample.labels)])
    if not sample.buckets:
        yield path, sample.value
        return
    yield f"{path}.sum", sample.value
    yield f"{path}.count", sample.buckets[-1][1]
    for bound, count in sample.buckets:
        name = "inf" if bound == float("inf") else f"{bound:g}".replace(".", "_")
        yield f"{path}.le_{name}", count


class Graphite:
    """Ships the metrics of a process, round after round, over one connection that is reopened when it breaks."""

    def __init__(
        self, settings: GraphiteSettings, registry: Registry, *, now_s: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.registry = registry
        self._now_s = now_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.sent = registry.counter("headgate_graphite_lines_sent", "Lines written to the Graphite connection.").of()
        self.dropped = registry.counter(
            "headgate_graphite_lines_dropped", "Lines dropped because Graphite was unavailable or too slow."
        ).of()

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self.settings.every_s)
                await self.ship()
        finally:
            self._drop_connection()

    async def ship(self) -> None:
        """One round. It takes WITHIN_S at most."""
        lines = lines_of(self.registry, self.settings.prefix, int(self._now_s()))
        try:
            async with asyncio.timeout(WITHIN_S):
                writer = await self._connection()
                writer.write("".join(lines).encode())
                await writer.drain()
        except (OSError, TimeoutError):
            self._drop_connection()
            self.dropped.add(len(lines))
            return
        self.sent.add(len(lines))

    async def _connection(self) -> asyncio.StreamWriter:
        """Graphite sends nothing; an end of its stream means that it is gone."""
        if self._writer is None or self._writer.is_closing() or self._reader is None or self._reader.at_eof():
            self._drop_connection()
            self._reader, self._writer = await asyncio.open_connection(self.settings.host, self.settings.port)
        return self._writer

    def _drop_connection(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()
