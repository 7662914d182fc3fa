"""The rows of a split of a timeline queue as Arrow batches: live messages, or the history ("Source: a batch" in
docs/internals/protocols/spark.md).

Most rows are plain: neither cancelled nor moved, neither copy nor restamped, with nothing on record. They go from the
cell to Arrow, and those of one message each many at a time (alone_rows.py). The others are judged one by one, as the
lane's reader judges them.

Invariants: the record of a part is read before the position that it is combined with, so that everything dropped from
the record in between is below the position. A message of the history is shown at its first place, if it is still
there, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.log.settle_log_format import Facts, RowFacts, bits_of
from headgate.engines.packed_row import RowBroken, unpack
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.lane_snapshot import LaneRows, LaneView, read_lane_view
from headgate.engines.timeline.model.layout import (
    LATER_SUBS_FROM,
    MessagePlace,
    RowPlace,
    id_suffix,
    id_text,
    row_text,
)
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.reading import RowContent, family_of
from headgate.engines.timeline.read.unreadable_rows import log_unreadable, read_run
from headgate.errors import InvalidRequest
from headgate.process.background_tasks import start_task
from headgate.process.live import Live
from headgate.store.model.positions import last_at, position_at, position_order, time_us_of
from headgate.store.model.rows import WiredRows
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.table import Table
from headgate.store.model.types import Value
from headgate_spark.engines.contract import Pick
from headgate_spark.engines.packed_columns import About, BatchBuilder, Exceptions, OpenRow
from headgate_spark.engines.timeline.alone_rows import CutRows, Mask, columns_of
from headgate_spark.engines.timeline.decide_splits import SplitStretch

SLICE_BYTES = 2 * 1024 * 1024
SLICE_ROWS_MIN, SLICE_ROWS_MAX = 16, 8_000
FIRST_ROW_BYTES = 16_384
COLUMNS = ("due", "run", "cancelled", "moved")
NO_ROWS = WiredRows(0, b"")
SUFFIXES = tuple(id_suffix(index) for index in range(512))
NO_ID = UUID(int=0)
READY, LATER_STANDING, IN_FLIGHT = "ready", "later", "in_flight"
KEPT, CANCELLED = "kept", "cancelled"


def partition_of(settings: TimelineSettings, stretch: SplitStretch) -> tuple[Table, dict[str, Value]]:
    """The table and the partition key of a stretch."""
    return _partition(settings, stretch.generation, stretch.part, stretch.sub, stretch.shard)


def _partition(
    settings: TimelineSettings, generation: int, part: int, sub: int, shard: int
) -> tuple[Table, dict[str, Value]]:
    table = settings.tables.later if sub >= LATER_SUBS_FROM else settings.tables.work
    return table, {"queue": settings.queue, "generation": generation, "part": part, "sub": sub, "shard": shard}


class TimelineRows:
    """Reads the rows of stretches slice by slice; the next slice is on its way while one is worked through."""

    standing = READY
    """Of rows that are alone and plain."""

    def __init__(self, engine: TimelineQueue, columns: Sequence[str]) -> None:
        self._host = engine.host
        self._settings = engine.settings
        self._builder = BatchBuilder(columns, SUFFIXES)
        self._wants_id = "id" in columns
        self._wants_position = "position" in columns
        self._wants_at = "at" in columns
        self._row_bytes = FIRST_ROW_BYTES

    async def read(self, stretches: Iterable[SplitStretch]) -> AsyncIterator[pa.RecordBatch]:
        for stretch in stretches:
            async for cut in self.slices(stretch):
                for piece in self.pieces(stretch, cut):
                    if isinstance(piece, slice):
                        self._add_together(stretch, cut, piece)
                    elif piece.run is not None:
                        await self._add_or_pass_over(stretch, piece)
                    for batch in self._builder.take_full():
                        yield batch
        for batch in self._builder.take():
            yield batch

    async def _add_or_pass_over(self, stretch: SplitStretch, row: Any) -> None:
        """A row that cannot be read ends no job: one line names it, and its bytes stay."""
        try:
            if (check := self.add(stretch, row)) is not None:
                await check
        except RowBroken as error:
            if row.cancelled is None:
                place = RowPlace(stretch.generation, stretch.sub, stretch.shard, row.due)
                log_unreadable(self._settings, place, str(error))

    def slices(self, stretch: SplitStretch) -> AsyncIterator[CutRows]:
        return self._slices(stretch, stretch.after)

    def pieces(self, stretch: SplitStretch, cut: CutRows) -> Iterator[Any]:
        """Slices of rows that are alone and plain, and each other row."""
        return cut.pieces(cut.alone)

    def add(self, stretch: SplitStretch, row: Any) -> Awaitable[None] | None:
        """Add the wanted messages of a row, or return the work of it where it needs a check."""
        raise NotImplementedError

    async def _slices(self, stretch: SplitStretch, after: int) -> AsyncIterator[CutRows]:
        reading: asyncio.Task[tuple[WiredRows, int]] | None = start_task("next slice", self._slice(stretch, after))
        columns = [partition_of(self._settings, stretch)[0].by_name[name] for name in COLUMNS]
        try:
            while reading is not None:
                wired, limit = await reading
                reading = None
                cut = CutRows(wired, columns)
                if len(cut) >= limit:
                    self._row_bytes = max(64, len(wired.content) // len(cut))
                    reading = start_task("next slice", self._slice(stretch, position_order(cut.last_due())))
                yield cut
        finally:
            if reading is not None:
                reading.cancel()

    async def _slice(self, stretch: SplitStretch, after: int) -> tuple[WiredRows, int]:
        limit = max(SLICE_ROWS_MIN, min(SLICE_ROWS_MAX, SLICE_BYTES // self._row_bytes))
        if after >= stretch.up_to:
            return NO_ROWS, limit
        within = Slice("due", SliceBound(position_at(after), False), SliceBound(position_at(stretch.up_to), True))
        table, key = partition_of(self._settings, stretch)
        return await self._host.store.read_wired(Select(table, key, COLUMNS, within=within, limit=limit)), limit

    def _about(self, stretch: SplitStretch, due: UUID, standing: str) -> About:
        return About(
            row_text(RowPlace(stretch.generation, stretch.sub, stretch.shard, due)) if self._wants_id else "",
            str(due) if self._wants_position else "",
            time_us_of(due) if self._wants_at else 0,
            stretch.generation,
            stretch.shard,
            standing,
        )

    def _add_together(self, stretch: SplitStretch, cut: CutRows, rows: slice) -> None:
        place = RowPlace(stretch.generation, stretch.sub, stretch.shard, NO_ID)
        columns = columns_of(self._builder.columns, cut, rows, place, SUFFIXES[0], self.standing_of(cut, rows))
        self._builder.add_columns(columns, cut.payload_bytes(rows))

    def standing_of(self, cut: CutRows, rows: slice) -> pa.Array | str:
        """The states of such rows: all the same, or one for each."""
        return self.standing

    def _add_plain(self, cell: bytes, about: About) -> bool:
        """Add all messages of a row, if it is neither a copy nor restamped."""
        if _is_alone(cell):
            run = unpack(cell)
            if run.message_id is not None or run.replaces is not None:
                return False
            self._builder.add_alone(run, about)
            return True
        row = OpenRow(cell)
        if not row.is_plain:
            return False
        self._builder.add(row, about)
        return True

    def _add_some(self, cell: bytes, about: About, wanted: int, but: Exceptions) -> None:
        if not wanted:
            return
        if _is_alone(cell):
            self._builder.add_alone(unpack(cell), about, but)
        else:
            self._builder.add(OpenRow(cell), about, wanted, but)

    async def _row_at(self, place: RowPlace) -> Any:
        """The row at a place; None where it holds nothing, or nothing that can be read."""
        part = place.part(self._settings.part_us)
        table, key = _partition(self._settings, place.generation, part, place.sub, place.shard)
        rows = await self._host.store.read(Select(table, {**key, "due": place.due}, ("run", "cancelled")))
        return next((row for row in rows if row.run is not None and _is_readable(row.run)), None)


class PickedRows(TimelineRows):
    """Some messages of a lane, by the keys of their rows and bits, whatever their state now."""

    def __init__(self, engine: TimelineQueue, columns: Sequence[str], lane: LaneName, picks: Sequence[Pick]) -> None:
        super().__init__(engine, columns)
        self._lane = lane
        self._masks: dict[tuple[int, int], dict[bytes, int]] = {}
        """By part and sub, and by due id."""
        for pick in picks:
            of_partition = self._masks.setdefault((pick.where, int.from_bytes(pick.key[:2], "big")), {})
            of_partition[pick.key[2:18]] = pick.mask

    def stretches(self) -> Iterator[SplitStretch]:
        """From the first to the last row of each partition."""
        generation, shard = self._lane
        for (part, sub), masks in self._masks.items():
            orders = sorted(position_order(UUID(bytes=due)) for due in masks)
            yield SplitStretch(generation, shard, part, sub, orders[0] - 1, orders[-1], 0.0)

    def pieces(self, stretch: SplitStretch, cut: CutRows) -> Iterator[Any]:
        masks = self._masks[stretch.part, stretch.sub]
        wanted = np.array([masks.get(due, 0) & 1 != 0 for due in cut.due_keys()], np.bool_)
        return cut.pieces(cut.alone & wanted, cut.alone & ~wanted)

    def add(self, stretch: SplitStretch, row: Any) -> None:
        if row.cancelled is not None:
            return
        run = unpack(row.run)
        ids = {index: id_text(own) for index, own in enumerate(run.message_id or ()) if own}
        wanted = self._masks[stretch.part, stretch.sub].get(row.due.bytes, 0) & bits_of(0, len(run))
        self._add_some(row.run, self._about(stretch, row.due, READY), wanted, Exceptions(ids, {}, {}))


class LiveRows(TimelineRows):
    """Unsettled messages, as peek shows them."""

    def __init__(self, engine: TimelineQueue, columns: Sequence[str], now_us: int) -> None:
        """`now_us` separates delayed messages; nothing else depends on it."""
        super().__init__(engine, columns)
        self._lanes: dict[tuple[int, int], tuple[LaneView, LaneRows]] = {}
        self._facts: Facts = {}
        self._replaced: set[bytes] = set()
        self._part: tuple[int, int, int] | None = None
        self._now_us = now_us
        self._now_order = position_order(last_at(self._now_us))

    async def slices(self, stretch: SplitStretch) -> AsyncIterator[CutRows]:
        """Rows above the position of the lane."""
        lane = await self._lane(stretch)
        if lane is not None:
            async for cut in self._slices(stretch, max(stretch.after, lane[0].position)):
                yield cut

    def pieces(self, stretch: SplitStretch, cut: CutRows) -> Iterator[Any]:
        """Those that are alone are plain if they have nothing on record, and were not purged."""
        plain: Mask = cut.put_us >= self._lanes[stretch.lane][0].state.purged_before_us
        if self._facts or self._replaced:
            sub, facts, replaced = stretch.sub.to_bytes(2, "big"), self._facts, self._replaced
            plain &= np.array([sub + due not in facts and due not in replaced for due in cut.due_keys()], np.bool_)
        return cut.pieces(cut.alone & plain)

    def standing_of(self, cut: CutRows, rows: slice) -> pa.Array | str:
        """By the messages that are due now."""
        if "standing" not in self._builder.columns:
            return READY
        return pc.if_else(pa.array(cut.times_us()[rows] > self._now_us), LATER_STANDING, READY)

    async def _lane(self, stretch: SplitStretch) -> tuple[LaneView, LaneRows] | None:
        """The lane with the record of the part: first the record, then the position."""
        part = (*stretch.lane, stretch.part)
        if part != self._part:
            lane_state = self._lanes.get(stretch.lane) or await self._read_lane(stretch)
            if lane_state is not None:
                self._take_facts(await lane_state[1].facts(stretch.part))
                if self._facts or stretch.lane not in self._lanes:
                    lane_state = await self._read_lane(stretch) or lane_state
            if lane_state is not None:
                self._lanes[stretch.lane] = lane_state
            self._part = part
        return self._lanes.get(stretch.lane)

    async def _read_lane(self, stretch: SplitStretch) -> tuple[LaneView, LaneRows] | None:
        view = await read_lane_view(self._host, self._settings, {}, *stretch.lane)
        if view is None or view.state.is_retired:
            return None
        index = PartIndex(self._host, Live(self._settings), stretch.generation)
        return view, LaneRows(self._host, self._settings, view, index)

    def _take_facts(self, facts: Facts) -> None:
        self._facts = facts
        families = (family_of(key) for key in facts)
        self._replaced = {first.bytes for due, first in families if due != first}

    def add(self, stretch: SplitStretch, row: Any) -> Awaitable[None] | None:
        if row.cancelled is not None:
            return None
        view, rows = self._lanes[stretch.lane]
        standing = LATER_STANDING if position_order(row.due) > self._now_order else READY
        about = self._about(stretch, row.due, standing)
        if row.moved is None and not view.state.purged_before_us and row.due.bytes not in self._replaced:
            facts = self._facts.get(stretch.sub.to_bytes(2, "big") + row.due.bytes) if self._facts else None
            if facts is None and self._add_plain(row.run, about):
                return None
        return self._add_live(stretch, row, view, rows, about)

    async def _add_live(self, stretch: SplitStretch, row: Any, view: LaneView, rows: LaneRows, about: About) -> None:
        stands = await rows.reading.as_it_stands(stretch.part, stretch.sub, row)
        content: RowContent = stands.content
        if content.unreadable:
            log_unreadable(self._settings, content.place, content.unreadable)
        if content.run is None:
            return
        begun = stands.key in self._facts
        if content.first != row.due and not begun and await self._first_is_live(content, view):
            return
        facts = self._facts.get(stands.key, RowFacts())
        settled = stands.settled | facts.settled
        for index in (*stands.moved, *facts.moved):
            settled |= bits_of(index, index + 1)
        hidden = {at: it.hidden_until_us for at, it in facts.tried.items() if it.hidden_until_us > self._now_us}
        tried = {at: it.attempt for at, it in facts.tried.items()}
        but = Exceptions(_ids_of(content), tried, hidden, IN_FLIGHT)
        self._add_some(row.run, about, bits_of(0, stands.count) & ~settled, but)

    async def _first_is_live(self, content: RowContent, view: LaneView) -> bool:
        """Of a restamped row: whether its original is above the position, so that the original is shown."""
        if content.run is None or content.run.replaces is None or position_order(content.first) <= view.position:
            return False
        original = await self._row_at(MessagePlace.from_bytes(content.run.replaces).row)
        return original is not None and original.cancelled is None


class HistoryRows(TimelineRows):
    """Every message that is kept, once."""

    standing = KEPT

    def __init__(self, engine: TimelineQueue, columns: Sequence[str], *, cancelled_too: bool = True) -> None:
        super().__init__(engine, columns)
        self._cancelled_too = cancelled_too
        self._there: dict[RowPlace, bool] = {}

    def add(self, stretch: SplitStretch, row: Any) -> Awaitable[None] | None:
        """A row needs a check where it holds messages that were first put elsewhere."""
        if row.cancelled is not None and not self._cancelled_too:
            return None
        about = self._about(stretch, row.due, KEPT if row.cancelled is None else CANCELLED)
        return None if self._add_plain(row.run, about) else self._add_history(stretch, row, about)

    async def _add_history(self, stretch: SplitStretch, row: Any, about: About) -> None:
        run = unpack(row.run)
        row_place = RowPlace(stretch.generation, stretch.sub, stretch.shard, row.due)
        wanted = 0
        ids: dict[int, str] = {}
        for index in range(len(run)):
            own = run.message_id[index] if run.message_id is not None else b""
            if not own and run.replaces is not None:
                own = MessagePlace(MessagePlace.from_bytes(run.replaces).row, index).to_bytes()
            if own:
                ids[index] = id_text(own)
            tried_before = run.attempt is not None and run.attempt[index] > 0
            if not own or (not tried_before and await self._is_first(own, row_place)):
                wanted |= bits_of(index, index + 1)
        self._add_some(row.run, about, wanted, Exceptions(ids, {}, {}))

    async def _is_first(self, own: bytes, row_place: RowPlace) -> bool:
        """Whether a message with an id is shown at this place: it is the id's place, or that place holds nothing."""
        try:
            first = MessagePlace.from_bytes(own).row
        except InvalidRequest:
            return True  # of another engine's queue: a dead letter of it
        if first == row_place:
            return True
        if first not in self._there:
            self._there[first] = await self._row_at(first) is not None
        return not self._there[first]


def _is_alone(cell: bytes) -> bool:
    return cell[2] == 1 and cell[3] == 0


def _is_readable(cell: bytes) -> bool:
    try:
        read_run(cell)
    except RowBroken:
        return False
    return True


def _ids_of(content: RowContent) -> dict[int, str]:
    """The ids of messages that were first put elsewhere."""
    run = content.run
    if run is None or run.message_id is None:
        return {}
    return {index: id_text(own) for index, own in enumerate(run.message_id) if own}
