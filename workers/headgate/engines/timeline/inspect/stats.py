"""Counts the contents of a queue from small rows: put counts, counts of passed messages, settle logs, positions.
No payload is read. The cost and the exactness of each number: docs/internals/protocols/timeline.md, "Peek, stats and
where".

For lanes that this process owns, the books have exact figures. It reads the tables each time. A caller that needs
figures of many queues every second reads the summary (docs/internals/protocols/summary.md), which lane owners write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from headgate.engines.context import Host
from headgate.engines.contract import LaneStats, Stats
from headgate.engines.lanes.delivery.rows import DeliveryTerms
from headgate.engines.lanes.log.settle_log_format import Facts
from headgate.engines.timeline.lanes.lane_snapshot import Held, LaneView, list_lane_views, order_of, part_at
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.lane_records import part_key, read_facts
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.reading import family_of
from headgate.engines.timeline.read.unreadable_rows import read_unreadable
from headgate.store.model.positions import last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value

PARTS_MAX = 2_000
"""The maximum number of parts of a generation that are counted, the earliest; the answer states whether there are
more."""
READS_AT_ONCE = 32
KEYS_MAX = 2_000
"""Of one lane in the current part: at most this many keys of delayed messages are counted."""
OLDEST_KEYS = 8
OLDEST_PARTS = 4

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class _Lane:
    """One lane, and its records above its position."""

    view: LaneView
    position: int
    hidden: int = 0
    settled: int = 0
    oldest_us: int | None = None
    unreadable: int = 0

    @property
    def is_at_head(self) -> bool:
        """Whether its owner is this process, and has read all that is due."""
        return self.view.mine is not None and self.view.mine.position.at_head


@dataclass
class _Part:
    """One part: put and not cancelled, passed, settled above positions."""

    number: int
    subs: Sequence[int]
    put: int = 0
    passed: int = 0
    settled: int = 0

    @property
    def live(self) -> int:
        """The rest of it."""
        return max(0, self.put - self.passed - self.settled)


async def stats(host: Host, settings: TimelineSettings, held: Held) -> Stats:
    """The current contents of the queue."""
    now_us = host.now_us()
    views = await list_lane_views(host, settings, held)
    live = delayed = in_flight = ready_local = 0
    complete, all_at_head = True, True
    lanes: list[LaneStats] = []
    for generation in settings.generations:
        of_it = [view for view in views if view.generation == generation.number]
        retired = [_Lane(view, view.position) for view in of_it if view.state.is_retired]
        for lane in retired:
            await _read_unreadable(host, settings, lane)
        lanes += [_lane_stats(lane, settings, now_us) for lane in retired]
        counted = _Generation(host, settings, [view for view in of_it if not view.state.is_retired], now_us)
        if counted.lanes:
            await counted.count()
            live += sum(part.live for part in counted.parts)
            delayed += counted.delayed
            complete &= counted.complete
            lanes += [_lane_stats(lane, settings, now_us) for lane in counted.lanes]
            in_flight += sum(_in_flight(lane, now_us) for lane in counted.lanes)
            ready_local += sum(_waiting(lane.view, now_us) for lane in counted.lanes)
            all_at_head &= all(lane.is_at_head for lane in counted.lanes)
    backlog = ready_local if all_at_head else max(ready_local, live - delayed - in_flight)
    oldest = [lane.oldest_due_us for lane in lanes if lane.oldest_due_us is not None]
    return Stats(backlog, in_flight, delayed, min(oldest, default=None), tuple(lanes), complete)


async def _read_unreadable(host: Host, settings: TimelineSettings, lane: _Lane) -> None:
    notes = await read_unreadable(host, settings, lane.view.generation, lane.view.shard)
    lane.unreadable = notes.count(lane.view.state.purged_before_us)


def _in_flight(lane: _Lane, now_us: int) -> int:
    mine = lane.view.mine
    return lane.hidden if mine is None else mine.delivery_state.in_flight + mine.delivery_state.hidden_at(now_us)


def _waiting(view: LaneView, now_us: int) -> int:
    """The messages that this process has read from its own lane, and neither delivered nor hidden."""
    if view.mine is None:
        return 0
    delivery_state = view.mine.delivery_state
    return max(0, delivery_state.unsettled - delivery_state.in_flight - delivery_state.hidden_at(now_us))


def _lane_stats(lane: _Lane, settings: TimelineSettings, now_us: int) -> LaneStats:
    view, state, mine = lane.view, lane.view.state, lane.view.mine
    lease_left_us = None
    if state.lock is not None:
        lease_left_us = max(0, state.touched_us + settings.lease.ttl_s * 1_000_000 - now_us)
    settled_above = lane.settled if mine is None else mine.delivery_state.holes
    return LaneStats(
        generation=view.generation,
        shard=view.shard,
        owner=None if state.lock is None else str(state.lock),
        epoch=state.epoch,
        last_us=_time_us(lane.position),
        read_to_us=_time_us(view.read_to),
        touched_us=state.touched_us,
        oldest_due_us=lane.oldest_us,
        is_mine=mine is not None,
        is_held=settled_above > DeliveryTerms.holes_max if mine is None else mine.delivery_state.is_held(),
        is_stopped=state.epoch > 0 and state.stop >= state.epoch,
        is_reserved=state.reserved is not None,
        is_retired=state.is_retired,
        waiting=None if mine is None else mine.delivery_state.unsettled - mine.delivery_state.in_flight,
        in_flight=None if mine is None else mine.delivery_state.in_flight,
        lease_left_us=lease_left_us,
        progress=state.progress,
        hidden=lane.hidden if mine is None else mine.delivery_state.hidden_at(now_us),
        settled_above=settled_above,
        unreadable_rows=lane.unreadable,
    )


class _Generation:
    """The lanes of one generation that are not retired, and the parts from the lowest position on."""

    def __init__(self, host: Host, settings: TimelineSettings, views: Sequence[LaneView], now_us: int) -> None:
        self.lanes = [_Lane(view, view.position) for view in views]
        self.parts: list[_Part] = []
        self.delayed = 0
        self.complete = True
        self._host = host
        self._settings = settings
        self._now_us = now_us
        self._gate = asyncio.Semaphore(READS_AT_ONCE)

    async def count(self) -> None:
        """Fill in the results."""
        part_us = self._settings.part_us
        generation = self.lanes[0].view.generation
        first = min(lane.view.part_of_position(part_us) for lane in self.lanes)
        async for number, subs in parts_from(self._host, self._settings, generation, first):
            if len(self.parts) >= PARTS_MAX:
                self.complete = False
                break
            self.parts.append(_Part(number, subs))
        await self._each(self.parts, self._count_part)
        await self._each(self.lanes, self._read_oldest)
        await self._each(self.lanes, partial(_read_unreadable, self._host, self._settings))
        await self._split()

    async def _each(self, items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
        async def one(item: T) -> R:
            async with self._gate:
                return await work(item)

        return list(await asyncio.gather(*map(one, items)))

    # ---- live messages

    async def _count_part(self, part: _Part) -> None:
        generation = self.lanes[0].view.generation
        key: dict[str, Value] = {"queue": self._settings.queue, "generation": generation, "part": part.number}
        select = Select(self._settings.tables.put_counts, key, ("messages", "sent_us"))
        counts = await self._host.store.read(select)
        purged_us = min(lane.view.state.purged_before_us for lane in self.lanes)
        if max((row.sent_us or 0 for row in counts), default=0) < purged_us:
            return
        part.put = sum(row.messages for row in counts)
        for lane in self.lanes:
            if part.number <= part_at(max(lane.view.recorded_to, lane.position), self._settings.part_us):
                await self._count_lane(part, lane)

    async def _count_lane(self, part: _Part, lane: _Lane) -> None:
        """The rows that one lane passed in a part, and the settled or hidden ones above that."""
        key = part_key(self._settings, lane.view.generation, lane.view.shard, part.number)
        pieces = await self._host.store.read(Select(self._settings.tables.passed, key, ("messages", "up_to")))
        part.passed += sum(row.messages or 0 for row in pieces)
        lane.position = max(lane.position, *(order_of(row.up_to) for row in pieces), lane.position)
        facts = await read_facts(self._host, self._settings, lane.view.generation, lane.view.shard, part.number)
        settled = _settled_above(facts, lane.position)
        part.settled += settled
        lane.settled += settled
        lane.hidden += _hidden_above(facts, lane.position, self._now_us)

    # ---- delayed messages

    async def _split(self) -> None:
        """Messages put for immediate delivery are due within the lag, and count as backlog."""
        at_once_us = self._now_us + self._settings.safety_lag_us
        border = at_once_us // self._settings.part_us
        for part in self.parts:
            if part.number > border:
                self.delayed += part.live
            elif part.number == border and part.live:
                later = await self._each(self.lanes, partial(self._later, part, at_once_us))
                self.delayed += min(part.live, sum(later))

    async def _later(self, part: _Part, after_us: int, lane: _Lane) -> int:
        """Rows of a part that are due beyond a given time: such a row holds one message."""
        after = max(lane.position, position_order(last_at(after_us)))
        keys = [await self._keys(lane, part, sub, after, self._end_of(part), KEYS_MAX) for sub in {0, *part.subs}]
        return sum(row.cancelled is None and row.moved is None for rows in keys for row in rows)

    # ---- the oldest messages

    async def _read_oldest(self, lane: _Lane) -> None:
        mine = lane.view.mine
        if mine is not None:
            lowest = mine.delivery_state.lowest_unsettled
            lane.oldest_us = None if lowest is None else _time_us(lowest.order)
            return
        now = position_order(last_at(self._now_us))
        first = part_at(lane.position, self._settings.part_us)
        for part in [each for each in self.parts if each.number >= first][:OLDEST_PARTS]:
            top = min(now, self._end_of(part))
            if lane.position >= top:
                continue
            rows: list[Any] = []
            for sub in {0, *part.subs}:
                rows += await self._keys(lane, part, sub, lane.position, top, OLDEST_KEYS)
            live = [row.due for row in rows if row.cancelled is None and row.moved is None]
            if live:
                lane.oldest_us = min(map(time_us_of, live))
                return

    async def _keys(self, lane: _Lane, part: _Part, sub: int, after: int, up_to: int, limit: int) -> Sequence[Any]:
        if after >= up_to:
            return ()
        tables = self._settings.tables
        key: dict[str, Value] = {
            "queue": self._settings.queue,
            "generation": lane.view.generation,
            "part": part.number,
            "sub": sub,
            "shard": lane.view.shard,
        }
        table = tables.later if sub >= LATER_SUBS_FROM else tables.work
        within = Slice("due", SliceBound(position_at(after), False), SliceBound(position_at(up_to), True))
        select = Select(table, key, ("due", "cancelled", "moved"), within=within, limit=limit)
        return await self._host.store.read(select)

    def _end_of(self, part: _Part) -> int:
        return position_order(last_at((part.number + 1) * self._settings.part_us - 1))


def _settled_above(facts: Facts, position: int) -> int:
    return sum(of_row.settled.bit_count() for key, of_row in facts.items() if _order(key) > position)


def _hidden_above(facts: Facts, position: int, now_us: int) -> int:
    return sum(
        tried.hidden_until_us > now_us and not of_row.settled >> index & 1
        for key, of_row in facts.items()
        if _order(key) > position
        for index, tried in of_row.tried.items()
    )


def _order(key: bytes) -> int:
    return position_order(family_of(key)[0])


def _time_us(order: int) -> int:
    return time_us_of(position_at(order))
