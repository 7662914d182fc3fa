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

from headgate.engines.packed import PackedRun
from headgate.engines.timeline.decide_flush import (
    ROW_BYTES_MAX,
    ROW_MESSAGES_MAX,
    WRITE_ROWS_MAX,
    FlushTerms,
    Letter,
    RowPlan,
    generation_at,
    plan_grouped,
    plan_single,
    shard_in_turn,
    share_writes,
)
from headgate.engines.timeline.row_writes import id_alone, ids_of
from headgate.engines.timeline.sender import Sender
from headgate.engines.timeline.settings import ShardBy
from headgate.engines.timeline.stamped import StampedRow, run_of
from headgate.engines.timeline.waiting import GroupLines, PlainRoom, Segment, Turn, tell_failure, tell_ids
from headgate.errors import Bug, HeadgateError, Unavailable
from headgate.store.store import Unknown

FLIGHTS_MAX = 16
GROUP_FLIGHTS_MAX = 4
LETTERS_AT_ONCE_MAX = 4 * WRITE_ROWS_MAX
DOUBT_PAUSE_S = 0.05
"""A rejection because of a doubtful clock comes after a pause: otherwise a caller that retries at once would keep the
loop from the very check that ends the doubt."""


class Flushes:
    """The buffers in which messages of one producer wait, and the flights in which they leave."""

    def __init__(self, sender: Sender, *, after: Callable[[], None]) -> None:
        """`after` is called when a buffer may have become emptier."""
        self.sender = sender
        self.plain = PlainRoom()
        self.letters: deque[Letter] = deque()
        self.groups = GroupLines()
        self.letters_bytes = 0
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._flights: set[asyncio.Task[None]] = set()
        self._plain_flights = self._letter_flights = self._group_flights = 0
        self.looks_soon = False
        """Whether a check is already scheduled in this turn of the loop; a caller of a million puts reads this
        first."""

    @property
    def waiting_bytes(self) -> int:
        """The messages that were not sent yet."""
        return self.plain.size_bytes + self.letters_bytes

    def wait(self, letters: Sequence[Letter]) -> None:
        """Letters join their buffers; those of a group its line."""
        size = 0
        for letter in letters:
            size += letter.size
            if letter.group is None:
                self.letters.append(letter)
            else:
                self.groups.join(letter.group, letter)
        self.letters_bytes += size

    def soon(self) -> None:
        """Check in this turn of the loop, after all its puts, whether a flush may start."""
        if not self.looks_soon:
            self.looks_soon = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Start the flushes that may start now."""
        self.looks_soon = False
        try:
            if self.plain.payloads:
                self._flush_plain()
            if self.letters:
                self._flush_letters()
            if self.groups.anybody_free:
                self._flush_groups()
        except HeadgateError as error:
            self._fail_all(error)
        except Exception as error:  # a caller must get every error, since nobody else would
            self._fail_all(Bug("Flush failed", error=repr(error)))
            raise
        self._after()

    def _room_for_flights(self) -> bool:
        return self._plain_flights + self._letter_flights + self._group_flights < FLIGHTS_MAX

    def _flush_plain(self) -> None:
        plain = self.plain
        first = self._plain_flights == 0
        while plain.payloads and (first or plain.fills_a_row) and self._room_for_flights():
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
                tell_failure(segments, error)
                raise
            self._plain_flights += 1
            self._launch(self._fly_plain(row))

    def _flush_letters(self) -> None:
        if (self._letter_flights and len(self.letters) < WRITE_ROWS_MAX) or not self._room_for_flights():
            return
        now_us = self.sender.now_fresh_us()
        taken = [self.letters.popleft() for _ in range(min(len(self.letters), LETTERS_AT_ONCE_MAX))]
        self.letters_bytes -= sum([letter.size for letter in taken])
        letters = [letter for letter in taken if not letter.call.future.cancelled()]
        try:
            plans = plan_single(letters, self._terms(self.sender.ready_us(now_us)))
            rows = self._stamp_plans(plans.shared, now_us)
            for (generation, shard), alone in plans.alone.items():
                rows += self.sender.stamp_alone(generation, shard, alone, now_us=now_us)
        except HeadgateError as error:
            for letter in letters:
                letter.call.fail(error, letter.index)
            raise
        for share in share_writes([(row.partition, len(row.cell)) for row in rows]):
            self._letter_flights += 1
            self._launch(self._fly_letters([rows[place] for place in share]))

    def _flush_groups(self) -> None:
        while self.groups.anybody_free and self._group_flights < GROUP_FLIGHTS_MAX and self._room_for_flights():
            now_us = self.sender.now_fresh_us()
            letters = self.groups.take(4 * ROW_MESSAGES_MAX, 4 * ROW_BYTES_MAX)
            self.letters_bytes -= sum(letter.size for letter in letters)
            try:
                terms = self._terms(self.sender.ready_us(now_us))
                flights = [self._stamp_plans(plans, now_us) for plans in plan_grouped(letters, terms)]
            except HeadgateError as error:
                for letter in letters:
                    letter.call.fail(error, letter.index)
                self.groups.release({letter.group for letter in letters if letter.group is not None})
                raise
            for rows in flights:
                self._group_flights += 1
                self._launch(self._fly_groups(rows))

    def _terms(self, ready_us: int) -> FlushTerms:
        settings = self.sender.settings
        return FlushTerms(
            settings.generations, ready_us, self.sender.next_turn(), settings.shard_by is ShardBy.SECOND
        )

    def _stamp_plans(self, plans: Sequence[RowPlan], now_us: int) -> list[StampedRow]:
        rows = []
        for plan in plans:
            letters = plan.letters
            size = sum([letter.size for letter in letters])
            place = self.sender.place_row(plan.generation, plan.shard, plan.due_us, now_us=now_us, size_bytes=size)
            rows.append(self.sender.stamp(run_of(letters, now_us), place, now_us=now_us, owners=letters))
        return rows

    # ---- flights

    def _launch(self, flight: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(flight)
        self._flights.add(task)
        task.add_done_callback(self._flights.discard)

    async def _fly_plain(self, row: StampedRow) -> None:
        try:
            await self.sender.land(
                [row],
                acknowledged=_tell_row,
                given_up=lambda row, error: tell_failure(row.owners, error),
            )
        except BaseException as error:
            tell_failure(row.owners, _unforeseen(error))
            raise
        finally:
            self._plain_flights -= 1
            self.soon()

    async def _fly_letters(self, rows: Sequence[StampedRow], *, joint: bool = False) -> None:
        try:
            await self.sender.land(rows, acknowledged=_tell_letters, given_up=_fail_letters, joint=joint)
        except BaseException as error:
            for row in rows:
                _fail_letters(row, _unforeseen(error))
            raise
        finally:
            if not joint:
                self._letter_flights -= 1
                self.soon()

    async def _fly_groups(self, rows: Sequence[StampedRow]) -> None:
        try:
            await self._fly_letters(rows, joint=True)
        finally:
            self._group_flights -= 1
            self.groups.release({letter.group for row in rows for letter in row.owners})
            self.soon()

    # ---- the end

    def _fail_all(self, error: HeadgateError) -> None:
        """Nothing can be stamped now: all waiting callers get the error, and none of their messages was sent."""
        segments = self.plain.take_all_segments()
        others = (*self.letters, *self.groups.take_all())
        self.letters.clear()
        self.letters_bytes = 0
        pause_s = DOUBT_PAUSE_S if isinstance(error, Unavailable) else 0.0
        self._loop.call_later(pause_s, _tell_all, segments, others, error)

    async def drain(self) -> None:
        """Write pending messages, and wait for those in flight."""
        while self.plain.payloads or self.letters or self.groups.messages or self._flights:
            self.soon()
            if self._flights:
                await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)


def _tell_all(segments: Sequence[Segment], others: Sequence[Letter | Turn], error: HeadgateError) -> None:
    tell_failure(segments, error)
    for who in others:
        if isinstance(who, Letter):
            who.call.fail(error, who.index)
        elif not who.done():
            who.set_exception(error)


def _tell_row(rows: Sequence[StampedRow]) -> None:
    for row in rows:
        tell_ids(row.owners, ids_of(row.first, row.count))


def _tell_letters(rows: Sequence[StampedRow]) -> None:
    for row in rows:
        if row.count == 1 and row.named is None:
            at = row.partition
            letter: Letter = row.owners[0]
            letter.call.take_one(letter.index, id_alone(at.generation, at.shard, at.sub, row.due))
            continue
        for letter, message_id in zip(row.owners, ids_of(row.first, row.count), strict=True):
            letter.call.take_one(letter.index, message_id)


def _fail_letters(row: StampedRow, error: HeadgateError) -> None:
    for letter in row.owners:
        letter.call.fail(error, letter.index)


def _unforeseen(error: BaseException) -> HeadgateError:
    return Unknown("Flush aborted", error=repr(error))
