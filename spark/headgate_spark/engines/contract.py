"""The seam of Spark: what the data source and bulk jobs need of an engine.

Each part gets an open queue of the SDK, on the loop of this process. Plans and splits are pickled and read by other
processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa

from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate_spark.jobs.decide_batch import BatchPlan, Pick, RangePlan, Spot
from headgate_spark.read.decide_range import ReadRange


@dataclass(frozen=True)
class SparkEngine:
    """One engine."""

    scan: EngineScan
    reservations: Callable[[Queue, UUID], LaneReservations]
    """The lanes of a queue, for the driver of a job."""
    history: Callable[[Queue], LaneHistory]
    rows_by_id: Callable[[BatchPlan], dict[bytes, Spot]]
    """The places of the rows that ids begin with."""


# ---- reading


@dataclass(frozen=True)
class ScanRequest:
    """The part of a queue to read, and its form."""

    state: str
    wanted: ReadRange
    columns: tuple[str, ...]
    messages_per_split: int


class EngineScan(Protocol):
    """Reads a queue in bulk, and takes nothing."""

    async def plan(self, queue: Queue, request: ScanRequest) -> Sequence[Any]:
        """Splits, each a value that can be pickled."""
        ...

    def read(self, queue: Queue, request: ScanRequest, split: Any) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one split."""
        ...

    def read_picked(
        self, queue: Queue, request: ScanRequest, lane: str, picks: Sequence[Pick]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Exactly these messages of a lane, whatever their state now: a task's part of a reserved range."""
        ...


# ---- reserving


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


# ---- the history


@dataclass(frozen=True)
class HistorySplit:
    """A piece of history: one lane in one part."""

    lane: str
    where: int
    subs: tuple[int, ...]
    from_us: int
    until_us: int


class LaneHistory(Protocol):
    """The history of a queue, settled or not."""

    async def splits(self, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """Pieces of a range of due times, oldest first: found by the index of parts alone."""
        ...

    def read(self, split: HistorySplit, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one, but those that were cancelled."""
        ...
