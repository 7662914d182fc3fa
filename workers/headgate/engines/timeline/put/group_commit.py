"""The times and the contents of a producer's flushes: group commit. The prose is "Put" in
docs/internals/protocols/timeline.md.

A flush starts as soon as nothing is in flight, else when the write in flight returns. More than one is in flight only
when more messages are pending than one row holds. So an idle queue answers after one write, and a busy one fills its
rows, with no time to tune. Puts in one turn of the loop are flushed together.

It decides nothing about rows: decide_flush.py decides which messages share one, sender.py sends it until its outcome
is known.

Invariants: a pending caller is notified once, with an id or an error; an unsent message of a cancelled caller is not
sent; of a group one flush is under way at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headgate.engines.packed_row import PackedRun
from headgate.engines.timeline.model.decide_flush import (
    ROW_BYTES_MAX,
    ROW_MESSAGES_MAX,
    WRITE_ROWS_MAX,
    FlushTerms,
    PendingMessage,
    RowPlan,
    decide_grouped_rows,
    decide_single_rows,
    generation_at,
    shard_in_turn,
    share_writes,
)
from headgate.engines.timeline.model.row import StampedRow, run_of
from headgate.engines.timeline.model.row_writes import id_alone, ids_of
from headgate.engines.timeline.model.settings import ShardBy
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.put.waiting import GroupLines, PlainBuffer, Segment, Turn, fail_segments, resolve_ids
from headgate.errors import Bug, HeadgateError, Unavailable
from headgate.store.store import OutcomeUnknown

WRITES_MAX = 16
GROUP_WRITES_MAX = 4
PENDING_AT_ONCE_MAX = 4 * WRITE_ROWS_MAX
DOUBT_PAUSE_S = 0.05
"""A rejection because of a doubtful clock comes after a pause: otherwise a caller that retries at once would keep the
loop from the very check that ends the doubt."""


class Flushes:
    """The buffers in which messages of one producer wait, and the flights in which they leave."""

    def __init__(self, sender: Sender, *, after: Callable[[], None]) -> None:
        """`after` is called when a buffer may have become emptier."""
        self.sender = sender
        self.plain = PlainBuffer()
        self.pending_messages: deque[PendingMessage] = deque()
        self.groups = GroupLines()
        self.pending_bytes = 0
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._plain_writes = self._pending_writes = self._group_writes = 0
        self.is_flush_due = False
        """Whether a check is already scheduled in this turn of the loop; a caller of a million puts reads this
        first."""

    @property
    def waiting_bytes(self) -> int:
        """The messages that were not sent yet."""
        return self.plain.size_bytes + self.pending_bytes

    def wait(self, pending_messages: Sequence[PendingMessage]) -> None:
        """Letters join their buffers; those of a group its line."""
        size = 0
        for pending in pending_messages:
            size += pending.size
            if pending.group is None:
                self.pending_messages.append(pending)
            else:
                self.groups.join(pending.group, pending)
        self.pending_bytes += size

    def soon(self) -> None:
        """Check in this turn of the loop, after all its puts, whether a flush may start."""
        if not self.is_flush_due:
            self.is_flush_due = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Start the flushes that may start now."""
        self.is_flush_due = False
        try:
            if self.plain.payloads:
                self._flush_plain()
            if self.pending_messages:
                self._flush_pending()
            if self.groups.anybody_free:
                self._flush_groups()
        except HeadgateError as error:
            self._fail_all(error)
        except Exception as error:  # a caller must get every error, since nobody else would
            self._fail_all(Bug("Flush failed", error=repr(error)))
            raise
        self._after()

    def _may_write_more(self) -> bool:
        return self._plain_writes + self._pending_writes + self._group_writes < WRITES_MAX

    def _flush_plain(self) -> None:
        plain = self.plain
        first = self._plain_writes == 0
        while plain.payloads and (first or plain.fills_a_row) and self._may_write_more():
            now_us = self.sender.now_fresh_us()
            ready_us = self.sender.ready_us(now_us)
            payloads, segments = plain.take_row()
            if not payloads:
                return
            try:
                count = len(payloads)
                terms = self._terms(ready_us)
                generation = generation_at(terms.generations, ready_us)
                shard = shard_in_turn(terms, generation.shards, ready_us)
                run = PackedRun(due_us=[now_us] * count, put_us=[now_us] * count, payload=payloads)
                size = sum(map(len, payloads))
                place = self.sender.place_row(generation.number, shard, ready_us, now_us=now_us, size_bytes=size)
                row = self.sender.stamp(run, place, now_us=now_us, owners=segments)
            except HeadgateError as error:
                fail_segments(segments, error)
                raise
            self._plain_writes += 1
            self._launch(self._fly_plain(row))

    def _flush_pending(self) -> None:
        if (self._pending_writes and len(self.pending_messages) < WRITE_ROWS_MAX) or not self._may_write_more():
            return
        now_us = self.sender.now_fresh_us()
        taken = [self.pending_messages.popleft() for _ in range(min(len(self.pending_messages), PENDING_AT_ONCE_MAX))]
        self.pending_bytes -= sum([pending.size for pending in taken])
        pending_messages = [pending for pending in taken if not pending.call.future.cancelled()]
        try:
            plans = decide_single_rows(pending_messages, self._terms(self.sender.ready_us(now_us)))
            rows = self._stamp_plans(plans.shared, now_us)
            for (generation, shard), alone in plans.alone.items():
                rows += self.sender.stamp_alone(generation, shard, alone, now_us=now_us)
        except HeadgateError as error:
            for pending in pending_messages:
                pending.call.fail(error, pending.index)
            raise
        for share in share_writes([(row.partition, len(row.cell)) for row in rows]):
            self._pending_writes += 1
            self._launch(self._write_pending([rows[place] for place in share]))

    def _flush_groups(self) -> None:
        while self.groups.anybody_free and self._group_writes < GROUP_WRITES_MAX and self._may_write_more():
            now_us = self.sender.now_fresh_us()
            pending_messages = self.groups.take(4 * ROW_MESSAGES_MAX, 4 * ROW_BYTES_MAX)
            self.pending_bytes -= sum(pending.size for pending in pending_messages)
            try:
                terms = self._terms(self.sender.ready_us(now_us))
                writes = [self._stamp_plans(plans, now_us) for plans in decide_grouped_rows(pending_messages, terms)]
            except HeadgateError as error:
                for pending in pending_messages:
                    pending.call.fail(error, pending.index)
                self.groups.release({pending.group for pending in pending_messages if pending.group is not None})
                raise
            for rows in writes:
                self._group_writes += 1
                self._launch(self._fly_groups(rows))

    def _terms(self, ready_us: int) -> FlushTerms:
        settings = self.sender.settings
        return FlushTerms(
            settings.generations, ready_us, self.sender.next_turn(), settings.shard_by is ShardBy.SECOND
        )

    def _stamp_plans(self, plans: Sequence[RowPlan], now_us: int) -> list[StampedRow]:
        rows = []
        for plan in plans:
            pending_messages = plan.pending_messages
            size = sum([pending.size for pending in pending_messages])
            place = self.sender.place_row(plan.generation, plan.shard, plan.due_us, now_us=now_us, size_bytes=size)
            rows.append(
                self.sender.stamp(run_of(pending_messages, now_us), place, now_us=now_us, owners=pending_messages)
            )
        return rows

    # ---- flights

    def _launch(self, write: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly_plain(self, row: StampedRow) -> None:
        try:
            await self.sender.land(
                [row],
                acknowledged=_resolve_row,
                given_up=lambda row, error: fail_segments(row.owners, error),
            )
        except BaseException as error:
            fail_segments(row.owners, _unforeseen(error))
            raise
        finally:
            self._plain_writes -= 1
            self.soon()

    async def _write_pending(self, rows: Sequence[StampedRow], *, joint: bool = False) -> None:
        try:
            await self.sender.land(rows, acknowledged=_resolve_pending, given_up=_fail_pending, joint=joint)
        except BaseException as error:
            for row in rows:
                _fail_pending(row, _unforeseen(error))
            raise
        finally:
            if not joint:
                self._pending_writes -= 1
                self.soon()

    async def _fly_groups(self, rows: Sequence[StampedRow]) -> None:
        try:
            await self._write_pending(rows, joint=True)
        finally:
            self._group_writes -= 1
            self.groups.release({pending.group for row in rows for pending in row.owners})
            self.soon()

    # ---- the end

    def _fail_all(self, error: HeadgateError) -> None:
        """Nothing can be stamped now: all waiting callers get the error, and none of their messages was sent."""
        segments = self.plain.take_all_segments()
        others = (*self.pending_messages, *self.groups.take_all())
        self.pending_messages.clear()
        self.pending_bytes = 0
        pause_s = DOUBT_PAUSE_S if isinstance(error, Unavailable) else 0.0
        self._loop.call_later(pause_s, _fail_all_waiting, segments, others, error)

    async def drain(self) -> None:
        """Write pending messages, and wait for those in flight."""
        while self.plain.payloads or self.pending_messages or self.groups.messages or self._tasks:
            self.soon()
            if self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)


def _fail_all_waiting(
    segments: Sequence[Segment], others: Sequence[PendingMessage | Turn], error: HeadgateError
) -> None:
    fail_segments(segments, error)
    for waiting in others:
        if isinstance(waiting, PendingMessage):
            waiting.call.fail(error, waiting.index)
        elif not waiting.done():
            waiting.set_exception(error)


def _resolve_row(rows: Sequence[StampedRow]) -> None:
    for row in rows:
        resolve_ids(row.owners, ids_of(row.first, row.count))


def _resolve_pending(rows: Sequence[StampedRow]) -> None:
    for row in rows:
        if row.count == 1 and row.named is None:
            at = row.partition
            pending: PendingMessage = row.owners[0]
            pending.call.take_one(pending.index, id_alone(at.generation, at.shard, at.sub, row.due))
            continue
        for pending, message_id in zip(row.owners, ids_of(row.first, row.count), strict=True):
            pending.call.take_one(pending.index, message_id)


def _fail_pending(row: StampedRow, error: HeadgateError) -> None:
    for pending in row.owners:
        pending.call.fail(error, pending.index)


def _unforeseen(error: BaseException) -> HeadgateError:
    return OutcomeUnknown("Flush aborted", error=repr(error))
