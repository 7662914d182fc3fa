"""A queue in memory that keeps the engines' contract, for tests of its users. No store, one process.

It has everything that a consumer meets: attempts, visibility, groups in order, delays, dead letters, stale receipts,
crash suspects, lanes (a message belongs to one, by number). The faults to inject: `break_receive`, `settle_as`,
`lose`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from headgate.engines.contract import (
    Ack,
    Cancelled,
    DeadLetterDelivery,
    Delivery,
    ExtendDelivery,
    NackDelivery,
    NewMessage,
    Settle,
    Settled,
    Stats,
)
from headgate.errors import HeadgateError
from headgate.expiry import SECOND_US
from headgate.runtime.worker.port import LeaseStatus
from headgate.store.clock.clock import ClockFigures
from headgate.store.model.deadline import Deadline


@dataclass
class Dead:
    """The messages in the dead-letter queue."""

    message_id: str
    payload: bytes
    reason: str
    attempts: int


@dataclass
class _Held:
    message_id: str
    message: NewMessage
    due_us: int
    put_us: int
    attempts: int = 0
    receive_number: int = 0
    """Which delivery is open; 0 is none."""
    until_us: int = 0
    settled: bool = False
    suspect: bool = False


@dataclass
class MemoryQueue:
    """One queue. It is a `WorkerQueue` too, so that a worker can use it as it is."""

    name: str = "test/queue"
    visibility_us: int = 30 * SECOND_US
    max_receives: int | None = 5
    stops: int = 0
    sharers: int = 1
    epoch: int = 1
    dead: list[Dead] = field(default_factory=list)
    dead_loop_reasons: list[str] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    closed: bool = False
    break_receive: list[HeadgateError] = field(default_factory=list)
    """Raised by the next receives, one each."""
    settle_as: list[Settled | HeadgateError] = field(default_factory=list)
    """The outcomes of the next calls of settle, for any messages."""
    left: bool = False
    _by_id: dict[str, _Held] = field(default_factory=dict)
    _line: list[tuple[int, int, str]] = field(default_factory=list)
    _ticket: count[int] = field(default_factory=lambda: count(1))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watchers: list[asyncio.Future[None]] = field(default_factory=list)

    # ---- putting

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> list[str]:
        """Their ids."""
        return [self.put_now(message) for message in messages]

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """Of each its id, or its error."""
        outcomes: list[str | HeadgateError] = []
        for message in messages:
            try:
                outcomes += await self.put([message])
            except HeadgateError as error:
                outcomes.append(error)
        return outcomes

    def put_now(self, message: NewMessage | bytes, *, suspect: bool = False, attempts: int = 0) -> str:
        """One message; as a crash suspect, or tried before, if a test needs that."""
        if isinstance(message, bytes):
            message = NewMessage(message)
        number = next(self._ticket)
        now_us = self.now_us()
        held = _Held(f"m{number}", message, message.due_us or now_us, now_us, attempts, suspect=suspect)
        self._by_id[held.message_id] = held
        self._offer(held, held.due_us)
        return held.message_id

    def _offer(self, held: _Held, at_us: int) -> None:
        heapq.heappush(self._line, (at_us, int(held.message_id[1:]), held.message_id))
        self._changed.set()

    # ---- receiving

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit`, waiting at most `wait_us` for the first."""
        if self.break_receive:
            raise self.break_receive.pop(0)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_us / SECOND_US
        while True:
            self._changed.clear()
            deliveries = self._give(limit, self.visibility_us if visibility_us is None else visibility_us)
            left_s = deadline_s - loop.time()
            if deliveries or left_s <= 0:
                self._notify()
                return deliveries
            next_us = self._line[0][0] if self._line else self.now_us() + SECOND_US
            wait_s = min(left_s, max((next_us - self.now_us()) / SECOND_US, 0.001))
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue

    def _give(self, limit: int, visibility_us: int) -> list[Delivery]:
        self._end_visibilities()
        given: list[Delivery] = []
        kept: list[tuple[int, int, str]] = []
        now_us = self.now_us()
        busy = {held.message.group for held in self._by_id.values() if held.receive_number and held.message.group}
        suspect_open = any(held.receive_number and held.suspect for held in self._by_id.values())
        while self._line and self._line[0][0] <= now_us and len(given) < limit:
            entry = heapq.heappop(self._line)
            held = self._by_id[entry[2]]
            if held.settled or held.receive_number:
                continue
            if (held.message.group in busy) or (held.suspect and suspect_open):
                kept.append(entry)
                continue
            busy |= {held.message.group} if held.message.group else set()
            suspect_open = suspect_open or held.suspect
            given.append(self._delivered(held, now_us + visibility_us))
        for entry in kept:
            heapq.heappush(self._line, entry)
        return given

    def _delivered(self, held: _Held, until_us: int) -> Delivery:
        held.attempts += 1
        held.receive_number = next(self._ticket)
        held.until_us = until_us
        delivery = Delivery(
            message_id=held.message_id,
            payload=held.message.payload,
            attributes=held.message.attributes,
            group=held.message.group,
            attempt=held.attempts,
            due_us=held.due_us,
            put_us=held.put_us,
            epoch=self.epoch,
            visible_until_us=until_us,
            receipt=f"{held.message_id}/{held.receive_number}",
            suspect=held.suspect,
        )
        self.deliveries.append(delivery)
        return delivery

    def _end_visibilities(self) -> None:
        now_us = self.now_us()
        for held in self._by_id.values():
            if held.receive_number and held.until_us <= now_us:
                self._failed(held, 0, "not settled within its visibility")

    # ---- settling

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Each for itself."""
        await asyncio.sleep(0)
        self._notify()
        if self.settle_as:
            how = self.settle_as.pop(0)
            if isinstance(how, HeadgateError):
                raise how
            return [how] * len(settles)
        return [self._settle(each) for each in settles]

    def _settle(self, settle: Settle) -> Settled:
        self._end_visibilities()
        message_id, _, receive_number = settle.receipt.partition("/")
        held = self._by_id.get(message_id)
        if held is None or str(held.receive_number) != receive_number or held.settled:
            return Settled.STALE
        self.settles.append(settle)
        match settle:
            case Ack():
                held.receive_number, held.settled = 0, True
                self._changed.set()
            case ExtendDelivery(visibility_us=visibility_us):
                held.until_us = self.now_us() + visibility_us
            case DeadLetterDelivery(reason=reason, delay_us=delay_us):
                if self.max_receives is None:
                    self._failed(held, delay_us, reason)
                else:
                    self._move_to_dead_letters(held, reason)
            case NackDelivery(charged=False):
                held.attempts -= 1
                held.receive_number = 0
                self._offer(held, self.now_us() + settle.delay_us)
            case NackDelivery(delay_us=delay_us, reason=reason):
                self._failed(held, delay_us, reason)
        return Settled.DONE

    def _failed(self, held: _Held, delay_us: int, reason: str) -> None:
        held.receive_number = 0
        if self.max_receives is not None and held.attempts >= self.max_receives:
            self._move_to_dead_letters(held, reason)
        else:
            self._offer(held, self.now_us() + delay_us)

    def _move_to_dead_letters(self, held: _Held, reason: str) -> None:
        held.receive_number, held.settled = 0, True
        self.dead.append(Dead(held.message_id, held.message.payload, reason, held.attempts))
        self._changed.set()

    # ---- the rest of the contract

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, unless it was."""
        held = self._by_id.get(message_id)
        if held is None or held.settled or held.attempts:
            return Cancelled.TOO_LATE
        held.settled = True
        return Cancelled.CANCELLED

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """At another time."""
        held = self._by_id.get(message_id)
        if held is None or await self.cancel(message_id) is Cancelled.TOO_LATE:
            return Cancelled.TOO_LATE, None
        (new_id,) = await self.put([NewMessage(held.message.payload, due_us, held.message.attributes)])
        return Cancelled.CANCELLED, new_id

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[NewMessage]:
        """The next ones."""
        held = sorted(self._by_id.values(), key=lambda each: each.due_us)
        return [each.message for each in held if not each.settled and each.due_us >= (from_us or 0)][:limit]

    async def stats(self) -> Stats:
        """Counted."""
        live = [held for held in self._by_id.values() if not held.settled]
        now_us = self.now_us()
        return Stats(
            backlog=sum(not held.receive_number and held.due_us <= now_us for held in live),
            in_flight=sum(bool(held.receive_number) for held in live),
            delayed=sum(held.due_us > now_us for held in live),
            oldest_due_us=min((held.due_us for held in live), default=None),
        )

    async def purge(self) -> int:
        """Everything is settled."""
        for held in self._by_id.values():
            held.settled, held.receive_number = True, 0
        return self.now_us()

    async def repair(self) -> None:
        """Nothing comes late in memory."""

    # ---- as a worker sees it

    def dead_loops(self) -> list[str]:
        """As the test sets it: this queue has no loops."""
        return self.dead_loop_reasons

    def leases(self) -> Sequence[LeaseStatus]:
        """One lane, renewed just now."""
        return [LeaseStatus("1/0", 0.0, self.epoch)]

    def clock(self) -> ClockFigures | None:
        """That of one node, which is a little ahead."""
        return ClockFigures(True, {"127.0.0.1": 1_000}, {"127.0.0.1": 500}, (), 250_000, 0, 0)

    async def leave(self) -> None:
        """Noted."""
        self.left = True

    async def close(self) -> None:
        """Noted."""
        self.closed = True

    # ---- for tests

    async def next_event(self) -> None:
        """Until something is received, settled or put; half a second at most."""
        waiter = asyncio.get_running_loop().create_future()
        self._watchers.append(waiter)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiter, 0.5)

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for each in watchers:
            if not each.done():
                each.set_result(None)

    def now_us(self) -> int:
        """By the event loop's clock."""
        return round(asyncio.get_running_loop().time() * SECOND_US)

    def lose(self, message_id: str) -> None:
        """Its lane has another owner now: the open receipt is stale, and no receiver of this process gets it
        again."""
        held = self._by_id[message_id]
        held.receive_number, held.settled = 0, True

    def is_settled(self, message_id: str) -> bool:
        """Done, dead-lettered or cancelled."""
        return self._by_id[message_id].settled

    @property
    def live(self) -> int:
        """How many are not settled."""
        return sum(not held.settled for held in self._by_id.values())

    def attempts_of(self, message_id: str) -> int:
        """How many receives are charged to it."""
        return self._by_id[message_id].attempts
