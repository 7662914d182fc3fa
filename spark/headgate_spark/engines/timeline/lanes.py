"""Lanes of timeline queues for bulk jobs: `contract.py` on `headgate.engines.lanes.reservation_by_job`.

A lane is named `generation/shard`. A job reads a lane from its position on, one range after the other. The range is
inspected first, so that a reservation is short, and then reserved. `ReservedRange` determines the job's part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any
from uuid import UUID

from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.lane_name import LaneName, format_lane, parse_lane
from headgate.engines.lanes.log.settle_log_format import Facts, RowFacts
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.reservation_by_job import (
    GrantedReservation,
    RangeReserver,
    ReservedRange,
    ReservedRow,
)
from headgate.engines.lanes.source import RangeReservation
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.read.reading import RowContent
from headgate.engines.timeline.read.source import TimelineSource, unpack_reservation
from headgate.engines.timeline.repair.skip_settled import pass_over_settled
from headgate.errors import HeadgateError
from headgate.expiry import Promise
from headgate.process.live import Live
from headgate.store.model.positions import first_at, position_order, time_us_of
from headgate_spark.engines.contract import (
    Budget,
    Pick,
    Preview,
    RangePlan,
)
from headgate_spark.engines.timeline.scan import engine_of

SLICE_BYTES = 1024 * 1024
OWNED = Budget(messages_max=20_000, bytes_max=3 * 1024 * 1024, rows_max=4_000)
"""The maximum of one reservation of a lane that has an owner: reserved rows count as read ahead for it, and as
holes."""


class TimelineLending:
    """The lanes of one queue, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID) -> None:
        self._queue = queue
        self._job = job

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[TimelineLane]:
        """Of all generations those that were not left."""
        first = 0 if from_us is None else position_order(first_at(from_us))
        last = position_order(first_at(until_us)) - 1
        lanes = []
        for generation in engine_of(self._queue).settings.generations:
            for shard in range(generation.shards):
                lane = TimelineLane(self._queue, self._job, (generation.number, shard))
                state = await lane.lane.read_state()
                if state is not None and not state.is_retired:
                    lane.cursor = max(first - 1, lane.source().order_of(state.last))
                    lane.until = last
                    lanes.append(lane)
        return lanes

    async def lane(self, name: str) -> TimelineLane:
        return TimelineLane(self._queue, self._job, parse_lane(name))

    async def settle_again(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Reserve the span of the picks, and settle their live messages."""
        lane = await self.lane(plan.lane)
        orders = [_order_of(plan.picks[index].key) for index in masks]
        plan_again = await lane.reserve(Preview(min(orders), max(orders), 0), deadline_us)
        live = {pick.key: pick.mask for pick in plan_again.picks}
        left = {at: mask & live.get(plan.picks[at].key, 0) for at, mask in masks.items()}
        masks_left = {at: mask for at, mask in left.items() if mask}
        how = await lane.settle(replace(plan_again, picks=plan.picks), masks_left)
        await lane.give_back(plan_again)
        return how


class TimelineLane:
    """One lane, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID, lane: LaneName) -> None:
        self.name = format_lane(lane)
        self.cursor = 0
        """This run has inspected everything up to this order."""
        self.until = 0
        self._engine = engine_of(queue)
        self._host = self._engine.host
        self._job = job
        self._at = lane
        self.lane: Lane = lane_of(self._host, self._engine.settings, lane)

    def source(self) -> TimelineSource:
        """A source with a writer of its own: two that settle never share one."""
        generation, shard = self._at
        lease_term = LeaseTerm(self._host.uuid(), 0, Promise.until(0, sent_us=0), None, 0, 0)
        sender = self._engine.producer.sender
        return TimelineSource(
            self._host, sender, Live(None), generation=generation, shard=shard, lease_term=lease_term
        )

    async def preview(self, budget: Budget) -> Preview | None:
        """The next range, about as large as the budget allows; less of a lane with an owner."""
        state = await self.lane.read_state()
        if state is None or state.is_retired or self.cursor >= self.until:
            return None
        if state.lock is not None:
            budget = Budget(*map(min, astuple(budget), astuple(OWNED)))
        source = self.source()
        source.purge(state.purged_before_us)
        reached, messages = await self._reach(source, budget)
        preview = Preview(self.cursor + 1, reached, messages)
        self.cursor = reached if messages else self.until
        return preview if messages else None

    async def _reach(self, source: TimelineSource, budget: Budget) -> tuple[int, int]:
        """The end of the budget, to the row, and the approximate number of messages up to it; skipped rows without
        live messages cost none of it. The record lists the messages of a row that were reserved and settled
        before."""
        reached, messages, bytes_, rows = self.cursor, 0, 0, 0
        facts: dict[Any, Facts] = {}
        while reached < self.until:
            piece = await source.read(reached, bytes_max=SLICE_BYTES)
            for row in piece.rows:
                if row.order > self.until:
                    return self.until, messages
                if row.where not in facts:
                    facts[row.where] = await source.known(row.order, row.order)
                live = _live(row, facts[row.where].get(row.key), self._host.now_us())
                if not live:
                    continue
                messages, rows, bytes_ = messages + live, rows + 1, bytes_ + row.size_bytes
                if messages >= budget.messages_max or bytes_ >= budget.bytes_max or rows >= budget.rows_max:
                    return row.order, messages
            reached = min(piece.reached, self.until)
            if not piece.more:
                break
        return reached, messages

    async def reserve(self, preview: Preview, deadline_us: int) -> RangePlan:
        """Reservations that earlier runs of this job left are released first: their driver no longer drives it."""
        source = self.source()
        await self._end_own_reservation()
        reserver = RangeReserver(self._host, self.lane, source)
        reserved = await reserver.reserve(RangeReservation(self._job, preview.first, preview.last, deadline_us))
        try:
            picks, aliases = await self._picks(ReservedRange(self._host, self.lane, source, reserved))
        except HeadgateError:
            await reserver.give_back(reserved)
            raise
        span_us = time_us_of(_due_of(picks[-1].key)) - time_us_of(_due_of(picks[0].key)) if picks else 0
        return RangePlan(self.name, reserved.stored, reserved.epoch, deadline_us, tuple(picks), aliases, span_us)

    async def _picks(self, reserved: ReservedRange) -> tuple[list[Pick], dict[bytes, tuple[int, int]]]:
        picks: list[Pick] = []
        aliases: dict[bytes, tuple[int, int]] = {}
        async for each in reserved.rows():
            content: RowContent = each.row.content
            if content.run is None:
                continue
            for index, id_ in enumerate(content.run.message_id or ()):
                if id_ and each.mine >> index & 1:
                    aliases[id_] = (len(picks), index)
            picks.append(Pick(each.row.where, each.row.key, each.mine))
        return picks, aliases

    async def _end_own_reservation(self) -> None:
        state = await self.lane.read_state()
        if state is not None and state.reserved is not None and unpack_reservation(state.reserved).job == self._job:
            await self.lane.end_reservation(state.reserved)

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Under a writer uuid of its own, within the deadline."""
        reserved = GrantedReservation(unpack_reservation(plan.reservation), plan.reservation, plan.epoch, frozenset())
        rows = [_reserved_row(plan.picks[at], mask) for at, mask in masks.items() if mask]
        return (
            await ReservedRange(self._host, self.lane, self.source(), reserved).settle(rows) if rows else Settled.DONE
        )

    async def give_back(self, plan: RangePlan) -> None:
        await self.lane.end_reservation(plan.reservation)

    async def pass_over(self) -> None:
        """A short lease term, where nobody has one."""
        await pass_over_settled(self._host, self._engine.producer.sender, self._at)


def _reserved_row(pick: Pick, mask: int) -> ReservedRow:
    return ReservedRow(LaneRow(pick.key, _order_of(pick.key), mask.bit_length(), 0, where=pick.where), mask)


def _live(row: LaneRow, facts: RowFacts | None, now_us: int) -> int:
    """How many messages of a row are neither settled, nor on their way elsewhere, nor hidden, as is on record."""
    facts = facts or RowFacts()
    gone = row.settled | facts.settled
    hidden = (index for index, tried in facts.tried.items() if tried.hidden_until_us > now_us)
    for index in (*row.moved, *facts.moved, *hidden):
        gone |= 1 << index
    return row.count - gone.bit_count()


def _due_of(key: bytes) -> UUID:
    return UUID(bytes=key[2:18])


def _order_of(key: bytes) -> int:
    return position_order(_due_of(key))
