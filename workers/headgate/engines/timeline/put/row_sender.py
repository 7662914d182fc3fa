"""Stamps rows of a timeline queue, and sends them until the outcome of each is known: written, restamped, given up.
The prose is "Put" in docs/internals/protocols/timeline.md; the decisions are decide_row_ack.py.

It does not know the callers that wait for a row, nor the origin of rows: `put/producer.py` and `put/copies.py`
send through it. One sender for each process and queue, since restamps, the lag and the index are kept for all.

Invariants: a row is acknowledged only when its index row is durable too, before its due time less the clock
difference, and by valid knowledge of the generations; a restamped row has the ids and the name of its original; at
most `RESTAMPS_MAX` restamps are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import CatalogueStale
from headgate.engines.packed_row import PackedRun
from headgate.engines.summary.marks import Marks
from headgate.engines.timeline.model.decide_place import decide_shard, generation_at
from headgate.engines.timeline.model.layout import SECOND_US, MessagePlace, RowPlace
from headgate.engines.timeline.model.row import (
    PendingMessage,
    RowPartition,
    StampedRow,
    StampTerms,
    is_one_write,
    one_write,
    share_writes,
    stamped,
    stamped_alone,
)
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.put.decide_row_ack import (
    KnownGenerations,
    Lag,
    Sent,
    WriteAnswer,
    WriteOutcome,
    all_acknowledged,
    decide_write_outcome,
    may_restamp,
    with_tail,
)
from headgate.engines.timeline.put.part_records import PartRecords
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import start_task
from headgate.process.live import Live
from headgate.store.catalogue.decide_generation import knowledge
from headgate.store.model.statements import Write
from headgate.store.store import REFUSALS, OutcomeUnknown

RESTAMPS_MAX = 2
WINDOW_US_MIN = 1_000

Landed = tuple[Sequence[StampedRow], Sequence[tuple[StampedRow, HeadgateError]]]
"""Rows that are acknowledged, and rows that were given up, each with the reason."""


class Sender:
    """The sending side of one queue in one process."""

    def __init__(self, host: Host, settings: TimelineSettings, *, read_us: int, summary: Host | None = None) -> None:
        self.host = host
        self.live = Live(settings)
        """The settings in force, for everything that reads them at use."""
        self.known = KnownGenerations(settings.generations, knowledge(read_us))
        self.lag = Lag(settings.safety_lag_us, settings.skew_us, read_us)
        self.marks: Marks | None = None
        if summary is not None:
            kept = lambda: self.settings.retention_us  # noqa: E731 - the values in force by then
            self.marks = Marks(summary, settings.queue, part_us=settings.part_us, retention_us=kept)
        self.records = PartRecords(host, lambda: self.settings, self.marks)
        self.parts = self.records.parts
        self._turn = host.rng.randrange(1 << 16)
        self._ready_us = 0
        self._restamps = asyncio.Semaphore(RESTAMPS_MAX)

    @property
    def settings(self) -> TimelineSettings:
        """Those in force."""
        return self.live.now

    def settings_changed(self, settings: TimelineSettings, *, read_us: int) -> None:
        """The result of a read of the catalogue, and the start of that read. Called at every read: it keeps knowledge
        current. After a change, no earlier index row counts as written."""
        if settings != self.settings:
            self.live.set(settings)
            self.lag.set_terms(settings.safety_lag_us, settings.skew_us)
            self.records.forget_index()
        if read_us >= self.known.promise.sent_us:
            self.known = KnownGenerations(settings.generations, knowledge(read_us))

    # ---- stamping

    def next_turn(self) -> int:
        """The shard in turn."""
        self._turn += 1
        return self._turn

    def now_fresh_us(self) -> int:
        """The time, if anything may be stamped now."""
        now_us = self.host.now_us()
        if not self.known.holds(now_us):
            raise CatalogueStale(queue=self.settings.name, remedy="try again; check that the catalogue is readable")
        return now_us

    def ready_us(self, now_us: int, extra_us: int = 0) -> int:
        """The due time of immediate messages: never before an earlier stamp."""
        self._ready_us = max(self._ready_us, now_us + self.lag.in_use_us(now_us) + extra_us)
        return self._ready_us

    def place_row(self, generation: int, shard: int, due_us: int, *, now_us: int, size_bytes: int) -> RowPlace:
        """A place of its own for a row."""
        later = due_us - now_us > self.settings.retention_us
        part = due_us // self.settings.part_us
        sub = self.parts.sub_for(generation, part, later=later, size_bytes=size_bytes)
        return RowPlace(generation, sub, shard, self.host.positions.at(due_us))

    def stamp(
        self,
        run: PackedRun,
        place: RowPlace,
        *,
        now_us: int,
        timestamp_us: int | None = None,
        owners: Sequence[Any] = (),
        first: RowPlace | None = None,
    ) -> StampedRow:
        """A row at its place, ready to be sent."""
        stamp_us = now_us if timestamp_us is None else timestamp_us
        return stamped(self._stamp_terms(now_us), place, run, timestamp_us=stamp_us, owners=owners, named=first)

    def stamp_alone(
        self, generation: int, shard: int, pending_messages: Sequence[tuple[PendingMessage, int]], *, now_us: int
    ) -> list[StampedRow]:
        """Delayed messages, each with its time, in rows of their own."""
        settings = self.settings
        by_part: dict[tuple[int, bool], list[tuple[PendingMessage, int]]] = {}
        for each in pending_messages:
            due_us = each[1]
            by_part.setdefault((due_us // settings.part_us, due_us - now_us > settings.retention_us), []).append(each)
        terms, at = self._stamp_terms(now_us), self.host.positions.at
        rows: list[StampedRow] = []
        for (part, later), of_part in by_part.items():
            size = sum([pending.size for pending, _ in of_part])
            sub = self.parts.sub_for_all(generation, part, later=later, rows=len(of_part), size_bytes=size)
            if sub is not None:
                rows += stamped_alone(terms, RowPartition(generation, part, sub, shard), of_part, at)
                continue
            for each in of_part:
                sub = self.parts.sub_for(generation, part, later=later, size_bytes=each[0].size)
                rows += stamped_alone(terms, RowPartition(generation, part, sub, shard), [each], at)
        return rows

    def _stamp_terms(self, now_us: int) -> StampTerms:
        return StampTerms(self.settings, now_us, self.host.last_expiry_s, self.known)

    def _restamped(self, row: StampedRow, ready_us: int, now_us: int) -> StampedRow:
        first = row.first
        run = row.run
        given = run.message_id or [b""] * len(run)
        ids = [message_id or MessagePlace(first, index).to_bytes() for index, message_id in enumerate(given)]
        run = replace(run, message_id=ids, replaces=MessagePlace(first, 0).to_bytes())
        at = row.partition
        place = self.place_row(at.generation, at.shard, ready_us, now_us=now_us, size_bytes=len(row.cell))
        return self.stamp(run, place, now_us=now_us, owners=row.owners, first=first)

    # ---- sending

    async def land(
        self,
        rows: Sequence[StampedRow],
        *,
        within_s: float | None = None,
        joint: bool = False,
        late_is_repaired: bool = False,
        counted: bool = True,
    ) -> AsyncGenerator[Landed]:
        """Send rows until the outcome of each was returned, once. `joint`: they hold groups, and are acknowledged
        together. They are sent for `within_s`, by default as long as the store usually tries.

        `late_is_repaired`: a row that can have no restamped row any more is left to repair, which finds it once it is
        durable.
        """
        within_s = self.host.store.within_s if within_s is None else within_s
        give_up_us = self.host.now_us() + round(within_s * SECOND_US)
        pending_write = PendingWrite(list(rows), give_up_us, joint, late_is_repaired)
        pending_write.begin(self.host.now_us(), self.settings.skew_us)
        while pending_write.goes_on:
            if WriteOutcome.RESTAMP in pending_write.fates:
                async with self._restamps:
                    self._restamp(pending_write)
                    await self._round(pending_write)
            else:
                await self._round(pending_write)
            acknowledged, given_up = pending_write.take_ended()
            if acknowledged and counted:
                self.records.add(acknowledged)
            if acknowledged or given_up:
                yield acknowledged, given_up

    def _restamp(self, pending_write: PendingWrite) -> None:
        try:
            now_us = self.now_fresh_us()
        except HeadgateError as error:
            pending_write.give_up_all(error)
            return
        sent_us = [row.sent_us for row, fate in pending_write.pairs() if fate is WriteOutcome.RESTAMP and row.tried]
        if sent_us:  # a place passed before its try is no evidence about this producer's writes
            self.lag.was_too_short(max(sent_us), now_us)
        ready_us = self.ready_us(now_us)
        if pending_write.joint:
            pending_write.fates = with_tail(
                [_sent_of(row) for row in pending_write.rows], pending_write.fates, ready_us
            )
        for place, (row, fate) in enumerate(pending_write.pairs()):
            if fate is not WriteOutcome.RESTAMP:
                continue
            if may_restamp(row.partition.generation, ready_us, current=self.known, now_us=now_us):
                restamped = self._restamped(row, ready_us, now_us)
                restamped.in_doubt = row.in_doubt
                pending_write.rows[place] = restamped
                pending_write.fates[place] = WriteOutcome.AGAIN
            elif pending_write.late_is_repaired:
                row.late_is_repaired = True
                pending_write.fates[place] = WriteOutcome.AGAIN
            else:
                pending_write.give_up(
                    place, OutcomeUnknown("The generation of a late write has ended", queue=self.settings.name)
                )

    async def _round(self, pending_write: PendingWrite) -> None:
        """Send the pending rows, collect the answers, and judge them."""
        places = [place for place, fate in enumerate(pending_write.fates) if fate is WriteOutcome.AGAIN]
        if not places:
            return
        rows = [pending_write.rows[place] for place in places]
        try:
            now_us = self.host.now_us()
            for row in rows:
                row.sent_us = now_us
                row.tried = True
            answers = await self._send(rows, self._window_s(pending_write, rows, now_us), now_us)
            answered_us = self.host.now_us()
        except HeadgateError as error:  # the clock: nothing may be acknowledged now (rule R1)
            for row in rows:
                row.in_doubt = True
            pending_write.give_up_all(error)
            return
        self.lag.write_took(answered_us - now_us, answered_us)
        if not any(answers) and all_acknowledged(
            [row.partition.generation for row in rows],
            [row.due_us for row in rows],
            [row.known for row in rows],
            sent_us=now_us,
            now_us=answered_us,
            skew_us=self.settings.skew_us,
        ):
            for place in places:
                pending_write.fates[place] = WriteOutcome.ACKNOWLEDGED
            return
        for place, row, answer in zip(places, rows, answers, strict=True):
            self._judge(pending_write, place, row, answer, answered_us)

    def _judge(
        self, pending_write: PendingWrite, place: int, row: StampedRow, answer: HeadgateError | None, now_us: int
    ) -> None:
        if isinstance(answer, REFUSALS):
            pending_write.give_up(place, answer)
            return
        if isinstance(answer, Unavailable) and not isinstance(answer, OutcomeUnknown):
            ended = WriteAnswer.NOTHING
        else:
            ended = WriteAnswer.DURABLE if answer is None else WriteAnswer.UNKNOWN
            row.in_doubt = True
        if ended is WriteAnswer.DURABLE and row.late_is_repaired:
            pending_write.fates[place] = WriteOutcome.ACKNOWLEDGED
            return
        fate = decide_write_outcome(
            _sent_of(row),
            ended,
            current=self.known,
            now_us=now_us,
            give_up_us=pending_write.give_up_us,
            skew_us=self.settings.skew_us,
        )
        if row.late_is_repaired and fate is WriteOutcome.RESTAMP:
            fate = WriteOutcome.AGAIN
        if pending_write.late_is_repaired and fate is WriteOutcome.GIVEN_UP and ended is WriteAnswer.DURABLE:
            fate, row.late_is_repaired = WriteOutcome.ACKNOWLEDGED, True
        pending_write.fates[place] = fate
        if fate is WriteOutcome.GIVEN_UP:
            pending_write.give_up(place, answer or OutcomeUnknown("Acknowledged too late", queue=self.settings.name))

    def _window_s(self, pending_write: PendingWrite, rows: Sequence[StampedRow], now_us: int) -> float:
        """How long to wait for the answers: until the first of the rows cannot be acknowledged any more."""
        dues_us = [row.due_us for row in rows if not row.late_is_repaired]
        end_us = (
            min(pending_write.give_up_us, min(dues_us) - self.settings.skew_us)
            if dues_us
            else pending_write.give_up_us
        )
        return max(end_us - now_us, WINDOW_US_MIN) / SECOND_US

    async def _send(self, rows: Sequence[StampedRow], within_s: float, now_us: int) -> list[HeadgateError | None]:
        """Send rows and their missing index rows; returns the outcome of each row."""
        partitions = list(dict.fromkeys([row.partition for row in rows]))
        indexing = self.records.index(partitions, now_us)
        if len(partitions) == 1 and not indexing and is_one_write(rows):
            return [await self._write(one_write(rows), within_s)] * len(rows)
        shares = share_writes([(row.partition, len(row.cell)) for row in rows])
        writes = [one_write([rows[at] for at in share]) for share in shares]
        writing = [start_task("timeline write", self._write(write, within_s)) for write in writes]
        under_way: list[asyncio.Future[Any]] = [*writing, *indexing]
        await asyncio.wait(under_way, timeout=within_s + 0.001)
        index_fails = any(not (task.done() and task.result()) for task in indexing)
        answers: list[HeadgateError | None] = [None] * len(rows)
        for share, task in zip(shares, writing, strict=True):
            answer = task.result() if task.done() else OutcomeUnknown("A write was not answered in time")
            if answer is None and index_fails:
                answer = OutcomeUnknown("The write of an index row was not answered in time")
            for at in share:
                answers[at] = answer
        return answers

    async def _write(self, write: Write, within_s: float) -> HeadgateError | None:
        try:
            await self.host.store.write(write, within_s=within_s)
        except (Unavailable, *REFUSALS) as error:
            return error
        return None

    # ---- copies

    def fix_place(
        self,
        due_us: int,
        *,
        group: bytes | None = None,
        extra_us: int = 0,
        size_bytes: int = 0,
        now_us: int | None = None,
        turn: int | None = None,
    ) -> MessagePlace:
        """A place for a copy, before it is written. `extra_us` is the time needed in between. A caller that places
        many reads the clock once, and may place them together, at one shard's `turn`."""
        if now_us is None:
            now_us = self.now_fresh_us()
        lag_us = self.lag.in_use_us(now_us) + extra_us
        ready_us = now_us + lag_us if group is None else self.ready_us(now_us, extra_us)
        due_us = max(due_us, ready_us)
        generation = generation_at(self.settings.generations, due_us)
        shards = generation.shards
        if group is not None:
            shard = decide_shard(group, shards)
        else:
            shard = (self.next_turn() if turn is None else turn) % shards
        return MessagePlace(self.place_row(generation.number, shard, due_us, now_us=now_us, size_bytes=size_bytes), 0)

    async def close(self) -> None:
        """Write the owed counts; the callers wait for the sent rows."""
        await self.records.close()
        if self.marks is not None:
            await self.marks.close()


def _sent_of(row: StampedRow) -> Sent:
    return Sent(row.partition.generation, row.due_us, row.sent_us, row.known)


class PendingWrite:
    """Some rows, from their first send until the outcome of the last was reported."""

    def __init__(
        self,
        rows: list[StampedRow],
        give_up_us: int,
        joint: bool,
        late_is_repaired: bool,
    ) -> None:
        self.rows = rows
        self.give_up_us = give_up_us
        self.joint = joint
        self.late_is_repaired = late_is_repaired
        self.fates = [WriteOutcome.AGAIN] * len(rows)
        self._reported = [False] * len(rows)
        self._given_up: list[tuple[StampedRow, HeadgateError]] = []

    def begin(self, now_us: int, skew_us: int) -> None:
        """A place that may have been passed already is not written: its restamped row is."""
        if min([row.due_us for row in self.rows]) - skew_us > now_us:
            return
        for place, row in enumerate(self.rows):
            row.sent_us = min(row.sent_us, now_us)
            if not _sent_of(row).promise(skew_us).still_holds(now_us):
                self.fates[place] = WriteOutcome.RESTAMP

    @property
    def goes_on(self) -> bool:
        """Whether the outcome of a row is open."""
        return WriteOutcome.AGAIN in self.fates or WriteOutcome.RESTAMP in self.fates

    def pairs(self) -> list[tuple[StampedRow, WriteOutcome]]:
        """Each row and its current outcome."""
        return list(zip(self.rows, self.fates, strict=True))

    def take_ended(self) -> Landed:
        """The outcomes that are new: acknowledged rows each at once, or all when the last is."""
        given_up, self._given_up = self._given_up, []
        acknowledged: list[StampedRow] = []
        if not (self.joint and self.goes_on):
            for place, fate in enumerate(self.fates):
                if fate is WriteOutcome.ACKNOWLEDGED and not self._reported[place]:
                    self._reported[place] = True
                    acknowledged.append(self.rows[place])
        return acknowledged, given_up

    def give_up(self, place: int, error: HeadgateError) -> None:
        """The outcome of this row will not be known; a row that was never in doubt keeps its own error."""
        row = self.rows[place]
        self.fates[place] = WriteOutcome.GIVEN_UP
        if not self._reported[place]:
            self._reported[place] = True
            if row.in_doubt and not isinstance(error, OutcomeUnknown):
                error = OutcomeUnknown("The message may have been written, or may still be", last=error.message)
            self._given_up.append((row, error))

    def give_up_all(self, error: HeadgateError) -> None:
        """None of those that are still open."""
        for place, fate in enumerate(self.fates):
            if fate in (WriteOutcome.AGAIN, WriteOutcome.RESTAMP):
                self.give_up(place, error)
