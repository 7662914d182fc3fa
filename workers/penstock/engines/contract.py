"""The contract of an engine: what every kind of queue offers, and the values that cross it (DESIGN section 5).

At least once, always; never silently lost. One conformance suite runs on every engine (tests/conformance/engines).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from penstock.errors import Refused

Attributes = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Message:
    """What a producer puts. `due_us` is the moment it asks for, in us since 1970; None is "now"."""

    payload: bytes
    due_us: int | None = None
    attributes: Attributes = field(default_factory=dict)
    group: str | None = None
    once: str | None = None
    once_scope: str | None = None


@dataclass(slots=True)
class Delivery:
    """A message in the hands of a consumer. Only this delivery's receipt settles it.

    `epoch` is the fencing token: who acts on the outside world for this message checks that it has seen no higher.
    """

    message_id: str
    payload: bytes
    attributes: Attributes
    group: str | None
    attempt: int
    due_us: int
    put_us: int
    epoch: int
    visible_until_us: int
    receipt: str
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """It is done."""

    receipt: str


@dataclass(frozen=True, slots=True)
class Nack:
    """It failed: again after this delay, or to the dead letter queue when it was received too often.

    Not `charged`: it was not tried, and this delivery does not count. Its next one may have the same receipt, so who
    gives back without charge uses the receipt no more.
    """

    receipt: str
    delay_us: int = 0
    reason: str = ""
    charged: bool = True


@dataclass(frozen=True, slots=True)
class Reject:
    """It will never succeed: to the dead letter queue at once. Where there is none: again after this delay."""

    receipt: str
    reason: str = ""
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class Extend:
    """It takes longer: keep it hidden this long from now."""

    receipt: str
    visibility_us: int


Settle = Ack | Nack | Reject | Extend


class Settled(Enum):
    """How a settle ended."""

    DONE = "done"
    STALE = "stale"
    """Another delivery was recorded since, or the lane has another owner: this receipt is not honoured."""
    UNKNOWN = "unknown"
    """It may or may not be durable; the message may come again."""


class Cancelled(Enum):
    """How a cancel or a reschedule ended."""

    CANCELLED = "cancelled"
    """It will never be delivered."""
    TOO_LATE = "too late"
    """It may have been delivered, or may still be."""


class StaleReceipt(Refused):
    """Another delivery of the message was recorded since, or its lane has another owner."""


@dataclass(frozen=True)
class Stats:
    """What a queue holds. Counts of live messages are exact up to what is being put and settled meanwhile."""

    backlog: int
    in_flight: int
    delayed: int
    oldest_due_us: int | None


class Engine(Protocol):
    """One queue, as producers, consumers and operators use it."""

    async def put(self, messages: Sequence[Message]) -> list[str]:
        """Durable at LOCAL_QUORUM when it returns; the ids, in order. For a once key that is taken, its first id."""
        ...

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit` messages; waits at most `wait_us` for the first."""
        ...

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Durable when it returns, each for itself, in order."""
        ...

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, if that can still be promised."""
        ...

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Deliver it at another moment; the id under which it goes on."""
        ...

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Message]:
        """Look without taking."""
        ...

    async def stats(self) -> Stats:
        """What the queue holds."""
        ...

    async def purge(self) -> int:
        """Settle what is there now, and nothing put after; the moment up to which."""
        ...

    async def repair(self) -> None:
        """One pass over what is owed: late rows put anew, far ones moved, lanes retired."""
        ...
