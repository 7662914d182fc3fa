"""The seam of Spark: what the data source and bulk jobs need of an engine, and the values that cross it.

Each part gets an open queue of the SDK, on the loop of this process. Plans and splits are pickled and read by other
processes. The values have no I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from headgate.engines.contract import Settled

if TYPE_CHECKING:  # decisions import the values of this file
    import pyarrow as pa

    from headgate.client.queue import Queue

LIVE, HISTORY = "live", "history"
"""The states of a ScanRequest: unsettled messages, or all that are kept."""


@dataclass(frozen=True)
class SparkEngine:
    scan: EngineScan
    reservations: Callable[[Queue, UUID], LaneReservations]
    """The lanes of a queue, for the driver of a job."""
    ids: MessageIds


# ---- reading


@dataclass(frozen=True)
class ReadRange:
    """Where to read: both orders belong to the range; None is no bound."""

    first: int | None = None
    last: int | None = None
    generations: frozenset[int] | None = None
    shards: frozenset[int] | None = None

    def has_lane(self, generation: int, shard: int) -> bool:
        return (self.generations is None or generation in self.generations) and (
            self.shards is None or shard in self.shards
        )


@dataclass(frozen=True)
class ScanRequest:
    """The part of a queue to read, and its form."""

    state: str
    wanted: ReadRange
    columns: tuple[str, ...]
    messages_per_split: int


@dataclass(frozen=True)
class HistorySplit:
    """A piece of history: one lane in one part."""

    lane: str
    where: int
    subs: tuple[int, ...]
    from_us: int
    until_us: int


class EngineScan(Protocol):
    """Reads a queue in bulk, and takes nothing."""

    async def plan(self, queue: Queue, request: ScanRequest) -> Sequence[Any]:
        """Splits, each a value that can be pickled."""

    def read(self, queue: Queue, request: ScanRequest, split: Any) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one split."""

    def read_picked(
        self, queue: Queue, request: ScanRequest, lane: str, picks: Sequence[Pick]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Exactly these messages of a lane, whatever their state now: a task's part of a reserved range."""

    async def history(self, queue: Queue, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """Pieces of a range of due times, oldest first: found by the index of parts alone."""

    def read_history(
        self, queue: Queue, split: HistorySplit, columns: Sequence[str]
    ) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one, settled or not, but those that were cancelled."""


# ---- ids


class MessageIds(Protocol):
    """The form of ids. A dead letter keeps the id that it got in another queue, also from another engine: its row is
    then none of this queue, and its place is among the aliases of a range."""

    def split(self, text: str) -> tuple[bytes, int]:
        """The row with which an id begins, and the index in that row. ValueError where it is no id."""

    def join(self, row: bytes, index: int) -> bytes:
        """The stored form of an id."""

    def text_of(self, message_id: bytes) -> str:
        """The external form of a stored id."""

    def row_of(self, lane: str, key: bytes) -> bytes:
        """The row with which the ids of messages begin that were first put there."""

    def neighbours_of(self, text: str, interval_us: int) -> str:
        """A name that an id shares with the messages put first into its lane within the same interval. ValueError
        where an id names no lane and time."""


# ---- reserving


@dataclass(frozen=True, slots=True)
class Pick:
    """A row, and which of its messages belong to a batch. Only the engine knows the meaning of a row's key."""

    where: int
    key: bytes
    mask: int

    @property
    def messages(self) -> int:
        return self.mask.bit_count()


@dataclass(frozen=True)
class RangePlan:
    """The messages of one reserved range of a lane."""

    lane: str
    """As its engine names it."""
    reservation: bytes
    """As the lane's row shows it."""
    epoch: int
    deadline_us: int
    picks: tuple[Pick, ...]
    aliases: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)
    """For messages whose id does not determine their current place: by their id, the pick and the index in its
    row."""
    span_us: int = 0
    """From the first due time to the last."""

    @property
    def messages(self) -> int:
        return sum(pick.messages for pick in self.picks)

    @property
    def masks(self) -> dict[int, int]:
        """All of its messages, as `settle` takes them."""
        return {at: pick.mask for at, pick in enumerate(self.picks)}


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

    async def reserve(self, preview: Preview, deadline_us: int) -> RangePlan:
        """Reserve it, and return the part of it that may be processed. RangeTaken where another job has a range of
        the lane."""

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Settle these bits of these picks, within the deadline."""

    async def give_back(self, plan: RangePlan) -> None:
        """Its unsettled messages are the owner's again."""

    async def pass_over(self) -> None:
        """Where the lane has no owner: move its position over settled rows, so that they are not read again."""


class LaneReservations(Protocol):
    """The lanes of a queue, for the driver of a job."""

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[ReservableLane]:
        """The lanes with messages, each with its backlog due from one time to before another."""

    async def lane(self, name: str) -> ReservableLane:
        """One of them, to resume an earlier run's reservation of it."""

    async def settle_again(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Settle the result of the job's earlier run, though its reservation is over: the messages that are still
        live."""
