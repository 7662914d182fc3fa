"""The figures of all queues from the summary: 16 small reads, whatever the number of queues.
docs/internals/protocols/summary.md.

The table identifies queues by their ids. Names come from the catalogue, which is read again when they are old, or
when the table has an unknown id. A deleted queue is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from headgate.client.catalogue.process_context import ProcessContext
from headgate.engines.contract import Stats
from headgate.engines.summary.reading import QueueFigures, read_summary

NAMES_KEPT_US = 15_000_000
UNKNOWN_KEPT_US = 2_000_000
"""An id without a name is looked up again only after this time: it may be that of a deleted queue."""


@dataclass(frozen=True)
class QueueOverview:
    """The figures of one queue, a second or two old."""

    name: str
    figures: QueueFigures
    at_us: int
    """The time of this read."""

    @property
    def is_worked(self) -> bool:
        return self.figures.workers > 0

    @property
    def oldest_age_us(self) -> int | None:
        oldest_us = self.figures.oldest_us
        return None if oldest_us is None else max(0, self.at_us - oldest_us)


class Overview:
    def __init__(
        self,
        process_context: ProcessContext,
        names: Callable[[], Awaitable[dict[UUID, str]]],
        read_stats: Callable[[str], Awaitable[Stats]],
    ) -> None:
        self._store = process_context.store_in(process_context.keyspace)
        self._has_summary = process_context.has_summary
        self._read_stats = read_stats
        self._read_names = names
        self._names: dict[UUID, str] = {}
        self._named_us: int | None = None

    async def read(self, namespace: str | None, *, now_us: int) -> list[QueueOverview]:
        """One read, including queues without figures in the summary. By name."""
        if not self._has_summary:
            names = sorted((await self._read_names()).values())
            return [
                QueueOverview(name, _figures_of(await self._read_stats(name)), now_us)
                for name in names
                if namespace is None or name.startswith(f"{namespace}/")
            ]
        summaries = await read_summary(self._store, now_us=now_us)
        if self._names_are_old(now_us, summaries.keys() <= self._names.keys()):
            self._names = await self._read_names()
            self._named_us = now_us
        shown = [
            QueueOverview(name, summaries.get(queue, QueueFigures()), now_us)
            for queue, name in self._names.items()
            if namespace is None or name.startswith(f"{namespace}/")
        ]
        return sorted(shown, key=lambda each: each.name)

    def _names_are_old(self, now_us: int, all_known: bool) -> bool:
        if self._named_us is None:
            return True
        return now_us - self._named_us >= (NAMES_KEPT_US if all_known else UNKNOWN_KEPT_US)


def _figures_of(stats: Stats) -> QueueFigures:
    return QueueFigures(
        backlog=stats.backlog,
        in_flight=stats.in_flight,
        oldest_us=stats.oldest_due_us,
        workers=len({lane.owner for lane in stats.lanes if lane.owner is not None}),
        lanes=len(stats.lanes),
    )
