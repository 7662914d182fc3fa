"""Sessions with Cassandra: one for each connection by the content of its Secret.

No namespace takes the room of others: each has at most `PER_NAMESPACE_MAX` beside the chart's connection, which has
its own place. A session is opened in the background. A caller waits for it at most until `PATIENCE_S` after the
attempt began, then continues with other work and is woken when the attempt ends. So a Cassandra that swallows packets
delays its own resources alone.

Of a Secret it reads the keys of a connection and the contents of its certificates, and nothing else. A tenant with
the right to write a Secret is not trusted with a path in this pod. Certificates reach the driver as files that this
process has written into a folder of its own.

It knows contents by their digest, so that the copies of one Secret share a session. A failed session is not opened
again for a few seconds: a thousand queues are one attempt. A session that is unused for long makes room for another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol

from headgate.api.read.parse import ResourceInvalid
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import StorageElsewhere, TooManyTables
from headgate.client.catalogue.process_context import ProcessContext
from headgate.errors import Conflict, EnvironmentProblem, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.process.background_tasks import SharedWork
from headgate.store.cassandra.settings import ConnectionSettings, read_secret_settings
from headgate.store.catalogue.entry import OwnedByAnother, WrongDataCenter
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.schema import KeyspaceUnfit, RightsMissing, SchemaPort, SchemaRightsMissing
from headgate.store.store import Store
from headgate_operator.manifests.pod import CONNECTION_KEYS
from headgate_operator.model.world import ResourceFailure

SESSIONS_MAX: Final = 32
"""Of all namespaces, beside the chart's."""
PER_NAMESPACE_MAX: Final = 4
PATIENCE_S: Final = 1.0
AGAIN_S: Final = 5.0
IDLE_S: Final = 60.0
OPEN_WITHIN_S: Final = 25.0
FILES: Final = {"SSL_CA": "ca.crt", "SSL_CERT": "tls.crt", "SSL_KEY": "tls.key"}


class TooManyConnections(OperationRefused):
    """The operator keeps no more connections to different Cassandras than this."""


class ConnectionOpening(Unavailable):
    """The session is being opened in the background."""

    def __init__(self, previous: HeadgateError | None) -> None:
        super().__init__()
        self.previous = previous
        """Why the attempt before it failed, if there was one."""


class ConnectionNotOpen(Unavailable):
    """The operator has no session with this Cassandra, as no resource uses it, and a plan opens none."""


class SchemaOfCluster(SchemaPort, Protocol):
    """Reads and changes the schema, and detects foreign changes cheaply."""

    async def version(self) -> str: ...


@dataclass(frozen=True)
class OpenSession:
    digest: str
    process_context: ProcessContext
    schema: SchemaOfCluster
    nodes: int
    """Of the home data centre."""

    @property
    def store(self) -> Store:
        """Of the catalogue's keyspace."""
        return self.process_context.store_in(self.process_context.keyspace)


Open = Callable[[ConnectionSettings], Awaitable[tuple[ProcessContext, SchemaOfCluster]]]


@dataclass
class _Held:
    """A session, or why there is none, and when that was found."""

    reached: OpenSession | None
    error: HeadgateError | None
    at_s: float
    used_s: float
    owner: str


@dataclass(frozen=True)
class _Attempt:
    owner: str
    began_s: float


class Sessions:
    def __init__(
        self,
        open_: Open,
        *,
        now_s: Callable[[], float],
        folder: Path | None = None,
        most: int = SESSIONS_MAX,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`ended`: called with the digest after each attempt to open one, whatever came of it."""
        self._open = open_
        self._now_s = now_s
        self._folder = folder
        self._most = most
        self._held: dict[str, _Held] = {}
        self._opening = SharedWork[str, _Held]("opening of a session")
        self._attempts: dict[str, _Attempt] = {}
        self._ended = ended
        self._may_open = True

    def reader(self) -> Sessions:
        """The same sessions, where none is opened and none counts as used."""
        made = copy(self)
        made._may_open = False
        return made

    async def reach(
        self, digest: str, values: Mapping[str, str], *, owner: str = "", patience_s: float = PATIENCE_S
    ) -> OpenSession:
        """The session that these contents of a Secret lead to. Raises why there is none.

        `owner` is the namespace on whose account it is; empty for the chart's own.
        """
        held = self._held.get(digest)
        if not self._may_open:
            if held is None:
                raise ConnectionNotOpen(remedy="apply a resource that uses it, and retry")
        else:
            if held is None or (held.error is not None and self._now_s() - held.at_s >= AGAIN_S):
                held = await self._await_opening(digest, values, owner, patience_s)
            held.used_s = self._now_s()
        if held.reached is None:
            assert held.error is not None  # noqa: S101 - one of the two is there
            raise held.error
        return held.reached

    def of(self, digest: str) -> OpenSession | None:
        """The session of a connection that was reached before."""
        held = self._held.get(digest)
        if held is None or held.reached is None:
            return None
        if self._may_open:
            held.used_s = self._now_s()
        return held.reached

    def all(self) -> list[OpenSession]:
        """Every session that is open, without using it."""
        return [held.reached for held in self._held.values() if held.reached is not None]

    @property
    def known_total(self) -> int:
        """Connections of which anything is kept."""
        return len(self._held)

    async def close(self) -> None:
        held, self._held = list(self._held.values()), {}
        await self._opening.stop()
        await asyncio.gather(
            *(each.reached.process_context.close() for each in held if each.reached), return_exceptions=True
        )

    async def _await_opening(self, digest: str, values: Mapping[str, str], owner: str, patience_s: float) -> _Held:
        """The result of the attempt under way, or of a new one. ConnectionOpening where it takes longer."""
        attempt = self._attempts.setdefault(digest, _Attempt(owner, self._now_s()))
        opening = self._opening.run(digest, lambda: self._begin(digest, dict(values), owner))
        try:
            async with asyncio.timeout(max(0.0, attempt.began_s + patience_s - self._now_s())):
                return await opening
        except TimeoutError:
            held = self._held.get(digest)
            raise ConnectionOpening(None if held is None else held.error) from None

    async def _begin(self, digest: str, values: dict[str, str], owner: str) -> _Held:
        reached: OpenSession | None = None
        error: HeadgateError | None = None
        try:
            await self._close_idle(digest, owner)
            reached = await self._connect(digest, values)
        except HeadgateError as failed:
            error = failed
        except TimeoutError:
            error = Unavailable("Cassandra does not answer", within_s=OPEN_WITHIN_S)
        finally:
            self._attempts.pop(digest, None)
        now_s = self._now_s()
        held = self._held[digest] = _Held(reached, error, now_s, now_s, owner)
        self._ended(digest)
        return held

    async def _connect(self, digest: str, values: dict[str, str]) -> OpenSession:
        settings = read_secret_settings(self._environment(digest, values))
        async with asyncio.timeout(OPEN_WITHIN_S):
            process_context, schema = await self._open(settings)
            try:
                nodes = await schema.nodes_in(process_context.data_center)
            except BaseException:
                await process_context.close()
                raise
        return OpenSession(digest, process_context, schema, nodes)

    async def _close_idle(self, digest: str, owner: str) -> None:
        """For a session of this owner, and none for the chart's own, which needs none."""
        for other in [other for other, held in self._held.items() if held.error and self._is_idle(held)]:
            del self._held[other]
        if owner:
            await self._close_oldest(digest, lambda each: each == owner, PER_NAMESPACE_MAX, namespace=owner)
            await self._close_oldest(digest, bool, self._most)

    async def _close_oldest(self, digest: str, counts: Callable[[str], bool], most: int, **facts: str) -> None:
        """Of the sessions of these owners the one that is idle for longest, if there are as many as there may be."""
        earlier = takewhile(lambda item: item[0] != digest, self._attempts.items())
        opening = sum(counts(attempt.owner) for _, attempt in earlier)
        open_now = [(other, held) for other, held in self._held.items() if held.reached and counts(held.owner)]
        if len(open_now) + opening < most:
            return
        other, oldest = min(open_now, key=lambda item: item[1].used_s, default=("", None))
        if oldest is None or oldest.reached is None or not self._is_idle(oldest):
            raise TooManyConnections(most=most, remedy="let resources share connection Secrets", **facts)
        del self._held[other]
        await oldest.reached.process_context.close()

    def _is_idle(self, held: _Held) -> bool:
        return self._now_s() - held.used_s >= IDLE_S

    def _environment(self, digest: str, values: dict[str, str]) -> dict[str, str]:
        """The keys of a connection; certificates become files, which nobody else may read."""
        environment: dict[str, str] = {name: values[name] for name in CONNECTION_KEYS if name in values}
        for name, key in FILES.items():
            if values.get(key) and self._folder is not None:
                environment[name] = str(_written(self._folder / digest, key, values[key]))
        return environment


def _written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


_REASONS: tuple[tuple[type[HeadgateError] | tuple[type[HeadgateError], ...], Reason], ...] = (
    ((SchemaRightsMissing, RightsMissing), Reason.RIGHTS_MISSING),
    (ClockNotTrusted, Reason.CLOCK_OUT_OF_BOUNDS),
    ((WrongDataCenter, StorageElsewhere, KeyspaceUnfit), Reason.WRONG_DATA_CENTER),
    (TooManyTables, Reason.TOO_MANY_TABLES),
    (OwnedByAnother, Reason.NAME_TAKEN),
    (ResourceInvalid, Reason.SPEC_INVALID),
    (EnvironmentProblem, Reason.CONNECTION_MISSING),
    (Conflict, Reason.PROGRESSING),
    (Unavailable, Reason.CASSANDRA_UNAVAILABLE),
    ((InvalidRequest, OperationRefused), Reason.CONNECTION_MISSING),
)


def failure_of(error: HeadgateError) -> ResourceFailure:
    """The reason of a condition, and a message for its author: the first that fits, else Cassandra is unavailable."""
    fitting = (reason for kinds, reason in _REASONS if isinstance(error, kinds))
    return ResourceFailure(next(fitting, Reason.CASSANDRA_UNAVAILABLE), " ".join(str(error).split()))
