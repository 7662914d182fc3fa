"""Repair of a timeline queue: one pass over the owed work, under a lease, which the next pass can resume anywhere.
The prose and its argument are docs/internals/protocols/repair.md; the decisions are decide_repair.py.

It reads ids alone, and whole rows only where no reader has read them; late_rows.py restamps those. It survives its
end at any await (cursors are behind the durable results), an unavailable store (the scan is owed, others continue)
and a second repairer at the same time.

Invariants: a cursor moves over a part only when all finds of the scan are durable at their places; a lane's position
is read before its rows and before the record of passed rows; memory is bounded by slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import PASS_US, GenerationKeeper, PassEnd, Repaired
from headgate.engines.lanes.decide_lease import LaneState, LeaseTerm, ends_lease_term
from headgate.engines.lanes.lease import Lane
from headgate.engines.timeline.lanes.decide_retire import is_over
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.lanes.retire_lane import FreeLane, close_free_lane
from headgate.engines.timeline.lanes.timeline_lanes import lane_of, lanes_with
from headgate.engines.timeline.model.decide_repair import (
    CHECKS,
    EVERYTHING,
    LAST_CHECK,
    Stretch,
    cursors_moved,
    decide_next_stretch,
)
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, SECOND_US, RowPlace
from headgate.engines.timeline.model.repair_report import LateRowOutcome, RepairPassReport
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.late_rows import LateRows, PassedLane
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.passed_rows import PassedRows
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import start_task
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import Batch, Insert, Select, Slice, SliceBound
from headgate.store.model.types import Value
from headgate.store.store import STORE_ERRORS, NotEnoughReplicas

REPAIR_LANE = GenerationSettings(0, 1)
"""Its one lane is owned by the process that repairs the queue."""
LANES_AT_ONCE = 4
ROWS_AT_ONCE = 8
SLICE_ROWS = 1000
CLOSING_US = 60 * SECOND_US
"""The time limit for closing one lane in one pass: longer than the wait for rows that fall due soon."""
ALL_FAILURES_MAX = 2
"""After this many failed scans at ALL, a pass tries no more of them: the others would wait as long in vain."""
CURSOR_KEPT_S = 90 * 86_400
"""An evicted one starts again, with the parts that the index still names."""


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
                    self._lease_term, last=self._state.last, reach=self._state.reach, progress=self._turns
                )
            except STORE_ERRORS:
                continue
            self._is_over = ends_lease_term(touched)

    async def give_back(self) -> None:
        """Let the next one start at once."""
        await self._lane.release(self._lease_term, last=self._state.last, reach=self._state.reach)


class TooOldToCheck(Unavailable):
    """The last scan of some parts is too old: their passed rows may be unknown, and late rows in them were left."""


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
        self._late_rows = LateRows(host, settings, self._terms, sender)
        self._lanes_at_once = asyncio.Semaphore(LANES_AT_ONCE)
        self._rows_at_once = asyncio.Semaphore(ROWS_AT_ONCE)
        self._all_failures = 0
        self._written_us = 0
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
        await asyncio.gather(*(self._for_a_lane(self._check_lane(*name)) for name in names))
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

    async def _check_lane(self, generation: GenerationSettings, shard: int) -> None:
        settings = self._settings
        now_us = self._host.now_us()
        state = await lane_of(self._host, settings, (generation.number, shard)).read_state()
        if state is None:
            return
        lane = PassedLane(generation.number, shard, state.is_retired, state.purged_before_us)
        passed_below = EVERYTHING if state.is_retired else time_us_of(state.last) // settings.part_us
        cursors = await self._read_cursors(lane)
        strongest = await self._let_lapse(
            lane, cursors, min(self._terms.distinguishable_from_us(now_us), passed_below)
        )
        for check in reversed(CHECKS):
            due_below = self._terms.due_below(check, generation.sure_us, now_us)
            stretch = decide_next_stretch(
                check, cursors, due_below=due_below, passed_below=passed_below, strongest=strongest
            )
            if stretch is not None:
                await self._take_stretch(lane, stretch, cursors, generation.sure_us)
            strongest = max(strongest, cursors.get(check, 0))
        if state.is_retired and cursors.get(LAST_CHECK) == EVERYTHING:
            self._finished[generation.number] = self._finished.get(generation.number, 0) + 1

    async def _let_lapse(self, lane: PassedLane, cursors: dict[int, int], end: int) -> int:
        """Parts below `end` are too old to be scanned: their passed rows may be unknown, and every row would seem
        late. Such parts without all their scans are reported."""
        start = min(cursors.get(check, 0) for check in CHECKS)
        if start < end:
            async for part, _ in parts_from(self._host, self._settings, lane.generation, start):
                if part < end:
                    self.report.failed(TooOldToCheck(generation=lane.generation, shard=lane.shard))
                break
            await self._move_cursors(lane, LAST_CHECK, end, cursors)
        return end

    async def _take_stretch(
        self, lane: PassedLane, stretch: Stretch, cursors: dict[int, int], sure_us: int | None
    ) -> None:
        """A scan of parts of a lane, in order, as far as it can run; the rest is owed."""
        consistency = Consistency.ALL if stretch.check == LAST_CHECK else Consistency.LOCAL_QUORUM
        at_all = consistency is Consistency.ALL
        try:
            if at_all and self._all_failures >= ALL_FAILURES_MAX:
                raise _Stopped
            async for part, subs in parts_from(
                self._host, self._settings, lane.generation, stretch.start, consistency=consistency
            ):
                if part >= stretch.end:
                    break
                if not self._goes_on():
                    raise _Stopped
                await self._check_part(lane, part, subs, consistency)
                self.report.checked_part()
                await self._move_cursors(lane, stretch.check, part + 1, cursors)
            await self._move_cursors(lane, stretch.check, stretch.end, cursors)
            return
        except (_Stopped, _Waits):
            pass
        except Unavailable as error:
            self._all_failures += at_all
            if not (at_all and isinstance(error, NotEnoughReplicas)):
                self.report.failed(error)
        except HeadgateError as error:
            self.report.failed(error)
        await self._owe(lane, stretch, cursors, sure_us, waits_for_all=at_all and self._all_failures > 0)

    async def _owe(
        self,
        lane: PassedLane,
        stretch: Stretch,
        cursors: Mapping[int, int],
        sure_us: int | None,
        *,
        waits_for_all: bool,
    ) -> None:
        """Record since when the scan has been due at its first missing part, if there is one."""
        start = max(stretch.start, cursors.get(stretch.check, 0))
        async for part, _ in parts_from(self._host, self._settings, lane.generation, start):
            if part < stretch.end:
                due_us = self._terms.due_us(part, stretch.check, sure_us)
                self.report.owes(due_us, waits_for_all=waits_for_all)
            break

    # ---- cursors

    async def _read_cursors(self, lane: PassedLane) -> dict[int, int]:
        key: dict[str, Value] = {"queue": self._settings.queue, "generation": lane.generation}
        within = Slice("shard", SliceBound(lane.shard, True), SliceBound(lane.shard, True))
        rows = await self._host.store.read(
            Select(self._settings.tables.checks, key, ("look", "up_to"), within=within)
        )
        return {row.look: row.up_to for row in rows if row.up_to is not None}

    async def _move_cursors(self, lane: PassedLane, check: int, up_to: int, cursors: dict[int, int]) -> None:
        """This scan, and those before it, have run on all parts below one."""
        moved = cursors_moved(check, up_to, cursors)
        if not moved:
            return
        now_us = self._host.now_us()
        self._written_us = max(self._written_us + 1, now_us)
        ttl_s = min(CURSOR_KEPT_S, self._host.last_expiry_s - now_us // SECOND_US)
        inserts = [
            Insert(
                self._settings.tables.checks,
                {
                    "queue": self._settings.queue,
                    "generation": lane.generation,
                    "shard": lane.shard,
                    "look": each,
                    "up_to": to,
                    "looked_us": now_us,
                },
                timestamp_us=self._written_us,
                ttl_s=ttl_s,
            )
            for each, to in moved.items()
        ]
        await self._host.store.write(inserts[0] if len(inserts) == 1 else Batch(inserts))
        cursors.update(moved)

    # ---- parts

    async def _check_part(self, lane: PassedLane, part: int, subs: Sequence[int], consistency: Consistency) -> None:
        """All rows of a part that no reader has read; each is durable at its place when this returns."""
        passed: PassedRows | None = None
        waits = False
        for sub in sorted({0, *subs}):
            after: Any = None
            while True:
                rows = await self._read_ids(lane, part, sub, after, consistency)
                if not rows:
                    break
                if passed is None:
                    passed = await self._late_rows.read_passed(lane.generation, lane.shard, part)
                known = passed.among([row.due for row in rows])
                late = [row for row in rows if row.due not in known and row.cancelled is None]
                places = [RowPlace(lane.generation, sub, lane.shard, row.due) for row in late]
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
        return await self._host.store.read(
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
