"""The common part of peek, stats and where: lanes, facts and passed rows as the tables show them now, read and not
taken.

It decides nothing that matters for safety, so plain reads at LOCAL_QUORUM are enough. Where this process owns a lane,
its books contain more than the tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.log.settle_log_format import Facts, bits_of
from headgate.engines.lanes.ownership.decide_lease import LaneState
from headgate.engines.lanes.ownership.lease import lane_state
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.lane_records import read_facts, read_passed
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.reading import LaneReader, family_of
from headgate.engines.timeline.read.restamp_families import Families
from headgate.process.live import Live
from headgate.store.model.positions import first_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Select

Held = Mapping[LaneName, Dispatcher]
BEFORE_ALL = position_order(first_at(0))
ONE_ROW_BYTES = 1
SETTLED_ROWS_MAX = 16
"""After this many cancelled rows at the head of a lane an inspection gives up; its owner passes them, and the next
inspection reads the following ones."""
"""A read that is as small as it can be."""


@dataclass(frozen=True)
class LaneView:
    """One lane, as its row shows it; with its dispatcher where this process owns it."""

    generation: int
    shard: int
    state: LaneState
    mine: Dispatcher | None

    @property
    def position(self) -> int:
        """Everything at or below it is settled."""
        stored = order_of(self.state.last)
        return stored if self.mine is None else max(stored, self.mine.position.last)

    @property
    def read_to(self) -> int:
        """How far its owner has read; elsewhere as of its last renewal."""
        stored = order_of(self.state.read_to)
        return stored if self.mine is None else max(stored, self.mine.position.read_to)

    @property
    def recorded_to(self) -> int:
        """Nothing beyond it is on record, but for the latest renewal's interval: neither delivered, nor reserved for
        a job."""
        return max(self.read_to, order_of(self.state.reserved_up_to))

    def part_of_position(self, part_us: int) -> int:
        """The part that its position is in."""
        return part_at(self.position, part_us)


def order_of(stored: object) -> int:
    """A position as a number; of null, before everything."""
    return position_order(stored) if isinstance(stored, UUID) else BEFORE_ALL


def part_at(order: int, part_us: int) -> int:
    """The part that an order is in."""
    return max(time_us_of(position_at(order)), 0) // part_us


async def list_lane_views(host: Host, settings: TimelineSettings, held: Held) -> list[LaneView]:
    """The lanes of all generations; those that were never made are left out."""
    names = [(each.number, shard) for each in settings.generations for shard in range(each.shards)]
    views = await asyncio.gather(*(read_lane_view(host, settings, held, *name) for name in names))
    return [view for view in views if view is not None]


async def read_lane_view(
    host: Host, settings: TimelineSettings, held: Held, generation: int, shard: int
) -> LaneView | None:
    """One lane, if it was created."""
    rows = await host.store.read(Select(settings.tables.lanes, lane_key(settings, generation, shard), limit=1))
    if not rows or rows[0].epoch is None:
        return None
    mine = held.get((generation, shard))
    if mine is not None and (mine.is_over() or mine.lease_term.lock != rows[0].lock):
        mine = None
    return LaneView(generation, shard, lane_state(rows[0]), mine)


class LaneRows:
    """The rows of one lane with their records, for one inspection: nothing is kept for the next."""

    def __init__(self, host: Host, settings: TimelineSettings, view: LaneView, index: PartIndex) -> None:
        self._host = host
        self._settings = settings
        self._view = view
        read = partial(read_passed, host, settings, view.generation, view.shard)
        self._families = Families(settings.part_us, read)
        self.reading = LaneReader(
            host,
            Live(settings),
            index,
            self._families,
            generation=view.generation,
            shard=view.shard,
            purged_before_us=view.state.purged_before_us,
        )

    async def facts(self, part: int) -> Facts:
        """The records of a part; none exist for one that is not due."""
        view = self._view
        if part * self._settings.part_us > self._host.now_us() + self._settings.skew_us:
            return {}
        facts = await read_facts(self._host, self._settings, view.generation, view.shard, part)
        for key, of_row in facts.items():
            due, first = family_of(key)
            if due != first:
                self._families.begun(first, due, epoch=of_row.epoch)
        return facts


async def first_unsettled_us(host: Host, settings: TimelineSettings, view: LaneView) -> int | None:
    """The due time of the first row above the position that is due by now and not settled at its place."""
    rows = LaneRows(host, settings, view, PartIndex(host, Live(settings), view.generation))
    after = view.position
    for _ in range(SETTLED_ROWS_MAX):
        piece = await rows.reading.read(after, bytes_max=ONE_ROW_BYTES)
        for row in piece.rows:
            if row.settled != bits_of(0, row.count):
                return time_us_of(position_at(row.order))
        if not piece.more:
            break
        after = piece.reached
    return None
