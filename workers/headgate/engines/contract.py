"""The seam of the engines: the interface of every kind of queue, and the values that cross it (DESIGN section 5).

At least once, always; never silently lost. One conformance suite runs on every engine (tests/contract/engines).
docs/internals/add-an-engine.md shows how to write one. Members that only a later engine needs come with it:

    receive(group=), groups()             consumer groups (extent)
    update(receipt, payload)              new content for a message in flight (bucket)
    serve(frame)                          settling from any process, with owner_of (bucket, gateway)
    wake(hint)                            wake-up datagrams (bucket, extent)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from headgate.errors import Conflict, HeadgateError, OperationRefused, Unavailable
from headgate.expiry import Promise
from headgate.store.model.deadline import Deadline
from headgate.store.model.statements import Insert

if TYPE_CHECKING:  # decisions import the values of this file, and a host has a store, which brings asyncio
    from headgate.engines.context import KnownQueue

Attributes = Mapping[str, str | bytes]
PASS_US = 240_000_000
"""How long a pass of repair lasts at most by default; one starts every five minutes."""


class Capability(Enum):
    """What an engine offers beyond put, receive and settle. A call that needs another is refused."""

    GROUPS = "message groups"
    DELAYS = "delayed messages"
    ONCE = "once keys"
    CANCEL = "cancelling"
    OUTBOX = "messages in an application's batch"
    GENERATIONS = "another number of shards"
    """Another number of shards makes another generation (rule R6)."""


class NotSupported(OperationRefused):
    """The engine of this queue does not support the call."""


class BatchTooLate(Conflict):
    """The batch would be acknowledged too late for its message to be delivered at its due time."""


class CatalogueStale(Unavailable):
    """The catalogue was not read recently enough to know the queue's generations."""


@dataclass(slots=True)
class NewMessage:
    """A message to put. `due_us` is its requested due time, in µs since 1970; None is "now".

    A value, not to be changed once it was passed to `put`. It is not frozen, since one is created for each message,
    and creating a frozen one takes four times as long.
    """

    payload: bytes
    due_us: int | None = None
    attributes: Attributes = field(default_factory=dict)
    group: str | None = None
    once: str | None = None
    once_scope: str | None = None


@dataclass(slots=True)
class Delivery:
    """A message in flight at a consumer. Only this delivery's receipt settles it.

    `epoch` is the fencing token: an external system that acts for this message checks that it has seen no higher one.
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
    """It is done. A value, not frozen for the same reason as `NewMessage`."""

    receipt: str


@dataclass(frozen=True, slots=True)
class NackDelivery:
    """It failed: retry after this delay, or move to the dead-letter queue after too many receives.

    Not `charged`: it was not tried, and this delivery does not count. Its next delivery may have the same receipt, so
    a caller that returns a message without charge must not use the receipt again.
    """

    receipt: str
    delay_us: int = 0
    reason: str = ""
    charged: bool = True
    killed: bool = False
    """It ended the process that ran it, and nothing else ran there: it stays a crash suspect."""


@dataclass(frozen=True, slots=True)
class DeadLetterDelivery:
    """The message can never succeed: it goes to the dead-letter queue at once, or comes again after this delay where
    the queue has none."""

    receipt: str
    reason: str = ""
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class ExtendDelivery:
    """It takes longer: keep it hidden this long from now."""

    receipt: str
    visibility_us: int


Settle = Ack | NackDelivery | DeadLetterDelivery | ExtendDelivery


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


class StaleReceipt(OperationRefused):
    """Another delivery of the message was recorded since, or its lane has another owner."""


class Visibility(Enum):
    """The visibility of a live message."""

    READY = "ready"
    """It may be handed out now (one of a group, when those before it are settled)."""
    IN_FLIGHT = "in flight"
    """Hidden: delivered, or failed and waiting for its next attempt. If it is hidden for less than a lease, only the
    owner of its lane knows; other processes report it as ready."""
    LATER = "later"
    """Not due yet."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """A live message, read without taking it. `attempt`: the number of recorded receives."""

    message_id: str
    payload: bytes
    attributes: Attributes
    group: str | None
    due_us: int
    put_us: int
    attempt: int
    standing: Visibility
    hidden_until_us: int = 0


class MessageState(Enum):
    """The state of a message."""

    NOT_FOUND = "not found"
    """Never put into this queue, or expired, or put without an acknowledgement."""
    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    PURGED = "purged"
    DEAD = "dead letter"
    """It is in the dead-letter queue, under the same id."""
    LATE = "late"
    """Its lane has passed its place already: repair restamps it."""
    UNREADABLE = "unreadable"
    """Its row is kept, but cannot be read, so it is not delivered."""


@dataclass(frozen=True, slots=True)
class MessageLocation:
    """The place of a message, and its state. `places`: its first place and each one that it moved to, in the engine's
    own terms."""

    message_id: str
    fate: MessageState
    places: tuple[str, ...]
    due_us: int = 0
    attempt: int = 0
    hidden_until_us: int = 0


@dataclass(frozen=True, slots=True)
class LaneStats:
    """One lane as its control row shows it. The waiting and in-flight messages are known where this process owns the
    lane. `hidden` and `settled_above` come from the records of other lanes, and lag a little behind."""

    generation: int
    shard: int
    owner: str | None
    """The lease term that holds it; None without an owner."""
    epoch: int
    last_us: int
    read_to_us: int
    touched_us: int
    oldest_due_us: int | None
    """The lowest message above `last` that is due."""
    is_mine: bool = False
    is_held: bool = False
    """LaneHeld: too many messages are settled above one message, so it delivers nothing new."""
    is_stopped: bool = False
    is_reserved: bool = False
    is_retired: bool = False
    waiting: int | None = None
    """Read ahead and not handed out."""
    in_flight: int | None = None
    lease_left_us: int | None = None
    """Until its lease ends, unless renewed; None without an owner."""
    progress: int = 0
    """The turns of its owner's loop in this lease term: a count that stands still means that it hangs."""
    hidden: int = 0
    """Handed out for longer than a lease lasts, or waiting for the next attempt."""
    settled_above: int = 0
    """Messages that are settled above one that is not."""
    unreadable_rows: int = 0
    """Rows that were set aside, since their stored bytes cannot be read."""


@dataclass(frozen=True, slots=True)
class RepairStanding:
    """The progress of repair, from its own records. A due scan that has not run yet is owed; the oldest of them shows
    how long repair has been behind."""

    runs_now: bool
    """A process holds the lease of it."""
    passes: int
    """The total number of scans started."""
    last_pass_us: int | None
    """When the last one was last active; None without any."""
    checked_to_us: int | None
    """The parts of every lane that end by then had their first scan; None where one had none."""
    owed_since_us: int | None


@dataclass(frozen=True)
class Stats:
    """The contents of a queue; each live message is counted once. The engine's page states how exact each number is
    and its cost. `complete` is False if there was more to count than one call may read."""

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
    """None where it was not requested."""


class PassEnd(Enum):
    """How a pass of repair ended."""

    DONE = "done"
    BUSY = "another process repairs this queue"
    STOPPED = "the time limit or the lease ended; the next pass resumes from this point"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of one pass of repair, and the remaining work. `late`: rows of messages that no reader had read at
    their place. `owed_us`: since when a due scan could not run. `waits_for_all_us`: since when a scan has waited only
    until all replicas answer. Both are None where this pass found no such scan."""

    end: PassEnd
    checked: int = 0
    late: int = 0
    put_again: int = 0
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
        """Whether a scan waits until all replicas answer."""
        return self.waits_for_all_us is not None


class QueueSettings(Protocol):
    """What everybody may know of an engine's settings. Its other settings are its own."""

    @property
    def name(self) -> str:
        """`namespace/name`."""
        ...

    @property
    def skew_us(self) -> int:
        """The maximum difference between the clocks of any two processes."""
        ...

    @property
    def retention_us(self) -> int:
        """How long an unsettled message is kept."""
        ...

    @property
    def visibility_us(self) -> int:
        """How long a received message is hidden by default."""
        ...

    @property
    def free_visibility_us(self) -> int | None:
        """A visibility up to this long needs no record before the delivery; None: the length makes no difference."""
        ...

    @property
    def max_receives(self) -> int:
        """The number of receives before a dead letter."""
        ...

    @property
    def once_window_us(self) -> int:
        """How long a once key is remembered."""
        ...

    @property
    def dead_letter(self) -> str | None:
        """The name of the dead-letter queue, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class StampedPut:
    """A message for the application's own batch: stamped, and not sent. The statements are those that the engine
    would send, so that sending them again changes nothing."""

    message_id: str
    statements: tuple[Insert, ...]
    promise: Promise
    """If the batch is acknowledged while it holds, the message comes at its due time; later, repair delivers it."""
    check: Callable[[], None]
    """Refuses what would be late for sure if it were sent now. Makes no request."""


class GenerationKeeper(Protocol):
    """Repair's updates to the catalogue, which no engine knows."""

    async def make_sure(self) -> None:
        """Write `sure` where it is owed, and let the next generation be the current one where that is due."""
        ...

    async def retire(self, number: int) -> None:
        """Delete a generation that holds nothing and has had its last scan."""
        ...


@dataclass(frozen=True, slots=True)
class LaneHolding:
    """A lane that this process owns. `renewed_us`: when the last renewal that counts was sent."""

    lane: str
    epoch: int
    renewed_us: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The part of this process in the lanes of a queue."""

    holdings: tuple[LaneHolding, ...] = ()
    sharers: int = 1
    """The number of members with a share of the lanes, this one too."""
    stops: int = 0
    """The number of lanes that had to be taken from this process."""
    dead_loops: tuple[str, ...] = ()
    """Why background loops of the queue do nothing any more."""
    unreadable_rows: int = 0
    """Rows of these lanes that were set aside, since their stored bytes cannot be read."""


@dataclass(frozen=True, slots=True)
class LaneOwner:
    """The process that owns the lane of a delivery, and so can settle it."""

    member: UUID
    """As other members know it: an address may be used again by another process."""
    address: str
    """Where it answers calls about its lanes: "host:port"; empty where it does not."""
    until_us: int
    """Its lease lasts at least until then, unless it gives the lane back; 0 where that is not known."""


class Engine(Protocol):
    """One queue in one process, as the SDK, the worker runtime and bulk jobs use it.

    An engine may inherit from it: a member with a body is for an engine without the capability, without lanes,
    without dead letters or without repair.
    """

    @property
    def settings(self) -> QueueSettings:
        """As the catalogue last stated."""
        ...

    def now_us(self) -> int:
        """The time of this process; raises while it is out of the queue's bound (rule R1)."""
        ...

    # ---- life

    def settings_changed(self, settings: Any, *, read_us: int) -> None:
        """The result of a read of the catalogue (what the record's `settings_of` returns), and its start; called at
        every read."""
        ...

    def dead_letters_changed(self, known: KnownQueue | None) -> None:
        """The same for the dead-letter queue; None: there is none now."""
        return

    async def leave(self) -> None:
        """Acquire no more lanes, and hand each lane over as soon as nothing of it is in flight; until then it can be
        settled."""
        return

    async def close(self) -> None:
        """Write pending messages, release the lanes. Receivers stop waiting."""
        ...

    # ---- messages

    def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> Awaitable[list[str]]:
        """Durable at LOCAL_QUORUM when it returns; the ids, in order. For a once key that is taken, its first id.

        At the deadline it raises: NotSent if nothing was sent, and then nothing will be; else OutcomeUnknown. Any
        other error means that nothing was stored. For one plain message it may be the very future that a flush
        answers, with no coroutine around it.
        """
        ...

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """As `put`, with an outcome for each message: its id, or why it is not known to be durable. It raises for no
        message."""
        ...

    def stamp_put(self, message: NewMessage, *, within_us: int) -> StampedPut:
        """A message for a batch of the application that is answered within this time (OUTBOX)."""
        raise NotSupported(queue=self.settings.name)

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit` messages; waits at most `wait_us` for the first."""
        ...

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Durable when it returns, each for itself, in order."""
        ...

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, if that can still be promised (CANCEL)."""
        raise NotSupported(queue=self.settings.name)

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Deliver it at another time; returns the id under which it continues (CANCEL)."""
        raise NotSupported(queue=self.settings.name)

    # ---- inspection

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Peeked]:
        """Read without taking: live messages by due time, including delayed ones; from the oldest unsettled on, or
        from a given time."""
        ...

    async def where(self, message_id: str) -> MessageLocation:
        """The place of a message, and its state."""
        ...

    async def stats(self) -> Stats:
        """The contents of the queue, and the progress of repair."""
        ...

    def ownership(self) -> Ownership:
        """The lanes of this process, without a request."""
        return Ownership()

    async def owner_of(self, receipt: str) -> LaneOwner | None:
        """The process that can settle a delivery; None where none is known to, or any process can."""
        return None

    # ---- the whole queue

    async def purge(self, before_us: int | None = None) -> int:
        """Settle all messages put before a given time, or before now; returns the time."""
        ...

    async def repair(self, *, keeper: GenerationKeeper | None = None, within_us: int = PASS_US) -> Repaired:
        """One pass over all owed work: late rows restamped, far ones moved, lanes retired. `keeper` is the access to
        the catalogue, for callers that have it: without it no generation is advanced."""
        return Repaired(PassEnd.DONE)


@dataclass(frozen=True, slots=True)
class LaneReport:
    """One lane, as the operator checks it."""

    lane: str
    epoch: int
    leased: bool
    unprocessed: bool
    suspicious: bool
    due_us: int | None


class QueueInspector(Protocol):
    """The operator's requests to one queue, from a process that holds none of its lanes. Plain reads, but for `stop`.
    An inspector remembers its checks."""

    @property
    def lanes(self) -> int:
        """Of all generations that may hold messages."""
        ...

    async def read_to_us(self) -> int:
        """Up to here every lane has been read: what sleeps was processed until then."""
        ...

    async def count(self) -> Stats:
        """The backlog, from the tables."""
        ...

    async def inspect(self) -> list[LaneReport]:
        """Check each lane that is not retired."""
        ...

    async def stop(self, lane: str, epoch: int) -> None:
        """Order the owner of that epoch to stop (attack E3); it never shortens a lease."""
        ...
