"""Closes one lane of a generation that is no longer written: moves the rows ahead, waits for the rest, retires it.
The prose is "Leaving a generation" in docs/internals/protocols/generations.md; the decisions are decide_retire.py.

Works next to the lane's dispatcher, which continues with the rows that fall due in this lane. It does not know how
lanes are found or taken. It survives its end at any await: a row's new place is stored in the row before its copy is
written, so the next owner finishes such rows, and moves the rest.

Invariants: the concurrent dispatcher never reads a moved row before it is finished; copies are written only where the
row was marked while the lease held; nothing is moved, and nothing retired, while a range is reserved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.engine_lanes import EngineLanes
from headgate.engines.lanes.ownership.lane_set import take_lane
from headgate.engines.timeline.lanes.decide_retire import (
    BATCH_ROWS_MAX,
    Ahead,
    EndingGeneration,
    batches,
    decide_row,
    lead_us,
    over_after_us,
)
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, ttl_s_kept
from headgate.engines.timeline.put.copies import Copy
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.lane_records import read_passed
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.passed_rows_log import Passing
from headgate.engines.timeline.read.source import TimelineSource, carry, copy_of
from headgate.errors import Bug, Unavailable
from headgate.store.model.positions import last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import BatchIf, UpdateIf, is_
from headgate.store.model.types import Value
from headgate.store.store import STORE_ERRORS

TURN_S = 1.0
PARTS_AT_ONCE = 32
PART_BYTES = 256 * 1024
"""Per part and read; with the above, the memory bound of one closing."""
COPIES_AT_ONCE = 100
MARK_WITHIN_S = 2.0


class FreeLane(Enum):
    """The result for a lane without an owner."""

    RETIRED = "retired"
    BUSY = "the lane has an owner, or still holds messages"


class Interrupted(Unavailable):
    """The lane was lost, or a range of it is reserved: the rows ahead stay as they are for now."""


@dataclass(slots=True)
class _Work:
    """The result of one step."""

    move: list[LaneRow]
    finish: list[LaneRow]


class Closing:
    """The closing of one lane, in one lease term."""

    def __init__(
        self,
        host: Host,
        sender: Sender,
        dispatcher: Dispatcher,
        source: TimelineSource,
        *,
        generation: EndingGeneration,
        shard: int,
    ) -> None:
        over_us = over_after_us(generation, sender.settings.skew_us)
        if over_us is None:
            raise Bug("A lane was closed before its writers were sure to have stopped", generation=generation.number)
        self.moved = self.finished = 0
        self._host = host
        self._sender = sender
        self._dispatcher = dispatcher
        self._source = source
        self._generation = generation.number
        self._shard = shard
        self._over = source.order_at(over_us)
        self._begun = False
        self._done_up_to = self._left_up_to = 0
        self._nothing_ahead = False
        self._copies_due_us: int | None = None
        self._batch_rows = BATCH_ROWS_MAX
        self._passing = Passing(host, sender.live, generation=generation.number, shard=shard, writer=host.uuid())

    async def run(self) -> None:
        """Close the lane, however often it takes, until it is retired or not ours any more."""
        while self._dispatcher.ended is None:
            try:
                if await self.turn():
                    return
            except STORE_ERRORS:
                pass
            await asyncio.sleep(TURN_S)

    async def turn(self) -> bool:
        """Go as far as it goes now; whether the lane is retired."""
        dispatcher = self._dispatcher
        if not self._nothing_ahead:
            if dispatcher.lease_term.reserved is not None or not dispatcher.has_settled(self._over):
                return False
            await self._move_ahead()
        if not dispatcher.has_settled(self._left_up_to):
            return False
        now_us = self._host.now_us()
        if self._copies_due_us is None:  # rows for immediate delivery are due before groups may start (attack C2)
            self._copies_due_us = self._sender.ready_us(now_us) + self._sender.settings.skew_us
        return now_us >= self._copies_due_us and await dispatcher.retire()

    def needs_consumers(self) -> bool:
        """Whether something has to be handed out before the lane can be retired, or a job has a range of it."""
        dispatcher = self._dispatcher
        return (
            dispatcher.lease_term.reserved is not None
            or dispatcher.delivery_state.waits_for_consumers()
            or self._left_up_to > dispatcher.position.last
        )

    # ---- the rows ahead

    async def _move_ahead(self) -> None:
        """Move or finish all rows ahead, except those that fall due soon: from now on the dispatcher reads no further
        than that. After an interruption it resumes."""
        settings = self._sender.settings
        if not self._begun:
            self._begin()
        waiting: list[int] = []
        first = time_us_of(position_at(self._done_up_to)) // settings.part_us
        async for part, _ in parts_from(self._host, settings, self._generation, first):
            waiting.append(part)
            while len(waiting) >= PARTS_AT_ONCE:
                waiting = await self._step(waiting)
        while waiting:
            waiting = await self._step(waiting)
        self._source.reading.end_beyond(self._left_up_to)  # by now the rows in between were moved
        self._nothing_ahead = True

    def _begin(self) -> None:
        settings, reading = self._sender.settings, self._source.reading
        ahead_us = lead_us(
            lag_us_max=self._sender.lag.most_us, lease_ttl_s=settings.lease.ttl_s, skew_us=settings.skew_us
        )
        reading.end_at(self._source.order_at(self._host.now_us() + ahead_us))
        self._done_up_to = self._left_up_to = self._dispatcher.position.last
        self._begun = True

    async def _step(self, parts: list[int]) -> list[int]:
        """A slice of some parts, in order; the parts that are still to be read then."""
        pieces = await asyncio.gather(*map(self._read, parts))
        cut = next((at for at, (_, _, full) in enumerate(pieces) if full), None)
        taken = pieces if cut is None else pieces[: cut + 1]
        rows = list(chain.from_iterable(rows for rows, _, _ in taken))
        if not await self._see_to(rows):
            return parts
        self._done_up_to = taken[-1][1]
        self._source.reading.moves_finished(self._done_up_to)
        return [] if cut is None else parts[cut:]

    async def _read(self, part: int) -> tuple[list[LaneRow], int, bool]:
        part_us = self._sender.settings.part_us
        before = position_order(last_at(part * part_us - 1))
        top = position_order(last_at((part + 1) * part_us))
        return await self._source.reading.read_part(part, max(before, self._done_up_to), top, PART_BYTES)

    async def _see_to(self, rows: Sequence[LaneRow]) -> bool:
        """Move or finish rows, in order; False where they have to be read again."""
        work = self._sorted(rows)
        gone = work.move + work.finish
        if work.finish:
            work.finish = await self._not_finished(work.finish)
        places = [self._fix_place(row) for row in work.move]
        if not await self._mark(work.move, places):
            self._batch_rows = 1
            return False
        self._batch_rows = BATCH_ROWS_MAX
        places += [MessagePlace.from_bytes(row.moved[0]) for row in work.finish]
        done = work.move + work.finish
        if done:
            await self._write(list(zip(places, map(copy_of, done), strict=True)))
            await self._passing.write(sorted(done, key=lambda row: row.order))
        self._source.forget(gone)
        self.moved += len(work.move)
        self.finished += len(work.finish)
        return True

    def _sorted(self, rows: Sequence[LaneRow]) -> _Work:
        """The action for each; moving resumes at the rows that a previous owner has moved."""
        work = _Work([], [])
        reading, read_to = self._source.reading, self._dispatcher.delivery_state.horizon
        for row in rows:
            has_gone = reading.has_gone(row)
            if has_gone:
                if read_to is not None and row.order <= read_to:
                    continue  # the dispatcher read it before it was marked, so the dispatcher owns it
                reading.end_at(row.order - 1)
            ahead = decide_row(row, reading.ends_at, has_gone=has_gone)
            if ahead is Ahead.MOVE:
                work.move.append(row)
            elif ahead is Ahead.FINISH:
                work.finish.append(row)
            elif ahead is Ahead.LEAVE:
                self._left_up_to = max(self._left_up_to, row.order)
        return work

    def _fix_place(self, row: LaneRow) -> MessagePlace:
        """The place of its due time now, as if it were put now."""
        copy = copy_of(row)
        due_us = time_us_of(row.content.place.due)
        place = self._sender.fix_place(due_us, group=copy.group, size_bytes=len(copy.payload))
        if place.row.generation <= self._generation:
            raise Interrupted("The next generation is not known yet", generation=self._generation)
        return place

    async def _mark(self, rows: Sequence[LaneRow], places: Sequence[MessagePlace]) -> bool:
        """Show in each row where it goes; False where a row showed another place already: then some are marked, and
        all have to be read again."""
        marks = list(zip(rows, places, strict=True))
        by_partition = batches(
            (((row.where, row.content.place.sub), (row, place)) for row, place in marks), self._batch_rows
        )
        async with self._dispatcher.marking:
            self._check()
            sending = [self._mark_partition(of_one) for of_one in by_partition]
            answers = await asyncio.gather(*sending, return_exceptions=True)
        failed = next((each for each in answers if isinstance(each, BaseException)), None)
        if failed is not None:
            raise failed
        self._check()
        return all(answers)

    def _check(self) -> None:
        if not self._dispatcher.may_mark():
            raise Interrupted(generation=self._generation, shard=self._shard)

    async def _mark_partition(self, of_one: Sequence[Sequence[tuple[LaneRow, MessagePlace]]]) -> bool:
        for batch in of_one:
            attempt = self._host.uuid()
            marks = [self._mark_statement(row.content.place, place, attempt) for row, place in batch]
            if not (await self._host.store.decide(BatchIf(marks), within_s=MARK_WITHIN_S)).applied:
                return False
        return True

    def _mark_statement(self, row: RowPlace, place: MessagePlace, attempt: UUID) -> UpdateIf:
        settings = self._sender.settings
        now_us = self._host.now_us()
        key: dict[str, Value] = {
            "queue": settings.queue,
            "generation": row.generation,
            "part": row.part(settings.part_us),
            "sub": row.sub,
            "shard": row.shard,
            "due": row.due,
        }
        table = settings.tables.later if row.lies_later else settings.tables.work
        ttl_s = ttl_s_kept(
            time_us_of(row.due),
            now_us=now_us,
            retention_us=settings.retention_us,
            last_expiry_s=self._host.last_expiry_s,
        )
        return UpdateIf(table, key, {"moved": place.to_bytes()}, is_("moved", None), attempt=attempt, ttl_s=ttl_s)

    async def _not_finished(self, rows: Sequence[LaneRow]) -> list[LaneRow]:
        """Of rows that show where they were moved to, those whose copy is not known to be written."""
        places = [row.content.place.due for row in rows]
        reads = [
            read_passed(self._host, self._sender.settings, self._generation, self._shard, part)
            for part in sorted({row.where for row in rows})
        ]
        passed = set().union(*(of_part.among(places) for of_part in await asyncio.gather(*reads)))
        return [row for row in rows if row.content.place.due not in passed]

    async def _write(self, copies: Sequence[tuple[MessagePlace, Copy]]) -> None:
        """Those of groups in one go, in their order; all others some at once."""
        grouped = [each for each in copies if each[1].group is not None]
        single = [each for each in copies if each[1].group is None]
        if grouped:
            await carry(self._sender, grouped)
        starts = range(0, len(single), COPIES_AT_ONCE)
        await asyncio.gather(*(carry(self._sender, single[start : start + COPIES_AT_ONCE]) for start in starts))


async def close_free_lane(
    lanes: EngineLanes[TimelineSource], name: LaneName, *, generation: EndingGeneration, host: Host, sender: Sender
) -> FreeLane:
    """Close a lane without an owner, if nothing of it is left to deliver; otherwise leave it to an owner that
    delivers.

    Its generation is over. This process delivers nothing.
    """
    state = await lanes.lane(name).read_state()
    if state is None or state.is_retired:
        return FreeLane.RETIRED if state is not None else FreeLane.BUSY
    if state.reserved is not None:
        return FreeLane.BUSY
    taken = await take_lane(lanes, name, state)
    if taken is None:
        return FreeLane.BUSY
    dispatcher, source = taken
    closing = Closing(host, sender, dispatcher, source, generation=generation, shard=name[1])
    try:
        while dispatcher.ended is None and not closing.needs_consumers():
            try:
                if await closing.turn():
                    return FreeLane.RETIRED
            except STORE_ERRORS:
                pass
            await asyncio.sleep(TURN_S)
    finally:
        await dispatcher.give_back()
    return FreeLane.BUSY
