"""The interface of an engine for a bulk job: to reserve ranges of its lanes, to settle, to release; and to read
history. An engine joins by one line in the table below: a module that has

    def lending_of(queue: Queue, job: UUID) -> Lending          the driver's side
    def rows_by_id(plan: BatchPlan) -> dict[bytes, Spot]        the places of the rows that ids begin with
    def history_of(queue: Queue) -> History                     the history, settled or not

A task reads a reserved range as the streaming source does: `EngineScan.read_picked`.
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
from headgate.errors import OperationRefused
from headgate_spark.jobs.decide_batch import RangePlan

SUPPORTED: Final[Mapping[str, str]] = {"timeline": "headgate_spark.lanes.timeline"}


class EngineWithoutBulk(OperationRefused):
    """Bulk jobs do not carry this engine."""


@dataclass(frozen=True)
class Budget:
    """The size of one reservation of a lane."""

    messages_max: int
    bytes_max: int
    rows_max: int


@dataclass(frozen=True)
class Preview:
    """The next range of a lane, before it is reserved. Orders are the engine's."""

    first: Any
    last: Any
    messages: int


class ReservableLane(Protocol):
    """One lane, for the driver of a job."""

    name: str
    cursor: Any
    """The progress of this run; set back where a range could not be reserved."""

    async def preview(self, budget: Budget) -> Preview | None:
        """The next range to reserve; None where the snapshot ends."""
        ...

    async def reserve(self, preview: Preview, deadline_us: int) -> RangePlan:
        """Reserve it, and return the part of it that may be processed. RangeTaken where another job has a range of
        the lane."""
        ...

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Settle these bits of these picks, within the deadline."""
        ...

    async def give_back(self, plan: RangePlan) -> None:
        """Its unsettled messages are the owner's again."""
        ...

    async def pass_over(self) -> None:
        """Where the lane has no owner: move its position over settled rows, so that they are not read again."""
        ...


class LaneReservations(Protocol):
    """The lanes of a queue, for the driver of a job."""

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[ReservableLane]:
        """The lanes with messages, each with its backlog due from one time to before another."""
        ...

    async def lane(self, name: str) -> ReservableLane:
        """One of them, to resume an earlier run's reservation of it."""
        ...

    async def settle_again(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Settle the result of the job's earlier run, though its reservation is over: the messages that are still
        live."""
        ...


class LaneHistory(Protocol):
    """The history of a queue, settled or not."""

    async def splits(self, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """Pieces of a range of due times, oldest first: found by the index of parts alone."""
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
    if engine not in SUPPORTED:
        raise EngineWithoutBulk(queue=queue.name, engine=engine, supported=", ".join(SUPPORTED))
    return import_module(SUPPORTED[engine])
