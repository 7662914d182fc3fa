"""Repair of a timeline queue: one pass over the owed work, under a lease, which the next pass can resume anywhere.
The prose and its argument are docs/internals/protocols/repair.md; the decisions are decide_repair.py.

It reads ids alone, and whole rows only where no reader has read them; restamp_late_rows.py restamps those. It
survives its end at any await (cursors are behind the durable results), an unavailable store (the scan is owed, others
continue) and a second repairer at the same time.

Invariants: a cursor moves over a part only when all finds of the scan are durable at their places; a lane's position
is read before its rows and before the record of passed rows; memory is bounded by slices.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import PASS_US, GenerationKeeper, PassEnd, Repaired
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, ends_lease_term
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.lanes.decide_retire import is_over
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.lanes.retire_lane import FreeLane, close_free_lane
from headgate.engines.timeline.lanes.timeline_lanes import lane_of, lanes_with
from headgate.engines.timeline.model.decide_repair import (
    ASK_ALL_EVERY_US,
    CHECKS,
    EVERYTHING,
    LAST_CHECK,
    Stretch,
    decide_next_stretch,
)
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, SECOND_US, RowPlace
from headgate.engines.timeline.model.repair_report import LateRowOutcome, RepairPassReport
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.part_list import IndexedPart, indexed_from
from headgate.engines.timeline.read.passed_rows import PassedRows
from headgate.engines.timeline.read.restamp_late_rows import LateRows, PassedLane
from headgate.engines.timeline.read.unreadable_rows import UnreadableRows, read_unreadable
from headgate.engines.timeline.repair.cursors import Cursors, LaneCursors
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import start_task
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value
from headgate.store.store import STORE_ERRORS, NotEnoughReplicas

REPAIR_LANE = GenerationSettings(0, 1)
"""Its one lane is owned by the process that repairs the queue."""
LANES_AT_ONCE = 4
ROWS_AT_ONCE = 8
SLICE_ROWS = 1000
CLOSING_US = 60 * SECOND_US
"""The time limit for closing one lane in one pass: longer than the wait for rows that fall due soon."""
PARTS_MAX = 100_000
"""The number of indexed parts of a generation that a pass reads; the next pass resumes there."""


class Repairer:
    """Passes over one queue, by one process."""

    def __init__(
        self,
        host: Host,
        settings: TimelineSettings,
        sender: Sender,
        *,
        dead_letters: Sender | None = None,
        keeper: GenerationKeeper | None = None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._sender = sender
        self._dead_letters = dead_letters
        self._keeper = keeper

    async def is_idle(self) -> bool:
        """Whether there is nothing to do: the queue was never resharded, and its index names nothing from the lowest
        cursor on. Once per hour all replicas are asked for that."""
        host, settings = self._host, self._settings
        (newest, *others) = settings.generations
        if others or newest.sure_us is not None:
            return False
        now_us = host.now_us()
        cursors = await Cursors(host, settings, newest.number, newest.shards).read()
        if await self._names_something(newest, cursors.lowest(), Consistency.LOCAL_QUORUM):
            return False
        if all(is_asked(lane, now_us) for lane in cursors.lanes.values()):
            return True
        try:
            if await self._names_something(newest, cursors.lowest(), Consistency.ALL):
                return False
        except Unavailable:
            return True
        due_below = settings.check_terms.due_below(LAST_CHECK, None, now_us)
        await cursors.move_all(dict.fromkeys(cursors.lanes, due_below))
        return True

    async def _names_something(self, generation: GenerationSettings, part: int, consistency: Consistency) -> bool:
        async for _ in indexed_from(self._host, self._settings, generation.number, part, consistency=consistency):
            return True
        return False

    async def run(self, *, within_us: int = PASS_US) -> Repaired:
        """One pass, unless another process repairs. Raises where even that cannot be determined."""
        deadline_us = self._host.now_us() + within_us
        async with self._leading() as leader:
            if leader is None:
                return Repaired(PassEnd.BUSY)
            this = Pass(self._host, self._settings, self._sender, leader, deadline_us=deadline_us)
            return await this.run(dead_letters=self._dead_letters, keeper=self._keeper)

    @asynccontextmanager
    async def _leading(self) -> AsyncIterator[Leader | None]:
        settings = self._settings
        lane = lane_of(self._host, settings, (REPAIR_LANE.number, 0))
        state = await lane.read_state()
        if state is None:
            await make_lanes(self._host, settings, REPAIR_LANE)
            state = await lane.read_state()
        lease_term = None if state is None else await lane.take(state)
        if state is None or lease_term is None:
            yield None
            return
        leader = Leader(self._host, lane, state, lease_term)
        touching = start_task("lease of repair", leader.keep_touching())
        try:
            yield leader
        finally:
            touching.cancel()
        await leader.give_back()


class Leader:
    """One lease term of the repair lane. Nothing is unsafe without it: it saves two processes the same work."""

    def __init__(self, host: Host, lane: Lane, state: LaneState, lease_term: LeaseTerm) -> None:
        self._host = host
        self._lane = lane
        self._state = state
        self._lease_term = lease_term
        self._is_over = False
        self._turns = 0

    def holds(self) -> bool:
        """Whether the lease lasts."""
        return not self._is_over and self._lease_term.may_act(self._host.now_us())

    async def keep_touching(self) -> None:
        """Renew it until it is lost."""
        while not self._is_over:
            await asyncio.sleep(self._lane.terms.touch_us / SECOND_US)
            self._turns += 1
            try:
                touched, self._lease_term, _ = await self._lane.touch(
                    self._lease_term, last=self._state.last, read_to=self._state.read_to, progress=self._turns
                )
            except STORE_ERRORS:
                continue
            self._is_over = ends_lease_term(touched)

    async def give_back(self) -> None:
        """Let the next one start at once."""
        await self._lane.release(self._lease_term, last=self._state.last, read_to=self._state.read_to)


class TooOldToCheck(Unavailable):
    """The last scan of some parts is too old: their passed rows may be unknown, and late rows in them were left."""


@dataclass(frozen=True)
class _Known:
    """A generation's cursors, and then its index from the lowest of them on. The index is read after `now_us`, by
    which parts are due, and names all parts below one."""

    now_us: int
    cursors: Cursors
    parts: Sequence[IndexedPart]
    below: int

    @cached_property
    def _announced(self) -> Sequence[IndexedPart]:
        return [each for each in self.parts if each.is_announced]

    def work(self, check: int, start: int, end: int) -> Sequence[IndexedPart]:
        """The parts for a scan."""
        parts = self.parts if check == CHECKS[0] else self._announced
        first, last = (bisect_left(parts, part, key=lambda each: each.part) for part in (start, end))
        return parts[first:last]


def is_asked(cursors: LaneCursors, now_us: int) -> bool:
    """Whether all replicas were asked within the hour."""
    return now_us - cursors.asked_all_us < ASK_ALL_EVERY_US


class _Stopped(Exception):
    """The time of a pass is up, or its lease."""


class _Waits(Exception):
    """A part holds rows that cannot be restamped yet."""


class Pass:
    """One pass, and its knowledge. It needs no lease for safety: `leader` shows whether it is worth continuing."""

    def __init__(
        self, host: Host, settings: TimelineSettings, sender: Sender, leader: Leader, *, deadline_us: int
    ) -> None:
        self._host = host
        self._settings = settings
        self._sender = sender
        self._leader = leader
        self._deadline_us = deadline_us
        self._terms = settings.check_terms
        self._late_rows = LateRows(host, settings, sender)
        self._lanes_at_once = asyncio.Semaphore(LANES_AT_ONCE)
        self._rows_at_once = asyncio.Semaphore(ROWS_AT_ONCE)
        self._finished: dict[int, int] = {}
        self._is_stopped = False
        self.report = RepairPassReport()

    async def run(self, *, dead_letters: Sender | None, keeper: GenerationKeeper | None) -> Repaired:
        """All of it, in order."""
        if keeper is not None:
            try:
                await keeper.make_sure()
            except HeadgateError as error:
                self.report.failed(error)
        names = [(each, shard) for each in self._settings.generations for shard in range(each.shards)]
        self._host.rng.shuffle(names)  # so that a pass with a short time limit eventually reaches all of them
        await asyncio.gather(*(self._for_a_lane(self._close_lane(*name, dead_letters)) for name in names))
        known = {each.number: await self._read_known(each) for each in self._settings.generations}
        await asyncio.gather(*(self._for_a_lane(self._check_lane(*name, known[name[0].number])) for name in names))
        if keeper is not None:
            await self._leave_generations(keeper)
        return self.report.value(PassEnd.STOPPED if self._is_stopped else PassEnd.DONE)

    def _goes_on(self) -> bool:
        if not self._is_stopped:
            self._is_stopped = self._host.now_us() >= self._deadline_us or not self._leader.holds()
        return not self._is_stopped

    # ---- lanes

    async def _for_a_lane(self, work: Coroutine[Any, Any, None]) -> None:
        """Some lanes at a time; a failure of one does not affect the others."""
        async with self._lanes_at_once:
            try:
                await work
            except HeadgateError as error:
                self.report.failed(error)

    async def _close_lane(self, generation: GenerationSettings, shard: int, dead_letters: Sender | None) -> None:
        """A lane of an ended generation without an owner is closed, if nothing is left to deliver."""
        now_us = self._host.now_us()
        if not is_over(generation, now_us=now_us, skew_us=self._settings.skew_us) or not self._goes_on():
            return
        name = generation.number, shard
        state = await lane_of(self._host, self._settings, name).read_state()
        if state is None or state.is_retired or state.lock is not None:
            return
        lanes = lanes_with(self._host, self._sender, dead_letters)
        closing = close_free_lane(lanes, name, generation=generation, host=self._host, sender=self._sender)
        try:
            within_us = min(CLOSING_US, max(self._deadline_us - now_us, 0))
            if await asyncio.wait_for(closing, within_us / SECOND_US) is FreeLane.RETIRED:
                self.report.retired_lane()
        except TimeoutError:
            return  # the next pass resumes it, or its next owner

    async def _read_known(self, generation: GenerationSettings) -> _Known | None:
        """What is known of a generation. None where it cannot be read: its checks are owed."""
        now_us = self._host.now_us()
        try:
            cursors = await Cursors(self._host, self._settings, generation.number, generation.shards).read()
            parts: list[IndexedPart] = []
            async for each in indexed_from(self._host, self._settings, generation.number, cursors.lowest()):
                if len(parts) >= PARTS_MAX:
                    return _Known(now_us, cursors, parts, each.part)
                parts.append(each)
        except HeadgateError as error:
            self.report.failed(error)
            return None
        return _Known(now_us, cursors, parts, EVERYTHING)

    async def _check_lane(self, generation: GenerationSettings, shard: int, known: _Known | None) -> None:
        if known is None:
            return
        settings, now_us, cursors = self._settings, known.now_us, known.cursors.lanes[shard]
        due = {check: self._terms.due_below(check, generation.sure_us, now_us) for check in CHECKS}
        is_over = generation.sure_us is not None
        is_wanted = (known.work(check, cursors.up_to.get(check, 0), due[check]) for check in CHECKS)
        if not (is_over or not is_asked(cursors, now_us) or any(is_wanted)):
            return
        state = await lane_of(self._host, settings, (generation.number, shard)).read_state()
        if state is None:
            return
        lane = PassedLane(generation.number, shard, state.is_retired, state.purged_before_us)
        passed_below = EVERYTHING if state.is_retired else time_us_of(state.last) // settings.part_us
        lapsed = strongest = await self._let_lapse(
            lane, known, min(self._terms.distinguishable_from_us(now_us), passed_below)
        )
        for check in reversed(CHECKS):
            stretch = decide_next_stretch(
                check,
                cursors.up_to,
                due_below=min(due[check], known.below),
                passed_below=passed_below,
                strongest=lapsed if check == CHECKS[0] else strongest,
            )
            if stretch is not None:
                await self._take_stretch(lane, stretch, known, generation.sure_us)
            strongest = max(strongest, cursors.up_to.get(check, 0))
        if state.is_retired and cursors.up_to.get(LAST_CHECK) == EVERYTHING:
            self._finished[generation.number] = self._finished.get(generation.number, 0) + 1

    async def _let_lapse(self, lane: PassedLane, known: _Known, end: int) -> int:
        """Parts below `end` are too old to be scanned: their passed rows may be unknown, and every row would seem
        late. Such parts without all their scans are reported."""
        up_to = known.cursors.lanes[lane.shard].up_to
        if any(known.work(check, up_to.get(check, 0), end) for check in CHECKS):
            self.report.failed(TooOldToCheck(generation=lane.generation, shard=lane.shard))
            await known.cursors.move_all({lane.shard: end})
        return end

    async def _take_stretch(self, lane: PassedLane, stretch: Stretch, known: _Known, sure_us: int | None) -> None:
        """A scan of parts of a lane, in order, as far as it can run; the rest is owed. A cursor stays where nothing
        is named, except at the end of everything."""
        consistency = Consistency.ALL if stretch.check == LAST_CHECK else Consistency.LOCAL_QUORUM
        at_all = consistency is Consistency.ALL
        cursors = known.cursors.lanes[lane.shard]
        work = known.work(stretch.check, stretch.start, stretch.end)
        if at_all and not work and stretch.end != EVERYTHING and is_asked(cursors, known.now_us):
            return
        move = partial(known.cursors.move, check=stretch.check)
        try:
            if at_all:
                work = await self._read_announced(lane.generation, stretch)
            covered_below = 0 if stretch.check > CHECKS[0] else cursors.up_to.get(CHECKS[0] + 1, 0)
            for each in work:
                if each.is_announced and each.part < covered_below:
                    continue  # a scan of announced parts has read it
                if not self._goes_on():
                    raise _Stopped
                await self._check_part(lane, each, consistency)
                self.report.checked_part()
                await move({lane.shard: each.part + 1})
            if at_all or stretch.end == EVERYTHING:
                await move({lane.shard: stretch.end})
            return
        except (_Stopped, _Waits):
            waits_for_all = False
        except HeadgateError as error:
            waits_for_all = at_all and isinstance(error, Unavailable)
            if not (at_all and isinstance(error, NotEnoughReplicas)):
                self.report.failed(error)
        owed = known.work(stretch.check, max(stretch.start, cursors.up_to.get(stretch.check, 0)), stretch.end)
        if owed:
            self.report.owes(self._terms.due_us(owed[0].part, stretch.check, sure_us), waits_for_all=waits_for_all)

    async def _read_announced(self, generation: int, stretch: Stretch) -> Sequence[IndexedPart]:
        """The parts of the last scan, as all replicas name them."""
        announced = []
        async for each in indexed_from(
            self._host, self._settings, generation, stretch.start, consistency=Consistency.ALL
        ):
            if each.part >= stretch.end:
                break
            if each.is_announced:
                announced.append(each)
        return announced

    # ---- parts

    async def _check_part(self, lane: PassedLane, indexed: IndexedPart, consistency: Consistency) -> None:
        """All rows of a part that no reader has read; each is durable at its place when this returns."""
        part = indexed.part
        passed: PassedRows | None = None
        unreadable: UnreadableRows | None = None
        waits = False
        for sub in sorted({0, *indexed.subs}):
            after: Any = None
            while True:
                rows = await self._read_ids(lane, part, sub, after, consistency)
                if not rows:
                    break
                if passed is None:
                    passed = await self._late_rows.read_passed(lane.generation, lane.shard, part)
                known = passed.among([row.due for row in rows])
                late = [row.due for row in rows if row.due not in known and row.cancelled is None]
                if late and unreadable is None:
                    unreadable = await read_unreadable(self._host, self._settings, lane.generation, lane.shard)
                places = [
                    RowPlace(lane.generation, sub, lane.shard, due)
                    for due in late
                    if unreadable is None or due not in unreadable
                ]
                outcome = await self._all_of(lane, places, consistency)
                waits = waits or LateRowOutcome.WAITS in outcome
                if len(rows) < SLICE_ROWS:
                    break
                after = SliceBound(rows[-1].due, False)
        if waits:
            raise _Waits

    async def _read_ids(
        self, lane: PassedLane, part: int, sub: int, after: SliceBound | None, consistency: Consistency
    ) -> Sequence[Any]:
        """The rows of a part, without the messages."""
        tables = self._settings.tables
        key: dict[str, Value] = {
            "queue": self._settings.queue,
            "generation": lane.generation,
            "part": part,
            "sub": sub,
            "shard": lane.shard,
        }
        return await self._host.read(
            Select(
                tables.later if sub >= LATER_SUBS_FROM else tables.work,
                key,
                ("due", "cancelled"),
                within=None if after is None else Slice("due", after, None),
                limit=SLICE_ROWS,
                consistency=consistency,
            )
        )

    async def _all_of(
        self, lane: PassedLane, places: Sequence[RowPlace], consistency: Consistency
    ) -> Sequence[LateRowOutcome]:
        """Restamp late rows, some at a time; the first error once all have ended."""

        async def one(place: RowPlace) -> LateRowOutcome:
            async with self._rows_at_once:
                outcome = await self._late_rows.put_again(lane, place, consistency=consistency)
            self.report.outcomes[outcome] += 1
            return outcome

        ended = await asyncio.gather(*map(one, places), return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException):
                raise each
        return [each for each in ended if isinstance(each, LateRowOutcome)]

    # ---- generations

    async def _leave_generations(self, keeper: GenerationKeeper) -> None:
        """Those whose lanes are all retired and have had their last scan."""
        newest = max(each.number for each in self._settings.generations)
        for each in self._settings.generations:
            done = each.sure_us is not None and self._finished.get(each.number) == each.shards
            if done and each.number != newest:
                try:
                    await keeper.retire(each.number)
                    self.report.left.append(each.number)
                except HeadgateError as error:
                    self.report.failed(error)
