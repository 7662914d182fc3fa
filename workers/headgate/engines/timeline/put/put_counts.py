"""Writes one producer's acknowledged puts into each part, at most once per second ("Put counts" in
docs/internals/protocols/timeline.md). Best effort: a failed write is repeated with the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from headgate.engines.context import Host
from headgate.engines.summary.marks import Marks
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, RowPlace
from headgate.engines.timeline.model.partitions import Count, OwnParts
from headgate.engines.timeline.model.row import StampedRow
from headgate.engines.timeline.model.row_writes import count_statement
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.errors import HeadgateError
from headgate.process.supervised_loop import SupervisedLoop
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.puts")

COUNT_EVERY_S = 1.0
COUNTS_AT_ONCE_MAX = 64


class PutCounts:
    """The counting of one sender."""

    def __init__(
        self, host: Host, parts: OwnParts, settings: Callable[[], TimelineSettings], marks: Marks | None = None
    ) -> None:
        self._host = host
        self._marks = marks
        self._parts = parts
        self._settings = settings
        self._writing = SupervisedLoop("put counts", self._write_later, log=log)
        self._closing = False

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
            self._parts.acknowledged(
                generation, part, later=later, messages=messages, size_bytes=size_bytes, sent_us=sent_us
            )
        self._write_soon()

    def take_off(self, places: Sequence[RowPlace]) -> None:
        """A cancelled message counts no more: its reader does not count it."""
        part_us = self._settings().part_us
        for place in places:
            part = place.part(part_us)
            self._parts.acknowledged(place.generation, part, later=place.lies_later, messages=-1, size_bytes=0)
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._closing:
            self._writing.start()

    async def _write_later(self) -> None:
        while self._parts.changed and not self._closing:
            await asyncio.sleep(COUNT_EVERY_S)
            await self._write()

    async def _write(self) -> None:
        taken = self._parts.take_changed(COUNTS_AT_ONCE_MAX)
        try:
            now_us = self._host.now_us()
        except HeadgateError:
            self._parts.give_back(taken)
            return
        written = await asyncio.gather(*[self._write_one(count, now_us) for count in taken])
        self._parts.give_back(count for count, done in zip(taken, written, strict=True) if not done)

    async def _write_one(self, count: Count, now_us: int) -> bool:
        statement = count_statement(self._settings(), count, now_us=now_us, last_expiry_s=self._host.last_expiry_s)
        try:
            await self._host.store.write(statement, within_s=self._host.store.within_s)
        except STORE_ERRORS:
            return False
        return True

    async def close(self) -> None:
        """Write the owed counts."""
        self._closing = True
        await self._writing.stop()
        for _ in range(1 + self._parts.changed // COUNTS_AT_ONCE_MAX):
            await self._write()
