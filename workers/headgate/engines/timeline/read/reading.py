"""Reads one lane of a timeline queue: slices of parts, all subs merged by due, up to the reader's own now.

The prose is "Read" in docs/internals/protocols/timeline.md. Rows that need no handing out come with their bits
settled, so that the position can pass them; nothing is left out.

Invariant: the time up to which a slice reads is taken before the index and the rows are read, so that all messages
due up to it were acknowledged, and indexed, before. So a sub that the index does not name holds nothing up to then,
and is not read: empty lanes cost one read of the index, which they share.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.delivery.rows import ROWS_A_TURN, LaneRow
from headgate.engines.lanes.log.settle_log_format import bits_of, ranges_of
from headgate.engines.lanes.source import RowSlice as LaneSlice
from headgate.engines.packed_row import PackedRun, RowBroken, count_of, memory_of
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.engines.timeline.model.row import ROW_MESSAGES_MAX
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.part_reader import PartReader
from headgate.engines.timeline.read.restamp_families import Families
from headgate.engines.timeline.read.unreadable_rows import read_run
from headgate.process.live import Live
from headgate.store.model.positions import last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Select
from headgate.store.model.types import Value

QUIET_US = 5_000_000
"""Where the empty lanes have not asked together for this time, each reads for itself."""
ROW_MEMORY_BYTES = 200
"""The memory of a row besides its messages."""
MESSAGE_FREED_BYTES = 60
"""The memory that a message frees besides its content, while others of its row are still held."""


@dataclass(slots=True)
class RowContent:
    """The parts of a lane's row."""

    place: RowPlace
    run: PackedRun | None
    """Its messages; None where there are none, or all of them are settled."""
    first: UUID
    """The due id of its first stamped place; its own unless it is a restamped row."""
    counted: int
    """The number of its messages in the put counts of its part: zero where it was cancelled, or where another row of
    its lineage counts. Of rows in two parts both count for theirs: only the last one stamped was counted."""
    held_bytes: int = 0
    """The approximate memory of `run` now."""
    unreadable: str = ""
    """Why its messages cannot be read: it is passed over, and none of them is delivered."""
    _released: int = 0

    def release(self, settled: int) -> int:
        """Drop the content of messages that are settled; how many bytes that frees."""
        run = self.run
        if run is None:
            return 0
        self._released |= settled
        if self._released == bits_of(0, len(run)):
            self.run = None
            freed, self.held_bytes = self.held_bytes, 0
            return freed
        freed = sum(_blank(run, index) for start, end in ranges_of(settled) for index in range(start, end))
        self.held_bytes -= freed
        return freed


class LaneReader:
    """The rows of one lane, in order."""

    def __init__(
        self,
        host: Host,
        settings: Live[TimelineSettings],
        index: PartIndex,
        families: Families,
        *,
        generation: int,
        shard: int,
        purged_before_us: int,
    ) -> None:
        self.purged_before_us = purged_before_us
        self.ends_at: int | None = None
        """Nothing beyond it is read: from this order on rows move to a later generation. The first moved row that is
        read sets it, so that nothing of a group is delivered from this lane after its moved messages (attack C2)."""
        self.finished_up_to = 0
        """Up to this order the moves to a later generation are finished: their copies are known to be written."""
        self._host = host
        self._settings = settings
        self._index = index
        self._families = families
        self._generation = generation
        self._shard = shard
        self._stored = PartReader(host, settings, index, generation=generation, shard=shard)

    async def read(self, after: int, *, bytes_max: int, up_to: int | None = None) -> LaneSlice:
        """The rows above a position, as far as now or the bounds go."""
        rows = await self._read(after, bytes_max, up_to)
        gone = next((at for at, row in enumerate(rows.rows) if self.has_gone(row)), None)
        if gone is not None:
            self.end_at(rows.rows[gone].order - 1)
        end = self.ends_at
        if end is None or rows.reached <= end:
            return rows
        return LaneSlice([row for row in rows.rows if row.order <= end], max(after, end), False)

    def end_at(self, order: int) -> None:
        """Read no further than that; an end is never taken back."""
        self.ends_at = order if self.ends_at is None else min(order, self.ends_at)

    def end_beyond(self, order: int) -> None:
        """Rows up to there are delivered from this lane after all: all between them were moved."""
        if self.ends_at is not None:
            self.ends_at = max(order, self.ends_at)

    def moves_finished(self, up_to: int) -> None:
        """The copies of all moved rows up to this order are known to be written."""
        self.finished_up_to = up_to

    def purge(self, before_us: int) -> None:
        """From now on, messages put before this time come as settled."""
        self.purged_before_us = before_us

    async def _read(self, after: int, bytes_max: int, up_to: int | None) -> LaneSlice:
        now_us = self._host.now_us()
        top = position_order(last_at(now_us))
        if self.ends_at is not None:
            top = min(top, self.ends_at)
        if after >= top:
            return LaneSlice((), after, False)
        more = up_to is not None and up_to < top
        if up_to is not None:
            top = min(top, up_to)
        part_us = self._settings.now.part_us
        last_part = time_us_of(position_at(top)) // part_us
        part = max(time_us_of(position_at(after)), 0) // part_us
        quiet_us = self._index.quiet_until_us(part)
        if quiet_us is not None and now_us - quiet_us < QUIET_US:
            return LaneSlice((), max(after, min(top, position_order(last_at(quiet_us)))), False)
        rows: list[LaneRow] = []
        left = bytes_max
        while True:
            rows_of_part, reached, full = await self.read_part(part, after, top, left, up_to_now=True)
            rows += rows_of_part
            left -= sum(row.size_bytes for row in rows_of_part)
            if full or (left <= 0 and reached < top):
                return LaneSlice(rows, reached, True)
            if part >= last_part:
                return LaneSlice(rows, top, more)
            part = await self._index.next_part(part + 1, last_part)
            after = position_order(last_at(part * part_us - 1))

    def quiet_up_to(self, after: int) -> int | None:
        """The order up to which nothing lies behind that one, as the empty lanes of the process found together; None
        where they have not, or long ago."""
        at_us = max(time_us_of(position_at(after)), 0)
        until_us = self._index.quiet_until_us(at_us // self._settings.now.part_us)
        if until_us is None or at_us - until_us >= QUIET_US:
            return None
        quiet = position_order(last_at(until_us))
        return max(after, quiet if self.ends_at is None else min(quiet, self.ends_at))

    def has_gone(self, row: LaneRow) -> bool:
        """Whether it was moved to a later generation, and this owner has not finished it."""
        return any(map(self._is_later, row.moved.values()))

    def _is_later(self, place: bytes) -> bool:
        return MessagePlace.from_bytes(place).row.generation > self._generation

    async def read_part(
        self, part: int, after: int, top: int, left: int, *, up_to_now: bool = False
    ) -> tuple[list[LaneRow], int, bool]:
        """Its rows above `after`, up to `top`, how far they are complete, and whether the bound cut them.
        `up_to_now`: `top` is no later than now."""
        upper = min(top, position_order(last_at((part + 1) * self._settings.now.part_us - 1)))
        stored = await self._stored.read(part, after, upper, bytes_max=left, up_to_now=up_to_now)
        rows: list[LaneRow] = []
        for turn, (order, sub, row) in enumerate(stored.rows, 1):
            if turn % ROWS_A_TURN == 0:
                await asyncio.sleep(0)
            try:
                run = read_run(row.run) if row.run is not None else None
            except RowBroken as error:
                rows.append(self._unreadable_row(part, order, sub, row, error))
                continue
            size = self._noted_size(row.run)
            row_read = self._plain_row(part, order, sub, row.due, run, size) if _is_plain(row, run) else None
            rows.append(await self._lane_row(part, order, sub, row, run, size) if row_read is None else row_read)
        return rows, stored.reached, stored.is_cut

    async def as_it_stands(self, part: int, sub: int, row: Any) -> LaneRow:
        """A stored row in the lane's form: for callers that read rows otherwise, and found an unusual one."""
        order = position_order(row.due)
        try:
            run = read_run(row.run) if row.run is not None else None
        except RowBroken as error:
            return self._unreadable_row(part, order, sub, row, error)
        return await self._lane_row(part, order, sub, row, run, self._noted_size(row.run))

    def _noted_size(self, cell: bytes | None) -> int:
        size = memory_of(cell) if cell is not None else 0
        if size:
            self._stored.note_size(size)
        return size

    def _unreadable_row(self, part: int, order: int, sub: int, row: Any, error: RowBroken) -> LaneRow:
        """A row that is passed over, whatever is on record about its messages: their number is not known, and no
        record names more of them than a row can hold. One that was cancelled is passed like any other."""
        is_cancelled = row.cancelled is not None
        counted = 0 if is_cancelled else count_of(row.run, most=ROW_MESSAGES_MAX)
        content = RowContent(RowPlace(self._generation, sub, self._shard, row.due), None, row.due, counted)
        content.unreadable = "" if is_cancelled else str(error)
        settled = bits_of(0, ROW_MESSAGES_MAX)
        key = row_key(sub, row.due, row.due)
        return LaneRow(key, order, ROW_MESSAGES_MAX, ROW_MEMORY_BYTES, content, part, settled=settled)

    def _plain_row(
        self, part: int, order: int, sub: int, due: UUID, run: PackedRun | None, size: int
    ) -> LaneRow | None:
        """A usual row: nothing else has to be read to classify it. None if a restamped row of it goes instead."""
        if run is None or not self._families.choose_first(due):
            return None
        count = len(run.payload)
        return LaneRow(
            sub.to_bytes(2, "big") + due.bytes,
            order,
            count,
            size + ROW_MEMORY_BYTES,
            RowContent(RowPlace(self._generation, sub, self._shard, due), run, due, count, size),
            part,
            groups=run.group,
            attempts=run.attempt,
            settled=put_before(run, self.purged_before_us),
        )

    async def _lane_row(self, part: int, order: int, sub: int, row: Any, run: PackedRun | None, size: int) -> LaneRow:
        count = len(run) if run is not None else 1
        place = RowPlace(self._generation, sub, self._shard, row.due)
        first = row.due
        if run is not None and run.replaces is not None:
            first = MessagePlace.from_bytes(run.replaces).row.due
        settled = bits_of(0, count)
        counted = count if run is not None and row.cancelled is None else 0
        moved: dict[int, bytes] = {}
        if run is not None and row.cancelled is None:
            if not await self._families.choose(first, row.due):
                counted = 0 if time_us_of(first) // self._settings.now.part_us == part else count
            elif row.moved is None:
                settled = await self._voided(run, row.due)
            elif count == 1 and not (order <= self.finished_up_to and self._is_later(row.moved)):
                settled = put_before(run, self.purged_before_us)
                moved = {0: row.moved}
        return LaneRow(
            key=row_key(sub, row.due, first),
            order=order,
            count=count,
            size_bytes=size + ROW_MEMORY_BYTES,
            content=RowContent(place, run, first, counted, size),
            where=part,
            groups=run.group if run is not None else None,
            attempts=run.attempt if run is not None else None,
            settled=settled,
            moved=moved,
            stands_at=_stands_at(run),
        )

    async def _voided(self, run: PackedRun, due: UUID) -> int:
        """The bits of messages that are purged, or whose first row was cancelled after they were copied."""
        voided = put_before(run, self.purged_before_us)
        if run.message_id is not None and len(run) == 1 and run.message_id[0]:
            origin = MessagePlace.from_bytes(run.message_id[0]).row
            if origin.due != due and await self._is_cancelled(origin):
                return 1
        return voided

    async def _is_cancelled(self, origin: RowPlace) -> bool:
        key: dict[str, Value] = {
            "queue": self._settings.now.queue,
            "generation": origin.generation,
            "part": origin.part(self._settings.now.part_us),
            "sub": origin.sub,
            "shard": origin.shard,
            "due": origin.due,
        }
        tables = self._settings.now.tables
        table = tables.later if origin.lies_later else tables.work
        rows = await self._host.store.read(Select(table, key, ("cancelled",)))
        return bool(rows) and rows[0].cancelled is not None


def _blank(run: PackedRun, index: int) -> int:
    """Drop what one message of a run holds; how many bytes that frees."""
    freed = MESSAGE_FREED_BYTES
    for column in (run.payload, run.attributes):
        if isinstance(column, list):
            freed += len(column[index])
            column[index] = b""
    return freed


def _is_plain(row: Any, run: PackedRun | None) -> bool:
    """Whether it is neither a restamped row nor a copy, neither cancelled nor moved, and exists."""
    return (
        run is not None
        and run.replaces is None
        and run.message_id is None
        and row.cancelled is None
        and row.moved is None
    )


def _stands_at(run: PackedRun | None) -> int | None:
    """The order of the place at which its messages were first put, where that is another."""
    given = run.message_id[0] if run is not None and run.message_id is not None else b""
    return position_order(MessagePlace.from_bytes(given).row.due) if given else None


def row_key(sub: int, due: UUID, first: UUID) -> bytes:
    """A row of a part, as records name it; a restamped row's name contains its lineage, so that a new owner continues
    with the same."""
    own = sub.to_bytes(2, "big") + due.bytes
    return own if due == first else own + first.bytes


def family_of(key: bytes) -> tuple[UUID, UUID]:
    """The due ids in a key: of the row, and of its lineage's first stamped place."""
    due = UUID(bytes=key[2:18])
    return due, UUID(bytes=key[18:]) if len(key) > 18 else due


def put_before(run: PackedRun | None, time_us: int) -> int:
    """The bits of the messages that were first put before a given time."""
    if run is None or time_us <= 0:
        return 0
    return sum(1 << index for index, put_us in enumerate(run.put_us) if put_us < time_us)
