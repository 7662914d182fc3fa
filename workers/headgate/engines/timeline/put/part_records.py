"""The records that accompany one producer's rows in each part: index rows, which are durable before a row is
acknowledged, and put counts and marks, which are written after it, at most once per second. The prose is "Put" in
docs/internals/protocols/timeline.md.

Counts are best effort: a failed write is repeated with the next, and of too many the oldest are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headgate.engines.context import Host
from headgate.engines.summary.marks import Marks
from headgate.engines.timeline.model.layout import DAYS, LATER_SUBS_FROM, RowPlace, day_of
from headgate.engines.timeline.model.partitions import (
    Count,
    IndexKey,
    OwnParts,
    count_statement,
    day_statement,
    index_statement,
)
from headgate.engines.timeline.model.row import RowPartition, StampedRow, index_key_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import SharedWork, SupervisedLoop
from headgate.store.model.statements import Insert
from headgate.store.store import REFUSALS, STORE_ERRORS

log = logging.getLogger("headgate.puts")

COUNT_EVERY_S = 1.0
COUNTS_EACH_MAX = 1_024
"""Counts that are written each time, some at once: as many as there are at 1,000 delayed messages per second, each in
a part of its own."""
COUNTS_AT_ONCE = 64


class PartRecords:
    """The index rows and the counts of one sender."""

    def __init__(self, host: Host, settings: Callable[[], TimelineSettings], marks: Marks | None) -> None:
        self.parts = OwnParts(host.uuid)
        self._host = host
        self._settings = settings
        self._marks = marks
        self._indexing: SharedWork[IndexKey, bool] = SharedWork("index rows")
        self._writing = SupervisedLoop("put counts", self._write_later, log=log)
        self._closing = False

    # ---- the index

    def forget_index(self) -> None:
        """The catalogue changed: no earlier index row counts as written."""
        self.parts.forget_index()
        self._indexing = SharedWork("index rows")

    def index(self, partitions: Sequence[RowPartition], now_us: int) -> list[asyncio.Future[bool]]:
        """The writes of index rows that these partitions lack, under way: each returns whether it is durable."""
        missing = self.parts.not_indexed(map(index_key_of, partitions))
        return [self._indexing.run(key, partial(self._index, key, self.parts.indexed, now_us)) for key in missing]

    async def _index(self, key: IndexKey, memory: set[IndexKey], now_us: int) -> bool:
        """The index row of a part and, unless it is known to exist, that of its day."""
        settings, last_expiry_s = self._settings(), self._host.last_expiry_s
        day = IndexKey(key.generation, day_of(key.part, settings.part_us), DAYS)
        rows = {key: index_statement(settings, key, now_us=now_us, last_expiry_s=last_expiry_s)}
        if day not in memory:
            rows[day] = day_statement(settings, day.generation, day.part, now_us=now_us, last_expiry_s=last_expiry_s)
        written = await asyncio.gather(*(self._write_row(each) for each in rows.values()))
        memory.update(key for key, done in zip(rows, written, strict=True) if done)
        return all(written)

    async def _write_row(self, row: Insert) -> bool:
        try:
            await self._host.store.write(row)
        except (Unavailable, *REFUSALS):
            return False
        return True

    # ---- the counts

    def add(self, rows: Sequence[StampedRow]) -> None:
        """These are durable."""
        if self._marks is not None:
            self._marks.add([row.due_us for row in rows], sent_us=rows[0].sent_us)
        totals: dict[tuple[int, int, bool], list[int]] = {}
        last, total = None, [0, 0]
        for row in rows:
            partition = row.partition
            if partition is not last:
                last = partition
                key = (partition.generation, partition.part, partition.sub >= LATER_SUBS_FROM)
                total = totals.setdefault(key, [0, 0])
            total[0] += row.count
            total[1] += len(row.cell)
        sent_us = max([row.sent_us for row in rows])
        for (generation, part, later), (messages, size_bytes) in totals.items():
            self.parts.acknowledged(
                generation, part, later=later, messages=messages, size_bytes=size_bytes, sent_us=sent_us
            )
        self._write_soon()

    def take_off(self, places: Sequence[RowPlace]) -> None:
        """A cancelled message counts no more: its reader does not count it."""
        part_us = self._settings().part_us
        for place in places:
            part = place.part(part_us)
            self.parts.acknowledged(place.generation, part, later=place.lies_later, messages=-1, size_bytes=0)
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._closing:
            self._writing.start()

    async def _write_later(self) -> None:
        while self.parts.changed and not self._closing:
            await asyncio.sleep(COUNT_EVERY_S)
            await self._write()

    async def _write(self) -> None:
        taken = self.parts.take_changed(COUNTS_EACH_MAX)
        try:
            now_us = self._host.now_us()
        except HeadgateError:
            self.parts.give_back(taken)
            return
        waiting = iter(taken)
        await asyncio.gather(*(self._write_counts(waiting, now_us) for _ in range(COUNTS_AT_ONCE)))

    async def _write_counts(self, counts: Iterator[Count], now_us: int) -> None:
        settings, last_expiry_s = self._settings(), self._host.last_expiry_s
        for count in counts:
            try:
                await self._host.store.write(
                    count_statement(settings, count, now_us=now_us, last_expiry_s=last_expiry_s)
                )
            except STORE_ERRORS:
                self.parts.give_back([count])

    async def close(self) -> None:
        """Write the owed counts, once: what cannot be written now is dropped."""
        self._closing = True
        await self._writing.stop()
        await self._write()
