"""The contract of an engine: what every kind of queue offers, and the values that cross it (DESIGN section 5).

At least once, always; never silently lost. One conformance suite runs on every engine (tests/conformance/engines).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from headgate.errors import HeadgateError, Refused

Attributes = Mapping[str, str | bytes]


@dataclass(slots=True)
class Message:
    """What a producer puts. `due_us` is the moment it asks for, in us since 1970; None is "now".

    A value, not to be changed once it was handed to `put`. It is not frozen, since one is made for each message, and
    making a frozen one takes four times as long.
    """

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


@dataclass(slots=True)
class Ack:
    """It is done. A value, not frozen for the same reason as `Message`."""

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
class DeadLetter:
    """The message will never succeed: it goes to the dead-letter queue at once, or comes again after this delay where
    the queue has none."""

    receipt: str
    reason: str = ""
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class Extend:
    """It takes longer: keep it hidden this long from now."""

    receipt: str
    visibility_us: int


Settle = Ack | Nack | DeadLetter | Extend


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


class Standing(Enum):
    """How a live message stands."""

    READY = "ready"
    """It may be handed out now (one of a group, when those before it are settled)."""
    IN_FLIGHT = "in flight"
    """Hidden: handed out, or failed and waiting for its next attempt. What is hidden for less than a lease is known
    to the owner of its lane alone; who asks elsewhere sees it as ready."""
    LATER = "later"
    """Not due yet."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """A live message, looked at without taking it. `attempt`: how often it was received, as far as is recorded."""

    message_id: str
    payload: bytes
    attributes: Attributes
    group: str | None
    due_us: int
    put_us: int
    attempt: int
    standing: Standing
    hidden_until_us: int = 0


class Fate(Enum):
    """What became of a message."""

    NOT_FOUND = "not found"
    """Never put here, or expired, or put without an acknowledgement."""
    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    PURGED = "purged"
    DEAD = "dead letter"
    """It went to the dead letter queue, under the same id."""
    LATE = "late"
    """It lies where its lane has passed already: repair puts it anew."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a message lies, and what became of it. `places`: its first place and each one that it moved to, in the
    engine's own words."""

    message_id: str
    fate: Fate
    places: tuple[str, ...]
    due_us: int = 0
    attempt: int = 0
    hidden_until_us: int = 0


@dataclass(frozen=True, slots=True)
class LaneStats:
    """One lane as its control row shows it. What is waiting and in flight is known where this process owns it;
    `hidden` and `settled_above` are counted from the records of others' lanes, which tell a little late."""

    generation: int
    shard: int
    owner: str | None
    """The taking that holds it; None when nobody does."""
    epoch: int
    last_us: int
    reach_us: int
    touched_us: int
    oldest_due_us: int | None
    """The lowest message above `last` that is due."""
    is_mine: bool = False
    is_held: bool = False
    """LaneHeld: so much is settled above one message that it hands out nothing new."""
    is_stopped: bool = False
    is_lent: bool = False
    is_retired: bool = False
    waiting: int | None = None
    """Read ahead and not handed out."""
    in_flight: int | None = None
    lease_left_us: int | None = None
    """Until its lease ends, if it is not renewed; None where nobody holds it."""
    progress: int = 0
    """The turns of its owner's loop in this tenure: one that stands still hangs."""
    hidden: int = 0
    """Handed out for longer than a lease lasts, or waiting for the next attempt."""
    settled_above: int = 0
    """Messages that are settled above one that is not."""


@dataclass(frozen=True, slots=True)
class RepairStanding:
    """How far repair is, as its own records show. A look that is due and not taken yet is owed; the oldest of them
    says for how long repair has been behind."""

    runs_now: bool
    """A process holds the lease of it."""
    passes: int
    """How many were begun, ever."""
    last_pass_us: int | None
    """When the last one was seen at work; None where there never was one."""
    looked_to_us: int | None
    """The parts of every lane that end by then had their first look; None where one had none."""
    owed_since_us: int | None


@dataclass(frozen=True)
class Stats:
    """What a queue holds; each live message is counted once. How exact each number is and what it costs:
    the engine's page. `complete` is False where there was more to count than one call may read."""

    backlog: int
    """Due, and to be handed out."""
    in_flight: int
    """Handed out, or hidden until the next attempt."""
    delayed: int
    """Due later."""
    oldest_due_us: int | None
    lanes: tuple[LaneStats, ...] = ()
    complete: bool = True
    repair: RepairStanding | None = None
    """None where it was not asked for."""


class PassEnd(Enum):
    """How a pass of repair ended."""

    DONE = "done"
    BUSY = "another process repairs this queue"
    STOPPED = "the time limit or the lease ended; the next pass resumes from this point"


@dataclass(frozen=True, slots=True)
class Repaired:
    """What one pass of repair did, and what it left. `late`: messages' rows that nobody had met where they lay;
    `owed_us`: since when a look has been due that could not be taken, `waits_for_all_us`: since when one has been
    that only waits until all replicas answer; None where there is none, as far as this pass saw."""

    end: PassEnd
    looked: int = 0
    late: int = 0
    put_anew: int = 0
    waiting: int = 0
    lanes_retired: int = 0
    generations_left: tuple[int, ...] = ()
    owed_us: int | None = None
    waits_for_all_us: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def oldest_owed_us(self) -> int | None:
        """Of either kind."""
        return min((each for each in (self.owed_us, self.waits_for_all_us) if each is not None), default=None)

    @property
    def waits_for_all(self) -> bool:
        """Whether a look waits until all replicas answer."""
        return self.waits_for_all_us is not None


class Engine(Protocol):
    """One queue, as producers, consumers and operators use it."""

    def put(self, messages: Sequence[Message]) -> Awaitable[list[str]]:
        """Durable at LOCAL_QUORUM when it returns; the ids, in order. For a once key that is taken, its first id."""
        ...

    async def put_each(self, messages: Sequence[Message]) -> list[str | HeadgateError]:
        """As `put`, with an outcome for each message: its id, or why it is not known to be durable. It raises for no
        message."""
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

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Peeked]:
        """Look without taking: live messages by their due moments, also later ones; from the oldest unsettled on, or
        from a moment."""
        ...

    async def where(self, message_id: str) -> Whereabouts:
        """Where a message lies, and what became of it."""
        ...

    async def stats(self) -> Stats:
        """What the queue holds, and how far repair is."""
        ...

    async def purge(self, before_us: int | None = None) -> int:
        """Settle what was put before a moment, or before now; the moment."""
        ...

    async def repair(self) -> Repaired:
        """One pass over what is owed: late rows put anew, far ones moved, lanes retired."""
        ...
