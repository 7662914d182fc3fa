"""One queue in memory: the states of its messages, and what each call changes. No I/O: the time is an argument.

    put ──> delayed ──> ready ──> in flight ──> settled (acknowledged)
              ^           ^          │
              │           └──────────┤ failed, without a delay, or not settled within its visibility
              └── delayed <──────────┤ failed, with a delay
                                     └──> dead letter: failed `max_receives` times, or rejected

A delayed message may be cancelled, and a live one may be purged, or expire at the end of its retention.

What must hold:
- at most one delivery of a message is open, and only its receipt settles it;
- of the ready messages the one that was due first is delivered first;
- of a group only the first message is ready or in flight. A failed message keeps its place;
- each delivery counts as an attempt, unless it is returned without charge;
- crash suspects, which were in flight when their consumer crashed, are delivered in groups that halve.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from headgate.engines.contract import (
    Ack,
    Attributes,
    Cancelled,
    DeadLetterDelivery,
    Delivery,
    ExtendDelivery,
    LaneStats,
    MessageLocation,
    MessageState,
    NackDelivery,
    NewMessage,
    Peeked,
    Settle,
    Settled,
    Stats,
    Visibility,
)
from headgate.engines.crash_suspects import LEVEL_ALONE, decide_group, is_charged, level_after_death
from headgate.engines.memory.settings import SECOND_US, STALE_MIN, MemorySettings
from headgate.engines.receipts import receipts_of
from headgate.errors import InvalidRequest, OperationRefused
from headgate.store.model.statements import TTL_S_MAX

ENDED_MAX = 100_000
"""The number of messages whose end is remembered, for `where`."""
PEEK_MAX = 1_000
BYTES_MAX = 1024**3
"""Of the payloads of one queue."""
_ID = re.compile(r"m[0-9a-f]{8}-[0-9]+")


@dataclass(slots=True)
class _Message:
    id: str
    place: tuple[int, int]
    """Its order in the queue: when it is due, at the earliest when it was put, and a number."""
    payload: bytes
    attributes: Attributes
    group: str | None
    due_us: int
    put_us: int
    expires_us: int
    hidden_until_us: int
    """Until its due time, or its next attempt; of a delivery, the end of its visibility."""
    attempt: int = 0
    deliveries: int = 0
    """All of them, also those that were not charged: a receipt names one."""
    epoch: int = 0
    level: int = 0
    """Of a crash suspect: see `headgate/engines/crash_suspects.py`."""
    timer_us: int = 0
    """The time of its one valid timer."""


Timer = Callable[["MemoryLane", str, int], None]
"""Has `wake` called for a message at a time."""


@dataclass
class MemoryLane:
    """The one lane of a queue."""

    settings: MemorySettings
    set_timer: Timer
    numbers: count[int]
    """Common to all queues, since a dead letter keeps its id."""
    dead_letters: MemoryLane | None = None
    messages: dict[str, _Message] = field(default_factory=dict)
    """The live ones."""
    in_flight: dict[str, _Message] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    """Messages with a level."""
    consumers: dict[int, str] = field(default_factory=dict)
    """The names of those that receive, by their epochs. A consumer settles what it received itself."""
    size_bytes: int = 0
    ready: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    """A heap; messages that have left this state are still in it."""
    groups: dict[str, list[tuple[tuple[int, int], str]]] = field(default_factory=dict)
    once: dict[tuple[str | None, str], tuple[int, str]] = field(default_factory=dict)
    """The end of each key's window, and the id of its message; the oldest key first."""
    ended: dict[str, MessageState] = field(default_factory=dict)
    _last_put_us: int = 0
    _last_epoch: int = 0

    def change(self, settings: MemorySettings) -> None:
        """These are in force from now on."""
        self.settings = settings

    def change_dead_letters(self, lane: MemoryLane | None) -> None:
        """From now on dead letters go there; None: messages that fail too often stay."""
        self.dead_letters = lane

    # ---- putting

    def check(self, message: NewMessage, now_us: int) -> None:
        """Refuse a message that a server would not keep."""
        size = len(message.payload) + sum(map(len, (*message.attributes, *message.attributes.values())))
        if size > self.settings.message_bytes_max:
            raise InvalidRequest(
                "A message is too large",
                remedy="raise maxMessageSize, or store the payload elsewhere",
                size=size,
                size_max=self.settings.message_bytes_max,
            )
        if self.size_bytes + size > BYTES_MAX:
            raise OperationRefused(
                "The queue in memory is full", remedy="receive its messages, or purge it", queue=self.settings.name
            )
        if message.due_us is not None:
            self.check_due(message.due_us, now_us)

    def check_due(self, due_us: int, now_us: int) -> None:
        """As Cassandra, which keeps nothing for longer."""
        kept_s = (max(due_us - now_us, 0) + self.settings.retention_us) // SECOND_US
        if kept_s > TTL_S_MAX:
            raise InvalidRequest(
                "The due time is later than Cassandra can store",
                remedy="delay and retention together are at most 20 years",
                years=round(kept_s / 31_536_000, 1),
            )

    def put(self, messages: Sequence[NewMessage], now_us: int) -> list[str]:
        """Checked messages of one call; their ids. For a once key that is taken, the id of its first message.

        The time of a call's put is its own, so that a purge separates what was put before it from what comes after.
        """
        self._last_put_us = put_us = max(now_us, self._last_put_us + 1)
        while self.once and next(iter(self.once.values()))[0] <= now_us:
            del self.once[next(iter(self.once))]
        return [self._put_once(message, put_us, now_us) for message in messages]

    def _put_once(self, message: NewMessage, put_us: int, now_us: int) -> str:
        due_us = now_us + self.settings.delay_us if message.due_us is None else message.due_us
        if message.once is None:
            return self._add(message, due_us, put_us, now_us)
        key = (message.once_scope, message.once)
        ends_us, message_id = self.once.get(key, (0, ""))
        if ends_us <= now_us:
            message_id = self._add(message, due_us, put_us, now_us)
            self.once[key] = (now_us + self.settings.once_window_us, message_id)
        return message_id

    def _add(
        self, message: NewMessage, due_us: int, put_us: int, now_us: int, *, message_id: str | None = None
    ) -> str:
        number = next(self.numbers)
        starts_us = max(due_us, now_us)
        added = _Message(
            message_id or f"m{self.settings.queue.hex[:8]}-{number}",
            (starts_us, number),
            message.payload,
            dict(message.attributes),
            message.group,
            due_us,
            put_us,
            expires_us=starts_us + self.settings.retention_us,
            hidden_until_us=starts_us,
        )
        self.messages[added.id] = added
        self.size_bytes += len(added.payload)
        if added.group is not None:
            insort(self.groups.setdefault(added.group, []), (added.place, added.id))
        self._line_up(added, now_us)
        return added.id

    def _line_up(self, message: _Message, now_us: int) -> None:
        """Ready now, or at its time; behind the others of its group."""
        if message.hidden_until_us > now_us:
            self._set_timer(message, min(message.hidden_until_us, message.expires_us))
            return
        if message.group is None or self.groups[message.group][0][1] == message.id:
            heapq.heappush(self.ready, (message.place, message.id))
        self._set_timer(message, message.expires_us)

    def _set_timer(self, message: _Message, at_us: int) -> None:
        message.timer_us = at_us
        self.set_timer(self, message.id, at_us)

    def is_timer_valid(self, message_id: str, at_us: int) -> bool:
        """Whether the timer of a message still has something to do."""
        message = self.messages.get(message_id)
        return message is not None and message.timer_us == at_us

    def wake(self, message_id: str, now_us: int) -> None:
        """The time of a valid timer has come: a delay, a visibility or the retention is over."""
        message = self.messages[message_id]
        if message_id in self.in_flight:
            if message.epoch in self.consumers:
                self._set_level(message, 0)
            self._fail(message, 0, "not settled within its visibility", now_us)
        elif message.expires_us <= now_us:
            self.end(message, MessageState.NOT_FOUND, now_us)
        else:
            self._line_up(message, now_us)

    # ---- receiving

    def add_consumer(self, name: str) -> int:
        """Its epoch, which is higher than that of every consumer before it."""
        self._last_epoch += 1
        self.consumers[self._last_epoch] = name
        return self._last_epoch

    def remove_consumer(self, epoch: int, *, crashed: bool = False) -> None:
        """Its receipts are stale. Its messages stay hidden as promised; after a crash they are crash suspects."""
        self.consumers.pop(epoch, None)
        for message in self.in_flight.values():
            if crashed and message.epoch == epoch:
                message.attempt -= not is_charged(message.level)
                self._set_level(message, level_after_death(message.level))

    def hand_out(self, limit: int, *, visibility_us: int, now_us: int, epoch: int) -> list[Delivery]:
        """Up to `limit` ready messages to the consumer of that epoch, with as many crash suspects as may be in flight
        together."""
        deliveries: list[Delivery] = []
        waiting: list[tuple[tuple[int, int], str]] = []
        in_flight = Counter(each.level for each in self.in_flight.values() if each.level and each.epoch == epoch)
        group = decide_group(self._suspects_ready(now_us), in_flight)
        suspects_left = 0 if group is None else group.size
        while self.ready and len(deliveries) < limit:
            entry = heapq.heappop(self.ready)
            message = self.messages.get(entry[1])
            if message is None or message.id in self.in_flight or message.hidden_until_us > now_us:
                continue
            if message.level:
                if group is None or message.level != group.level or not suspects_left:
                    waiting.append(entry)
                    continue
                message.level = group.delivered_as
            if self.dead_letters is not None and message.attempt >= self.settings.max_receives:
                self._move_to_dead_letters(message, "received too often", self.dead_letters, now_us)
                continue
            suspects_left -= bool(message.level)
            deliveries.append(self._deliver(message, now_us + visibility_us, epoch))
        for entry in waiting:
            heapq.heappush(self.ready, entry)
        return deliveries

    def _suspects_ready(self, now_us: int) -> Counter[int]:
        """How many crash suspects may be delivered, by their level."""
        waiting = [self.messages[each] for each in self.suspects if each not in self.in_flight]
        return Counter(each.level for each in waiting if each.hidden_until_us <= now_us)

    def _deliver(self, message: _Message, until_us: int, epoch: int) -> Delivery:
        message.attempt += 1
        message.deliveries += 1
        message.epoch = epoch
        message.hidden_until_us = until_us
        self.in_flight[message.id] = message
        self._set_timer(message, until_us)
        receipts = receipts_of(self.settings.queue, self.settings.receipt_key)
        return Delivery(
            message_id=message.id,
            payload=message.payload,
            attributes=dict(message.attributes),
            group=message.group,
            attempt=message.attempt,
            due_us=message.due_us,
            put_us=message.put_us,
            epoch=epoch,
            visible_until_us=until_us,
            receipt=receipts.of_row((0, 0), epoch, message.deliveries, message.id.encode(), count=1).text(0),
            suspect=bool(message.level),
        )

    # ---- settling

    def settle(self, settles: Sequence[Settle], *, epoch: int, now_us: int) -> list[Settled]:
        """Each for itself, in order. The receipts of other consumers, and of earlier deliveries, are stale."""
        read = receipts_of(self.settings.queue, self.settings.receipt_key).read
        receipts = [read(settle.receipt)[0] for settle in settles]
        outcomes: list[Settled] = []
        for settle, receipt in zip(settles, receipts, strict=True):
            message = self.in_flight.get(receipt.key.decode())
            if message is None or (receipt.epoch, receipt.attempt) != (epoch, message.deliveries):
                outcomes.append(Settled.STALE)
                continue
            self._settle(message, settle, now_us)
            outcomes.append(Settled.DONE)
        return outcomes

    def _settle(self, message: _Message, settle: Settle, now_us: int) -> None:
        match settle:
            case Ack():
                self.end(message, MessageState.SETTLED, now_us)
            case ExtendDelivery(visibility_us=visibility_us):
                message.hidden_until_us = now_us + visibility_us
                self._set_timer(message, message.hidden_until_us)
            case NackDelivery(charged=False, delay_us=delay_us):
                message.attempt -= 1
                self._again(message, delay_us, now_us)
            case NackDelivery(killed=True, delay_us=delay_us, reason=reason):
                self._set_level(message, LEVEL_ALONE)
                self._fail(message, delay_us, reason, now_us)
            case DeadLetterDelivery(reason=reason) if self.dead_letters is not None:
                self._move_to_dead_letters(message, reason, self.dead_letters, now_us)
            case (
                NackDelivery(delay_us=delay_us, reason=reason) | DeadLetterDelivery(delay_us=delay_us, reason=reason)
            ):
                self._set_level(message, 0)
                self._fail(message, delay_us, reason, now_us)

    def _set_level(self, message: _Message, level: int) -> None:
        message.level = level
        (self.suspects.add if level else self.suspects.discard)(message.id)

    def _fail(self, message: _Message, delay_us: int, reason: str, now_us: int) -> None:
        if self.dead_letters is not None and message.attempt >= self.settings.max_receives:
            self._move_to_dead_letters(message, reason, self.dead_letters, now_us)
        else:
            self._again(message, delay_us, now_us)

    def _again(self, message: _Message, delay_us: int, now_us: int) -> None:
        del self.in_flight[message.id]
        message.hidden_until_us = now_us + delay_us
        if message.expires_us <= now_us:
            self.end(message, MessageState.NOT_FOUND, now_us)
        else:
            self._line_up(message, now_us)

    def _move_to_dead_letters(self, message: _Message, reason: str, dead_letters: MemoryLane, now_us: int) -> None:
        """Move it to the dead-letter queue, under the same id."""
        self.end(message, MessageState.DEAD, now_us)
        attributes = {
            **message.attributes,
            "headgate.dead.queue": self.settings.name,
            "headgate.dead.reason": reason,
            "headgate.dead.attempts": str(message.attempt),
        }
        dead = NewMessage(message.payload, None, attributes, message.group)
        dead_letters._add(dead, now_us, message.put_us, now_us, message_id=message.id)

    def end(self, message: _Message, state: MessageState, now_us: int) -> None:
        """It is not live any more; the next of its group may be ready."""
        del self.messages[message.id]
        self.in_flight.pop(message.id, None)
        self.suspects.discard(message.id)
        self.size_bytes -= len(message.payload)
        if state is not MessageState.NOT_FOUND:
            self.ended[message.id] = state
            if len(self.ended) > ENDED_MAX:
                del self.ended[next(iter(self.ended))]
        if len(self.ready) > 2 * len(self.messages) + STALE_MIN:
            self.ready = [entry for entry in self.ready if entry[1] in self.messages]
            heapq.heapify(self.ready)
        if message.group is not None:
            line = self.groups[message.group]
            at = bisect_left(line, (message.place, message.id))
            del line[at]
            if not line:
                del self.groups[message.group]
            elif at == 0:
                self._line_up(self.messages[line[0][1]], now_us)

    # ---- single messages, and all of them

    def cancel(self, message_id: str, now_us: int) -> Cancelled:
        """Only before it is due, by as much as the clocks of servers may differ: a program that relies on more would
        fail there."""
        message = self._cancellable(message_id, now_us)
        if message is not None:
            self.end(message, MessageState.CANCELLED, now_us)
        return Cancelled.CANCELLED if self.ended.get(message_id) is MessageState.CANCELLED else Cancelled.TOO_LATE

    def reschedule(self, message_id: str, due_us: int, now_us: int) -> tuple[Cancelled, str | None]:
        """Cancel it, and put it for another time, under another id. It keeps the time of its put."""
        self.check_due(due_us, now_us)
        message = self._cancellable(message_id, now_us)
        if message is None:
            return Cancelled.TOO_LATE, None
        self.end(message, MessageState.CANCELLED, now_us)
        again = NewMessage(message.payload, due_us, message.attributes, message.group)
        return Cancelled.CANCELLED, self._add(again, due_us, message.put_us, now_us)

    def _cancellable(self, message_id: str, now_us: int) -> _Message | None:
        message = self.messages.get(_checked_id(message_id))
        if message is None or message.place[0] - 2 * self.settings.skew_us <= now_us:
            return None
        return message

    def purge(self, before_us: int | None, now_us: int) -> int:
        """End all messages that were put by that time, or by now; returns that time."""
        before_us = max(now_us, self._last_put_us) if before_us is None else min(before_us, now_us)
        for message in list(self.messages.values()):
            if message.put_us <= before_us:
                self.end(message, MessageState.PURGED, now_us)
        return before_us

    # ---- reading

    def peek(self, limit: int, from_us: int | None, now_us: int) -> list[Peeked]:
        """Live messages in their order."""
        if not 1 <= limit <= PEEK_MAX:
            raise InvalidRequest("Peek shows 1 to 1,000 messages", limit=limit)
        live = (each for each in self.messages.values() if from_us is None or each.place[0] >= from_us)
        return [_peeked(each, now_us) for each in heapq.nsmallest(limit, live, key=lambda each: each.place)]

    def locate(self, message_id: str) -> MessageLocation:
        """Its state; its places are its due time, and the time of its next attempt."""
        message = self.messages.get(_checked_id(message_id))
        if message is None:
            return MessageLocation(message_id, self.ended.get(message_id, MessageState.NOT_FOUND), ())
        is_in_flight = message_id in self.in_flight
        times = [message.place[0]]
        if not is_in_flight and message.hidden_until_us != message.place[0]:
            times.append(message.hidden_until_us)
        return MessageLocation(
            message_id,
            MessageState.IN_FLIGHT if is_in_flight else MessageState.WAITING,
            tuple(f"due {at_us / SECOND_US:.3f}" for at_us in times),
            due_us=message.due_us,
            attempt=message.attempt,
            hidden_until_us=message.hidden_until_us,
        )

    def count(self, now_us: int, *, epoch: int = 0) -> Stats:
        """Each live message once; for the consumer of that epoch, if it is one."""
        visibilities = [_visibility(message, now_us) for message in self.messages.values()]
        due = [message.place[0] for message in self.messages.values() if message.place[0] <= now_us]
        ready, hidden = visibilities.count(Visibility.READY), visibilities.count(Visibility.IN_FLIGHT)
        lane = LaneStats(
            generation=1,
            shard=0,
            owner=", ".join(self.consumers.values()) or None,
            epoch=self._last_epoch,
            last_us=min(due, default=now_us),
            read_to_us=now_us,
            touched_us=now_us,
            oldest_due_us=min(due, default=None),
            is_mine=epoch in self.consumers,
            waiting=ready,
            in_flight=len(self.in_flight),
            hidden=hidden - len(self.in_flight),
        )
        return Stats(
            backlog=ready,
            in_flight=hidden,
            delayed=visibilities.count(Visibility.LATER),
            oldest_due_us=min(due, default=None),
            lanes=(lane,),
        )


def _visibility(message: _Message, now_us: int) -> Visibility:
    if message.place[0] > now_us:
        return Visibility.LATER
    return Visibility.IN_FLIGHT if message.hidden_until_us > now_us else Visibility.READY


def _peeked(message: _Message, now_us: int) -> Peeked:
    visibility = _visibility(message, now_us)
    return Peeked(
        message_id=message.id,
        payload=message.payload,
        attributes=message.attributes,
        group=message.group,
        due_us=message.due_us,
        put_us=message.put_us,
        attempt=message.attempt,
        standing=visibility,
        hidden_until_us=message.hidden_until_us if visibility is Visibility.IN_FLIGHT else 0,
    )


def _checked_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise InvalidRequest("Not a message id", remedy="pass the id as put returned it", id=text[:80])
    return text
