"""The interface of an engine for a dispatcher: rows of one lane in order, a place for its record, and places for
copies.

The dispatcher knows nothing else of an engine. Orders are opaque and sort as the lane does; `order_of` and `stored`
read and create their form in the lane's row (`last`, `read_to`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from headgate.engines.contract import Delivery
from headgate.engines.lanes.delivery.rows import HandOut, LaneRow, Move
from headgate.engines.lanes.log.settle_log import Piece
from headgate.engines.lanes.log.settle_log_format import Facts
from headgate.store.model.types import Value


@dataclass(frozen=True, slots=True)
class RowSlice:
    """The result of one read: rows in order, and how far the lane has been read by it, with or without rows."""

    rows: Sequence[LaneRow]
    reached: Any
    more: bool
    """Whether there may be more to read at once: it ended for its size, not at the reader's now."""


@dataclass(frozen=True, slots=True)
class RangeReservation:
    """A range that a bulk job has reserved: both orders belong to it."""

    job: UUID
    first: Any
    last: Any
    deadline_us: int


class LaneSource(Protocol):
    """One lane of an engine, for the length of a lease term."""

    def order_of(self, stored: Value) -> Any:
        """The order in a cell of the lane's row (`last`, `read_to`); of null, the lane's beginning."""
        ...

    def stored(self, order: Any) -> Value:
        """The form of an order in the lane's row."""
        ...

    def order_at(self, time_us: int) -> Any:
        """An order above everything that is due up to a given time, and below everything that is due later."""
        ...

    def quiet_up_to(self, after: Any) -> Any | None:
        """The order up to which nothing lies behind that one, where the engine gives a hint once something may
        (`EngineLanes.find_arrivals`); None where it does not."""
        ...

    async def known(self, after: Any, up_to: Any) -> Facts:
        """The union of all owners' and jobs' records of rows between two orders, at least. Read only after the
        earlier owner's end."""
        ...

    async def recall(self, after: Any) -> Facts:
        """The records of earlier owners and jobs that are needed to read on from an order, each once in a lease term.
        After it `read` goes no further than these records do."""
        ...

    async def read(self, after: Any, *, bytes_max: int) -> RowSlice:
        """The rows above an order, up to this process's own now and never ahead of it. Rows that need no handing out
        (cancelled, purged, replaced, expired) come with their bits settled."""
        ...

    async def write_record(self, pieces: Sequence[Piece[Any]]) -> None:
        """Make pieces of the settle log durable; raises when that is not known."""
        ...

    async def write_passed(self, rows: Sequence[LaneRow]) -> None:
        """Make durable which rows the position is about to pass; nothing passes without."""
        ...

    def fix_place(self, move: Move) -> bytes:
        """Choose where a copy goes. The dispatcher makes the choice durable before the copy is written."""
        ...

    async def write_copy(self, move: Move) -> None:
        """Write a copy at its fixed place: a retry in this queue, or a dead letter in its own. Writing it twice
        creates one."""
        ...

    def deliveries(self, given: Iterable[HandOut], epoch: int) -> list[Delivery]:
        """The deliveries for consumers, with receipts."""
        ...

    def put_before(self, row: LaneRow, time_us: int) -> int:
        """The bits of the messages of a row that were first put before a given time."""
        ...

    def purge(self, before_us: int) -> None:
        """From now on, messages first put before this time are returned as settled."""
        ...

    def met(self, keys: Iterable[bytes]) -> None:
        """An owner has these rows in flight: of rows that represent the same messages, no other is delivered."""
        ...

    def settled_elsewhere(self, rows: Iterable[LaneRow], facts: Facts) -> Mapping[bytes, int]:
        """By their keys, the bits of rows that these facts settle in another row with the same messages."""
        ...

    def decode_reservation(self, reserved: bytes) -> RangeReservation:
        """The report about a reserved range."""
        ...

    def encode_reservation(self, reservation: RangeReservation) -> bytes:
        """The form of a reservation in the lane's row."""
        ...
