"""Lanes of timeline queues for bulk jobs: `contract.py` on `penstock.engines.borrowing`, and history by parts.

A lane is named `generation/shard`. A job reads a lane from its position on, a range after the other; the range is
looked at first, so that a loan is short, and then borrowed. What of it is the job's is told by `LentRange`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from uuid import UUID

from penstock.client.queue import Queue
from penstock.engines.borrowing import Borrower, Lent, LentRange, LentRow, RangeTaken
from penstock.engines.contract import Settled
from penstock.engines.decide_lease import Tenure
from penstock.engines.host import Host
from penstock.engines.lane import Lane
from penstock.engines.packed import unpack
from penstock.engines.rows import LaneRow
from penstock.engines.settled import bits_of
from penstock.engines.source import Loan
from penstock.engines.timeline.lane_taking import LaneName, lane_of
from penstock.engines.timeline.layout import LATER_SUBS_FROM, Place, RowPlace, id_text
from penstock.engines.timeline.part_list import parts_from
from penstock.engines.timeline.passing_over import pass_over_settled
from penstock.engines.timeline.reading import RowContent
from penstock.engines.timeline.row_writes import ids_of
from penstock.engines.timeline.settings import TimelineSettings
from penstock.engines.timeline.source import TimelineSource, decode_loan
from penstock.errors import PenstockError
from penstock.expiry import Promise
from penstock.store.positions import first_at, moment_us_of, position_at, position_order
from penstock.store.statements import Bound, Select, Slice
from penstock.store.types import Value
from penstock_spark.jobs.decide_batch import BatchPlan, Pick, RangePlan, Spot
from penstock_spark.lanes.contract import Budget, HistorySplit, PickedRow, Preview

SLICE_BYTES = 1024 * 1024
OWNED = Budget(messages_max=20_000, bytes_max=3 * 1024 * 1024, rows_max=4_000)
"""Of a lane that is worked no more is borrowed at once: what is lent counts as read ahead there, and as holes."""
READ_ROWS = 500


def lending_of(queue: Queue, job: UUID) -> TimelineLending:
    """The driver's side of a job on this queue."""
    return TimelineLending(queue, job)


class TimelineLending:
    """The lanes of one queue, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID) -> None:
        self._queue = queue
        self._job = job

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[TimelineLane]:
        """Of all generations those that were not left."""
        first = 0 if from_us is None else position_order(first_at(from_us))
        last = position_order(first_at(until_us)) - 1
        found = []
        for generation in self._queue.engine.settings.generations:
            for shard in range(generation.shards):
                lane = TimelineLane(self._queue, self._job, (generation.number, shard))
                seen = await lane.lane.look()
                if seen is not None and not seen.is_retired:
                    lane.cursor = max(first - 1, lane.source().order_of(seen.last))
                    lane.until = last
                    found.append(lane)
        return found

    async def lane(self, name: str) -> TimelineLane:
        """One of them."""
        return TimelineLane(self._queue, self._job, _lane_name(name))

    async def settle_anew(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Borrow what the picks span, and settle what of them is live."""
        lane = await self.lane(plan.lane)
        orders = [_order_of(plan.picks[index].key) for index in masks]
        anew = await lane.borrow(Preview(min(orders), max(orders), 0), deadline_us)
        live = {pick.key: pick.mask for pick in anew.picks}
        left = {at: mask & live.get(plan.picks[at].key, 0) for at, mask in masks.items()}
        how = await lane.settle(
            RangePlan(plan.lane, anew.loan, anew.epoch, anew.deadline_us, plan.picks),
            {at: mask for at, mask in left.items() if mask},
        )
        await lane.give_back(anew)
        return how


class TimelineLane:
    """One lane, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID, lane: LaneName) -> None:
        self.name = f"{lane[0]}/{lane[1]}"
        self.cursor = 0
        """All up to here was looked at by this run."""
        self.until = 0
        self._queue = queue
        self._job = job
        self._at = lane
        self.lane: Lane = lane_of(self._host, self._settings, lane)

    @property
    def _host(self) -> Host:
        return self._queue.engine.host

    @property
    def _settings(self) -> TimelineSettings:
        return self._queue.engine.settings

    def source(self) -> TimelineSource:
        """A source with a writer of its own: two that settle never share one."""
        generation, shard = self._at
        tenure = Tenure(self._host.uuid(), 0, Promise.until(0, sent_us=0), None, 0, True, 0)
        sender = self._queue.engine.producer.sender
        return TimelineSource(
            self._host, self._settings, sender, None, generation=generation, shard=shard, tenure=tenure
        )

    async def preview(self, budget: Budget) -> Preview | None:
        """The next range, about as large as the budget allows; less of a lane that somebody works."""
        seen = await self.lane.look()
        if seen is None or seen.is_retired or self.cursor >= self.until:
            return None
        if seen.lock is not None:
            budget = _smaller(budget, OWNED)
        source = self.source()
        source.purge(seen.purged_before_us)
        reached, messages = await self._reach(source, budget)
        preview = Preview(self.cursor + 1, reached, messages)
        self.cursor = reached if messages else self.until
        return preview if messages else None

    async def _reach(self, source: TimelineSource, budget: Budget) -> tuple[int, int]:
        """How far the budget leads, to the row, and about how many messages lie there; what is passed over because
        nothing of it is live costs none of it."""
        reached, messages, bytes_, rows = self.cursor, 0, 0, 0
        while reached < self.until:
            piece = await source.read(reached, bytes_max=SLICE_BYTES)
            for row in piece.rows:
                if row.order > self.until:
                    return self.until, messages
                live = row.count - row.settled.bit_count()
                if not live:
                    continue
                messages, rows, bytes_ = messages + live, rows + 1, bytes_ + row.size_bytes
                if messages >= budget.messages_max or bytes_ >= budget.bytes_max or rows >= budget.rows_max:
                    return row.order, messages
            reached = min(piece.reached, self.until)
            if not piece.more:
                break
        return reached, messages

    async def borrow(self, preview: Preview, deadline_us: int) -> RangePlan:
        """What earlier runs of this job left lent is given back first: their driver drives it no more."""
        source = self.source()
        await self._end_own_loan()
        borrower = Borrower(self._host, self.lane, source)
        lent = await borrower.borrow(Loan(self._job, preview.first, preview.last, deadline_us))
        try:
            picks, aliases = await self._picks(LentRange(self._host, self.lane, source, lent))
        except PenstockError:
            await borrower.give_back(lent)
            raise
        span_us = moment_us_of(_due_of(picks[-1].key)) - moment_us_of(_due_of(picks[0].key)) if picks else 0
        return RangePlan(self.name, lent.stored, lent.epoch, deadline_us, tuple(picks), aliases, span_us)

    async def _picks(self, lent: LentRange) -> tuple[list[Pick], dict[bytes, tuple[int, int]]]:
        picks: list[Pick] = []
        aliases: dict[bytes, tuple[int, int]] = {}
        async for each in lent.rows():
            content: RowContent = each.row.content
            if content.run is None:
                continue
            for index, id_ in enumerate(content.run.message_id or ()):
                if id_ and each.mine >> index & 1:
                    aliases[id_] = (len(picks), index)
            picks.append(Pick(each.row.where, each.row.key, each.mine))
        return picks, aliases

    async def _end_own_loan(self) -> None:
        seen = await self.lane.look()
        if seen is not None and seen.lent is not None and decode_loan(seen.lent).job == self._job:
            await self.lane.end_loan(seen.lent)

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Under a writer uuid of its own, within the deadline."""
        lent = Lent(decode_loan(plan.loan), plan.loan, plan.epoch, frozenset())
        rows = [_lent_row(plan.picks[at], mask) for at, mask in masks.items() if mask]
        return await LentRange(self._host, self.lane, self.source(), lent).settle(rows) if rows else Settled.DONE

    async def give_back(self, plan: RangePlan) -> None:
        """The owner's again."""
        await self.lane.end_loan(plan.loan)

    async def pass_over(self) -> None:
        """A short tenure, where nobody has one."""
        await pass_over_settled(self._host, self._queue.engine.producer.sender, self._at)


def _lent_row(pick: Pick, mask: int) -> LentRow:
    return LentRow(LaneRow(pick.key, _order_of(pick.key), mask.bit_length(), 0, where=pick.where), mask)


def _smaller(one: Budget, other: Budget) -> Budget:
    return Budget(
        min(one.messages_max, other.messages_max),
        min(one.bytes_max, other.bytes_max),
        min(one.rows_max, other.rows_max),
    )


def _lane_name(name: str) -> LaneName:
    generation, _, shard = name.partition("/")
    return int(generation), int(shard)


def _row_place(lane: LaneName, key: bytes) -> RowPlace:
    return RowPlace(lane[0], int.from_bytes(key[:2], "big"), lane[1], _due_of(key))


def _due_of(key: bytes) -> UUID:
    return UUID(bytes=key[2:18])


def _order_of(key: bytes) -> int:
    return position_order(_due_of(key))


def rows_by_id(plan: BatchPlan) -> dict[bytes, Spot]:
    """An id begins with the place of the row that it was first put into."""
    return {
        Place(_row_place(_lane_name(one.lane), pick.key), 0).to_bytes()[:-2]: (r, p)
        for r, one in enumerate(plan.ranges)
        for p, pick in enumerate(one.picks)
    }


async def read_picks(queue: Queue, lane: str, picks: Sequence[Pick]) -> AsyncIterator[PickedRow]:
    """The rows of these picks, partition by partition. What has expired meanwhile is left out."""
    name = _lane_name(lane)
    by_partition: dict[tuple[int, int], dict[UUID, int]] = defaultdict(dict)
    for pick in picks:
        place = _row_place(name, pick.key)
        by_partition[pick.where, place.sub][place.due] = pick.mask
    for (part, sub), masks in by_partition.items():
        ordered = sorted(masks, key=position_order)
        span = (position_order(ordered[0]) - 1, position_order(ordered[-1]))
        async for place, cell in _rows(queue, name, (part, sub), span):
            mask = masks.get(place.due)
            if mask is not None:
                yield _picked(place, cell, mask)


def _picked(place: RowPlace, cell: bytes, mask: int) -> PickedRow:
    run = unpack(cell)
    ids = ids_of(place, len(run))
    if run.message_id is not None:
        ids = [id_text(first) if first else own for first, own in zip(run.message_id, ids, strict=True)]
    return PickedRow(ids, run, mask)


async def _rows(
    queue: Queue, lane: LaneName, partition: tuple[int, int], span: tuple[int, int]
) -> AsyncIterator[tuple[RowPlace, bytes]]:
    """The cells of one partition above one order and up to another; cancelled ones are left out."""
    settings, store = queue.engine.settings, queue.engine.host.store
    part, sub = partition
    table = settings.tables.later if sub >= LATER_SUBS_FROM else settings.tables.work
    key: dict[str, Value] = {
        "queue": settings.queue,
        "generation": lane[0],
        "part": part,
        "sub": sub,
        "shard": lane[1],
    }
    after, up_to = span
    while True:
        within = Slice("due", Bound(position_at(after), False), Bound(position_at(up_to), True))
        rows = await store.read(Select(table, key, ("due", "run", "cancelled"), within=within, limit=READ_ROWS))
        for row in rows:
            if row.run is not None and row.cancelled is None:
                yield RowPlace(lane[0], sub, lane[1], row.due), row.run
        if len(rows) < READ_ROWS:
            return
        after = position_order(rows[-1].due)


def history_of(queue: Queue) -> TimelineHistory:
    """What this queue keeps."""
    return TimelineHistory(queue)


class TimelineHistory:
    """Rows by due moment, whatever became of their messages. A message that was stamped anew or copied within the
    queue is told by the row that it was first put into, where that is still kept: so each is told once."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def splits(self, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """One for each lane and part that holds something: planning reads the index of the range's days alone."""
        settings, host = self._queue.engine.settings, self._queue.engine.host
        found = []
        for generation in settings.generations:
            async for part, subs in parts_from(host, settings, generation.number, from_us // settings.part_us):
                if part * settings.part_us >= until_us:
                    break
                begin, end = max(part * settings.part_us, from_us), min((part + 1) * settings.part_us, until_us)
                if begin < end:
                    lanes = [f"{generation.number}/{shard}" for shard in range(generation.shards)]
                    found += [HistorySplit(lane, part, subs, begin, end) for lane in lanes]
        return sorted(found, key=lambda split: (split.where, split.lane))

    async def read(self, split: HistorySplit) -> AsyncIterator[PickedRow]:
        """All that was put there and not cancelled."""
        lane = _lane_name(split.lane)
        span = (position_order(first_at(split.from_us)) - 1, position_order(first_at(split.until_us)) - 1)
        for sub in split.subs:
            async for place, cell in _rows(self._queue, lane, (split.where, sub), span):
                picked = _picked(place, cell, 0)
                mask = bits_of(0, len(picked.run))
                if picked.run.message_id is not None:
                    mask &= ~await self._told_elsewhere(place, picked)
                if mask:
                    yield PickedRow(picked.ids, picked.run, mask)

    async def _told_elsewhere(self, place: RowPlace, picked: PickedRow) -> int:
        """The bits of messages whose first row is kept in this queue too."""
        mask = 0
        known: dict[RowPlace, bool] = {}
        for index, first in enumerate(picked.run.message_id or ()):
            if not first:
                continue
            origin = Place.from_bytes(first).row
            if origin == place:
                continue
            if origin not in known:
                known[origin] = await self._is_kept(origin)
            mask |= known[origin] << index
        return mask

    async def _is_kept(self, origin: RowPlace) -> bool:
        settings = self._queue.engine.settings
        order = position_order(origin.due)
        partition = (origin.part(settings.part_us), origin.sub)
        lane = (origin.generation, origin.shard)
        async for _ in _rows(self._queue, lane, partition, (order - 1, order)):
            return True
        return False


__all__ = ["RangeTaken", "history_of", "lending_of", "read_picks", "rows_by_id"]
