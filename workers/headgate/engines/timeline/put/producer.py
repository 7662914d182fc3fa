"""Puts messages into a timeline queue by group commit: checks them, buffers them, flushes the buffer, and answers
when they are durable. The prose is "Put" in docs/internals/protocols/timeline.md.

A flush starts as soon as nothing is in flight, else when the write in flight returns. More than one is in flight only
when more messages are pending than one row holds. So an idle queue answers after one write, and a busy one fills its
rows, with no time to tune. Puts in one turn of the loop are flushed together.

Invariants: a caller is answered once, with ids of durable messages or with an error; a message that cannot be kept is
rejected before anything is written; the buffers are bounded, and callers wait while they are full; of a group one
flush is under way at a time. A caller whose time is up learns whether its message was never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum

from headgate.engines.context import Host
from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import PackedRun, attribute_bytes
from headgate.engines.timeline.model.decide_place import generation_at
from headgate.engines.timeline.model.layout import id_alone, ids_of, ttl_s_of
from headgate.engines.timeline.model.row import (
    ROW_BYTES_MAX,
    ROW_MESSAGES_MAX,
    WRITE_ROWS_MAX,
    FlushTerms,
    PendingMessage,
    RowPlan,
    StampedRow,
    column,
    decide_grouped_rows,
    decide_single_rows,
    run_of,
    shard_in_turn,
    share_writes,
)
from headgate.engines.timeline.model.settings import ShardBy, TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.put.waiting_calls import (
    Call,
    EachCall,
    Ids,
    PutBuffer,
    Turn,
    fail_owners,
    mark_sent,
    not_sent,
    resolve_ids,
)
from headgate.errors import Bug, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.process.background_tasks import BackgroundTasks
from headgate.store.model.deadline import Deadline
from headgate.store.store import OutcomeUnknown

WRITES_MAX = 16
GROUP_WRITES_MAX = 4
PENDING_AT_ONCE_MAX = 4 * WRITE_ROWS_MAX
DOUBT_PAUSE_S = 0.05
"""A rejection because of a doubtful clock comes after a pause: otherwise a caller that retries at once would keep the
loop from the very check that ends the doubt."""


class _Kind(Enum):
    """The buffer that a write was taken from."""

    PLAIN = "plain"
    PENDING = "pending"
    GROUPS = "groups"


class Producer:
    """The putting side of one queue in one process."""

    def __init__(self, host: Host, settings: TimelineSettings, *, read_us: int, summary: Host | None = None) -> None:
        self.sender = Sender(host, settings, read_us=read_us, summary=summary)
        self._buffer = PutBuffer()
        self._plain = self._buffer.plain
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._writes = BackgroundTasks("timeline flush")
        self._in_flight = dict.fromkeys(_Kind, 0)
        self._is_flush_due = False
        """Whether a check is already scheduled in this turn of the loop."""
        self._has_deadlines = False
        """Whether a caller has ever had one. Most producers have none."""
        self._closed = False
        self._set_limits(settings)

    def _set_limits(self, settings: TimelineSettings) -> None:
        self._at_once = settings.delay_us == 0
        self._takes_alone = self._at_once and not self._closed
        self._bytes_max = settings.message_bytes_max

    def settings_changed(self, settings: TimelineSettings, *, read_us: int) -> None:
        """The result of a read of the catalogue, and its start; called at every read."""
        self.sender.settings_changed(settings, read_us=read_us)
        self._set_limits(settings)
        self._flush_soon()

    # ---- puts

    def put_alone(self, message: NewMessage) -> asyncio.Future[Ids] | None:
        """The hot path: a single message without a group or a once key, with its waiting caller. None if it is of
        another kind or cannot be kept, or if there is no capacity or no trusted time now; then nothing was done, and
        `put` reports the reason."""
        plain, buffer = self._plain, self._buffer
        if (
            message.group is not None
            or message.once is not None
            or not self._takes_alone
            or buffer.callers_waiting  # as `buffer.is_full`, without a call
            or plain.size_bytes + buffer.pending_bytes >= buffer.bytes_max
        ):
            return None
        payload, attributes = message.payload, b""
        size = len(payload)
        if message.attributes:
            attributes = attribute_bytes(message.attributes)
            size += len(attributes)
        due_us = message.due_us
        if size > self._bytes_max or (due_us is not None and not self._may_be_due(due_us)):
            return None
        future: asyncio.Future[Ids] = self._create_future()
        if due_us is None:
            plain.add(payload, attributes, size, future)
        else:
            buffer.add((PendingMessage(payload, due_us, attributes, None, future),))
        if not self._is_flush_due:
            self._flush_soon()
        return future

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> Ids:
        """The ids of these messages, durable by then. Once keys are `put/once.py`'s. When the deadline has passed:
        NotSent if none of them was sent, and then none will be; else OutcomeUnknown."""
        return await self._put(messages, Call, deadline)

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """As `put`, for messages without once keys: in the order of the messages each one's id, or its error.
        InvalidRequest if one cannot be kept; then nothing was written."""
        return await self._put(messages, EachCall, deadline)  # type: ignore[return-value]  # an EachCall has errors too

    async def _put(self, messages: Sequence[NewMessage], kind: type[Call], deadline: Deadline | None) -> Ids:
        if self._closed:
            raise OperationRefused("The producer is closed", queue=self.sender.settings.name)
        if self._buffer.is_full:
            await self._buffer.wait_for_space(deadline)
        if deadline is not None and deadline.is_over(self._loop.time()):
            raise not_sent()
        if not messages:
            return []
        self._has_deadlines = self._has_deadlines or deadline is not None
        call = kind(self._create_future(), len(messages), deadline)
        if self._at_once and not any(
            [message.due_us is not None or message.group is not None for message in messages]  # noqa: C419 - half the time
        ):
            self._add_plain(call, messages)
        else:
            self._buffer.add(self._pending_messages(messages, call))
        self._flush_soon()
        if deadline is None:
            return await call.future
        timer = self._loop.call_at(deadline.at_s, call.expire)
        try:
            return await call.future
        finally:
            timer.cancel()

    def _add_plain(self, call: Call, messages: Sequence[NewMessage]) -> None:
        payloads = [message.payload for message in messages]
        attributes: list[bytes] = []
        sizes = [len(payload) for payload in payloads]
        if any([message.attributes for message in messages]):  # noqa: C419 - half the time
            attributes = [attribute_bytes(message.attributes) for message in messages]
            sizes = [size + len(stored) for size, stored in zip(sizes, attributes, strict=True)]
        if max(sizes) > self._bytes_max:
            raise _too_large(max(sizes), self._bytes_max)
        self._plain.add_all(payloads, attributes, sum(sizes), call)

    def _pending_messages(self, messages: Sequence[NewMessage], call: Call | None) -> list[PendingMessage]:
        """Messages in their pending form, checked: one that cannot be kept is rejected before anything is written."""
        now_us = self.sender.host.now_us()
        delay_us = self.sender.settings.delay_us
        delayed_us = now_us + delay_us if delay_us else None
        pending_messages = []
        last_us = now_us
        for index, message in enumerate(messages):
            due_us = delayed_us if message.due_us is None else message.due_us
            if due_us is not None and due_us > last_us:
                last_us = due_us
            attributes = attribute_bytes(message.attributes) if message.attributes else b""
            group = None if message.group is None else message.group.encode()
            pending = PendingMessage(message.payload, due_us, attributes, group, (call, index, 1))
            if pending.size > self._bytes_max:
                raise _too_large(pending.size, self._bytes_max)
            pending_messages.append(pending)
        if last_us > now_us:
            self.check_keepable(last_us, now_us)
        return pending_messages

    def check(self, messages: Sequence[NewMessage]) -> None:
        """Refuse what could not be kept, before anything is written."""
        self._pending_messages(messages, None)

    def find_refusals(self, messages: Sequence[NewMessage]) -> dict[int, HeadgateError]:
        """The messages that cannot be kept, by their index, each with the reason."""
        refusals: dict[int, HeadgateError] = {}
        for index, message in enumerate(messages):
            try:
                self.check([message])
            except InvalidRequest as refusal:
                refusals[index] = refusal
        return refusals

    def check_keepable(self, due_us: int, now_us: int) -> None:
        """Reject a message that the store cannot keep until it is due and for the queue's retention."""
        host = self.sender.host
        ttl_s_of(
            due_us,
            now_us=now_us,
            retention_us=self.sender.settings.retention_us,
            last_expiry_s=host.last_expiry_s,
        )

    def _may_be_due(self, due_us: int) -> bool:
        try:
            now_us = self.sender.host.now_us()
            if due_us > now_us:
                self.check_keepable(due_us, now_us)
        except HeadgateError:
            return False
        return True

    # ---- turns of groups, for once keys

    async def take_turns(self, groups: Sequence[bytes]) -> None:
        """Wait until these groups have nothing under way, and hold them: in one order, so none waits forever."""
        held: list[bytes] = []
        try:
            for group in sorted(set(groups)):
                turn: Turn = self._loop.create_future()
                self._buffer.groups.join(group, turn)
                self._flush_soon()
                try:
                    await turn
                except asyncio.CancelledError:
                    if turn.done() and not turn.cancelled():
                        held.append(group)
                    raise
                held.append(group)
        except BaseException:
            self.give_turns_back(held)
            raise

    def give_turns_back(self, groups: Sequence[bytes]) -> None:
        """Let others continue with these groups."""
        self._buffer.groups.release(set(groups))
        self._flush_soon()

    # ---- flushes

    def _flush_soon(self) -> None:
        """Check in this turn of the loop, after all its puts, whether a flush may start."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Start the flushes that may start now."""
        self._is_flush_due = False
        buffer = self._buffer
        try:
            if buffer.plain.payloads:
                self._flush_plain()
            if buffer.pending:
                self._flush_pending()
            if buffer.groups.anybody_free:
                self._flush_groups()
        except HeadgateError as error:
            self._fail_all(error)
        except Exception as error:  # a caller must get every error, since nobody else would
            self._fail_all(Bug("Flush failed", error=repr(error)))
            raise
        buffer.release_callers()

    def _may_write_more(self) -> bool:
        return sum(self._in_flight.values()) < WRITES_MAX

    def _flush_plain(self) -> None:
        plain = self._plain
        first = not self._in_flight[_Kind.PLAIN]
        while plain.payloads and (first or plain.fills_a_row) and self._may_write_more():
            now_us = self.sender.now_fresh_us()
            ready_us = self.sender.ready_us(now_us)
            payloads, attributes, owners, size = plain.take_row()
            if not payloads:
                return
            try:
                count = len(payloads)
                terms = self._terms(ready_us)
                generation = generation_at(terms.generations, ready_us)
                shard = shard_in_turn(terms, generation.shards, ready_us)
                run = PackedRun([now_us] * count, [now_us] * count, payloads, attributes=column(attributes))
                place = self.sender.place_row(generation.number, shard, ready_us, now_us=now_us, size_bytes=size)
                row = self.sender.stamp(run, place, now_us=now_us, owners=owners)
            except HeadgateError as error:
                fail_owners(owners, error)
                raise
            self._launch([row], _Kind.PLAIN)

    def _flush_pending(self) -> None:
        if self._in_flight[_Kind.PENDING] and len(self._buffer.pending) < WRITE_ROWS_MAX:
            return
        if not self._may_write_more():
            return
        now_us = self.sender.now_fresh_us()
        messages = self._buffer.take_pending(PENDING_AT_ONCE_MAX)
        try:
            plans = decide_single_rows(messages, self._terms(self.sender.ready_us(now_us)))
            rows = self._stamp_plans(plans.shared, now_us)
            for (generation, shard), alone in plans.alone.items():
                rows += self.sender.stamp_alone(generation, shard, alone, now_us=now_us)
        except HeadgateError as error:
            fail_owners([pending.owner for pending in messages], error)
            raise
        for share in share_writes([(row.partition, len(row.cell)) for row in rows]):
            self._launch([rows[place] for place in share], _Kind.PENDING)

    def _flush_groups(self) -> None:
        groups = self._buffer.groups
        while groups.anybody_free and self._in_flight[_Kind.GROUPS] < GROUP_WRITES_MAX and self._may_write_more():
            now_us = self.sender.now_fresh_us()
            messages = self._buffer.take_groups(4 * ROW_MESSAGES_MAX, 4 * ROW_BYTES_MAX)
            try:
                plans = decide_grouped_rows(messages, self._terms(self.sender.ready_us(now_us)))
                writes = [(self._stamp_plans(of_shard, now_us), _groups_of(of_shard)) for of_shard in plans]
            except HeadgateError as error:
                fail_owners([pending.owner for pending in messages], error)
                groups.release({pending.group for pending in messages if pending.group is not None})
                raise
            for rows, of_rows in writes:
                self._launch(rows, _Kind.GROUPS, of_rows)

    def _terms(self, ready_us: int) -> FlushTerms:
        settings = self.sender.settings
        return FlushTerms(
            settings.generations, ready_us, self.sender.next_turn(), settings.shard_by is ShardBy.SECOND
        )

    def _stamp_plans(self, plans: Sequence[RowPlan], now_us: int) -> list[StampedRow]:
        rows = []
        for generation, shard, due_us, messages in plans:
            size = sum([pending.size for pending in messages])
            place = self.sender.place_row(generation, shard, due_us, now_us=now_us, size_bytes=size)
            owners = [pending.owner for pending in messages]
            rows.append(self.sender.stamp(run_of(messages, now_us), place, now_us=now_us, owners=owners))
        return rows

    # ---- writes in flight

    def _launch(self, rows: Sequence[StampedRow], kind: _Kind, groups: Iterable[bytes] = ()) -> None:
        self._in_flight[kind] += 1
        self._writes.start(self._write(rows, kind, groups, self._within_s(rows)))

    def _within_s(self, rows: Sequence[StampedRow]) -> float | None:
        """They are sent until the last of their callers has left; None: one has no deadline, so as long as the store
        usually tries."""
        if not self._has_deadlines:
            return None
        deadlines = [deadline for row in rows for deadline in mark_sent(row.owners)]
        ends_s = [deadline.at_s for deadline in deadlines if deadline is not None]
        if not ends_s or len(ends_s) < sum([len(row.owners) for row in rows]):
            return None
        return max(ends_s) - self._loop.time()

    async def _write(
        self, rows: Sequence[StampedRow], kind: _Kind, groups: Iterable[bytes], within_s: float | None
    ) -> None:
        try:
            joint = kind is _Kind.GROUPS
            async for acknowledged, given_up in self.sender.land(rows, within_s=within_s, joint=joint):
                for row in acknowledged:
                    resolve_ids(row.owners, _ids_of(row))
                for row, error in given_up:
                    fail_owners(row.owners, error)
        except BaseException as error:
            for row in rows:
                fail_owners(row.owners, OutcomeUnknown("Flush aborted", error=repr(error)))
            raise
        finally:
            self._in_flight[kind] -= 1
            self._buffer.groups.release(groups)
            self._flush_soon()

    # ---- the end

    def _fail_all(self, error: HeadgateError) -> None:
        """Nothing can be stamped now: all waiting callers get the error, and none of their messages was sent."""
        pause_s = DOUBT_PAUSE_S if isinstance(error, Unavailable) else 0.0
        self._loop.call_later(pause_s, fail_owners, self._buffer.take_all_owners(), error)

    async def close(self) -> None:
        """Take nothing more, write pending messages, and wait for those in flight."""
        self._closed, self._takes_alone = True, False
        while self._writes or not self._buffer.is_empty:
            self._flush_soon()
            await asyncio.sleep(0)
            await self._writes.wait()
        await self.sender.close()


def _groups_of(plans: Iterable[RowPlan]) -> set[bytes]:
    return {pending.group for plan in plans for pending in plan.messages if pending.group is not None}


def _ids_of(row: StampedRow) -> list[str]:
    if row.count == 1 and row.named is None:
        at = row.partition
        return [id_alone(at.generation, at.shard, at.sub, row.due)]
    return ids_of(row.first, row.count)


def _too_large(size: int, size_max: int) -> InvalidRequest:
    return InvalidRequest(
        "A message is too large",
        remedy="raise maxMessageSize, or store the payload elsewhere",
        size=size,
        size_max=size_max,
    )
