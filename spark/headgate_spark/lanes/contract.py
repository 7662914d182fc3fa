"""What a bulk job asks of an engine: to borrow ranges of its lanes, to settle, to give back; and to read history.
An engine joins by one line in CARRIED: a module that has

    def lending_of(queue: Queue, job: UUID) -> Lending          the driver's side
    def rows_by_id(plan: BatchPlan) -> dict[bytes, Spot]        where the rows lie that ids begin with
    def history_of(queue: Queue) -> History                     what is kept, settled or not

What was borrowed a task reads as the streaming source does: `EngineScan.read_picked`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol

import pyarrow as pa

from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.errors import Refused
from headgate_spark.jobs.decide_batch import RangePlan

CARRIED: Final[Mapping[str, str]] = {"timeline": "headgate_spark.lanes.timeline"}


class EngineWithoutBulk(Refused):
    """Bulk jobs do not carry this engine."""


@dataclass(frozen=True)
class Budget:
    """How much of a lane is borrowed at once."""

    messages_max: int
    bytes_max: int
    rows_max: int


@dataclass(frozen=True)
class Preview:
    """The next range of a lane, before it is borrowed. Orders are the engine's."""

    first: Any
    last: Any
    messages: int


class LentLane(Protocol):
    """One lane, for the driver of a job."""

    name: str
    cursor: Any
    """How far this run has come; set back where a range could not be borrowed."""

    async def preview(self, budget: Budget) -> Preview | None:
        """What could be borrowed next; None where the snapshot ends."""
        ...

    async def borrow(self, preview: Preview, deadline_us: int) -> RangePlan:
        """Borrow it, and tell what of it may be worked. RangeTaken where another job has a range of the lane."""
        ...

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Settle these bits of these picks, within the deadline."""
        ...

    async def give_back(self, plan: RangePlan) -> None:
        """What is not settled of it is the owner's again."""
        ...

    async def pass_over(self) -> None:
        """Where nobody works the lane: move its position over what is settled, so that nobody reads it again."""
        ...


class Lending(Protocol):
    """The lanes of a queue, for the driver of a job."""

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[LentLane]:
        """Those that hold anything, each with its backlog due from one moment to before another."""
        ...

    async def lane(self, name: str) -> LentLane:
        """One of them, to go on with what was borrowed of it by an earlier run."""
        ...

    async def settle_anew(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Settle what an earlier run of the job did, though its loan is over: what is still live of it."""
        ...


class History(Protocol):
    """What a queue keeps, settled or not."""

    async def splits(self, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """Pieces of a range of due moments, oldest first: found by the index of parts alone."""
        ...

    def read(self, split: HistorySplit, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one, but those that were cancelled."""
        ...


@dataclass(frozen=True)
class HistorySplit:
    """A piece of history: one lane in one part."""

    lane: str
    where: int
    subs: tuple[int, ...]
    from_us: int
    until_us: int


def module_of(queue: Queue) -> ModuleType:
    """The engine's."""
    engine = str(queue.entry.spec.get("engine"))
    if engine not in CARRIED:
        raise EngineWithoutBulk(queue=queue.name, engine=engine, carried=", ".join(CARRIED))
    return import_module(CARRIED[engine])
