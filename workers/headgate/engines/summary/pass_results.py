"""The results of the last passes of repair and of the collector: one row per resource, written at the end of its pass
and read by slices, so that no process has to query each queue. docs/internals/protocols/operator.md, "Results of
passes".

No safety depends on it: the next pass writes a row that could not be written. A pass that failed reports that, and
leaves an earlier pass's report of the rest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any
from uuid import UUID

from headgate.engines.summary.rows import slice_of
from headgate.store.catalogue.tables import STANDING
from headgate.store.model.statements import Batch, Insert, Select
from headgate.store.model.types import Value
from headgate.store.store import Store

KEPT_S = 40 * 86_400
MESSAGE_CHARACTERS_MAX = 500
RESULTS_AT_ONCE = 32
WAIT_US = 5_000_000


@dataclass(frozen=True)
class Failure:
    """A pass that could not be made."""

    ended_us: int
    message: str
    problems: int = 1


@dataclass(frozen=True)
class RepairResult:
    """A pass of repair. Times are 0 where there is none."""

    ended_us: int
    message: str
    problems: int = 0
    owed_us: int = 0
    """Since when a scan has been due that could have run."""
    waits_for_all_us: int = 0
    """Since when a scan has been due that waits until all replicas answer."""


@dataclass(frozen=True)
class CollectionResult:
    """A pass of the collector."""

    ended_us: int
    message: str
    problems: int = 0
    refused: str = ""
    """Why nothing is collected: `gc.after` is not above a hint window."""
    full_us: int = 0
    """The start of the last pass that visited every key."""
    keys: int = 0
    shards: int = 0
    expired: int = 0
    """Ended shards that are left."""


@dataclass(frozen=True)
class BulkResult:
    """A bulk job of Spark, while it runs and at its end. Its row is that of the job's id."""

    ended_us: int
    """The time of this report."""
    message: str
    problems: int = 0
    """Messages that it left in the queue."""
    keys: int = 0
    """Messages that it settled, or wrote where it settles none."""


BULK_RUNS = "runs"
BULK_DONE = "done"
"""A bulk job's message while all is well; any other is the reason why it failed or waits."""


Result = Failure | RepairResult | CollectionResult | BulkResult


@dataclass(frozen=True)
class PassStatus:
    """All that is known of one resource's passes."""

    ended_us: int
    problems: int
    message: str
    refused: str
    owed_us: int | None
    waits_for_all_us: int | None
    full_us: int | None
    keys: int | None
    shards: int | None
    expired: int | None


_COLUMN_OF = {fields(Failure)[1].name: "says"}
"""Where the column of a field has another name."""
COLUMNS = ("id", *(_COLUMN_OF.get(field.name, field.name) for field in fields(PassStatus)))


async def write_pass_result(store: Store, id_: UUID, result: Result) -> None:
    """Note it. The store is that of the catalogue's keyspace."""
    await store.write(_statement(id_, result))


def _statement(id_: UUID, result: Result) -> Insert:
    cells = {_COLUMN_OF.get(name, name): value for name, value in asdict(result).items()}
    cells["says"] = result.message[:MESSAGE_CHARACTERS_MAX]
    values: dict[str, Value] = {"slice": slice_of(id_), "id": id_, **cells}
    return Insert(STANDING, values, timestamp_us=result.ended_us, ttl_s=KEPT_S)


class PassResults:
    """The results of many passes of one process: those of one slice are one write. A process that is killed leaves
    those of its last seconds to the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[int, list[Insert]] = {}
        self._since_us = 0

    async def add(self, id_: UUID, result: Result) -> None:
        """Note one, now or with the next ones."""
        waiting = self._waiting.setdefault(slice_of(id_), [])
        waiting.append(_statement(id_, result))
        self._since_us = self._since_us or result.ended_us
        if result.ended_us - self._since_us >= WAIT_US:
            await self.write()
        elif len(waiting) >= RESULTS_AT_ONCE:
            await self._write_slice(slice_of(id_))

    async def write(self) -> None:
        """Write all that waits."""
        self._since_us = 0
        for slice_ in tuple(self._waiting):
            await self._write_slice(slice_)

    async def _write_slice(self, slice_: int) -> None:
        if waiting := self._waiting.pop(slice_, None):
            await self._store.write(Batch(waiting) if len(waiting) > 1 else waiting[0])


async def read_result(store: Store, slice_: int) -> dict[UUID, PassStatus]:
    """All of one slice, by id."""
    rows = await store.read(Select(STANDING, {"slice": slice_}, COLUMNS))
    return {row.id: _standing(row) for row in rows if row.ended_us is not None}


async def read_pass_status(store: Store, id_: UUID) -> PassStatus | None:
    """Of one resource; None where no pass ended within forty days."""
    rows = await store.read(Select(STANDING, {"slice": slice_of(id_), "id": id_}, COLUMNS))
    return _standing(rows[0]) if rows and rows[0].ended_us is not None else None


def _standing(row: Any) -> PassStatus:
    return PassStatus(
        ended_us=row.ended_us,
        problems=row.problems or 0,
        message=row.says or "",
        refused=row.refused or "",
        owed_us=row.owed_us or None,
        waits_for_all_us=row.waits_for_all_us or None,
        full_us=row.full_us or None,
        keys=row.keys,
        shards=row.shards,
        expired=row.expired,
    )
