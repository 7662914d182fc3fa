"""What the parts of a counter in one process share: the store, the live settings, the type, and the form of rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from headgate.counters.model.decide_shards import whole_keys
from headgate.counters.model.decide_windows import TOTAL, GrainWindow, Place, ttl_s
from headgate.counters.model.settings import CounterSettings
from headgate.counters.types.contract import CounterType
from headgate.engines.context import Host
from headgate.errors import Unavailable
from headgate.process.background_tasks import BackgroundTasks
from headgate.process.live import Live
from headgate.store.model.shapes import insert_shape
from headgate.store.model.statements import RowsOf, Select, Slice, SliceBound
from headgate.store.model.table import Table
from headgate.store.model.types import Value

FLUSH_ROWS_MAX = 1_000
FLUSH_BYTES_MAX = 4 * 1024 * 1024
WRITE_WITHIN_S = 10.0
"""After this time without an answer, callers get an unknown outcome; the write itself continues."""
CLOCK_WITHIN_S = 10.0
CLOCK_PAUSE_S = 0.05
SHARD = ("counter", "bucket", "key", "mutator", "state")
WINDOW_SHARD = ("counter", "grain", "start", "bucket", "key", "mutator", "state")


class CounterPart:
    """One part of one counter."""

    def __init__(self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any]) -> None:
        self.host = host
        self.live = settings
        self.kind = kind
        self._shape = insert_shape(self.settings.tables.shards, SHARD, False)

    @property
    def settings(self) -> CounterSettings:
        """As the catalogue was last read; fixed fields stay fixed."""
        return self.live.now

    def partition(self, bucket: int, place: Place = TOTAL) -> dict[str, Value]:
        """Of the totals of a bucket, or of one of its windows."""
        if place == TOTAL:
            return {"counter": self.settings.counter, "bucket": bucket}
        return {"counter": self.settings.counter, "grain": place[0], "start": place[1], "bucket": bucket}

    def merged(self, states: Iterable[bytes]) -> Any:
        load = self.kind.load
        return self.kind.merge_all([load(state) for state in states])

    def ttl_s(self, place: Place, now_us: int) -> int:
        """Of a write into a window now; zero or less where it would be expired already."""
        lasts_s = ttl_s(GrainWindow(place[1], place[0]), self.settings.retention_us, now_us)
        return min(lasts_s, self.host.last_expiry_s - now_us // 1_000_000)

    def build_rows(
        self, bucket: int, place: Place, shards: Iterable[tuple[str, bytes, bytes]], *, stamp_us: int, now_us: int
    ) -> Iterator[RowsOf]:
        """Shards (key, mutator, state) in batches that one request can take."""
        shape, ttl = self._shape, None
        lead: tuple[Value, ...] = (self.settings.counter, bucket)
        if place != TOTAL:
            shape = insert_shape(self.settings.tables.windows, WINDOW_SHARD, False)
            lead, ttl = (self.settings.counter, *place, bucket), self.ttl_s(place, now_us)
        some: list[tuple[str, bytes, bytes]] = []
        size = 0
        for shard in shards:
            if some and (size + len(shard[2]) > FLUSH_BYTES_MAX or len(some) >= FLUSH_ROWS_MAX):
                yield RowsOf(shape, lead, some, [(stamp_us, ttl)] * len(some))
                some, size = [], 0
            some.append(shard)
            size += len(shard[2])
        if some:
            yield RowsOf(shape, lead, some, [(stamp_us, ttl)] * len(some))

    async def read_pages(
        self, table: Table, partition: dict[str, Value], names: tuple[str, ...], limit: int
    ) -> AsyncIterator[Sequence[Any]]:
        """The rows of a partition, some keys at a time and each key whole. One with more rows than a page is read by
        itself."""
        after: str | None = None
        while True:
            within = Slice("key", SliceBound(after, False)) if after is not None else None
            rows = await self.host.store.read(Select(table, partition, names, within=within, limit=limit))
            after, more = whole_keys([row.key for row in rows], limit)
            if after is None and more:
                after = rows[0].key
                rows = await self.host.store.read(Select(table, {**partition, "key": after}, names))
            elif more:
                rows = [row for row in rows if row.key <= after]
            yield rows
            if not more:
                return


class Writer(CounterPart):
    """A part that writes in the background. It belongs to the event loop that runs when it is created."""

    def __init__(self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any], name: str) -> None:
        super().__init__(host, settings, kind)
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._tasks = BackgroundTasks(name)

    def has_waiting(self) -> bool:
        """Whether updates wait for their write."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._tasks or self.has_waiting():
            if self._tasks:
                await self._tasks.wait()
            else:
                await asyncio.sleep(0)

    async def close(self, within_s: float = WRITE_WITHIN_S) -> None:
        """Write pending updates; writes with an unknown outcome by then are abandoned, and their callers are
        notified."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.flush()
        self._closed = True
        await self._tasks.stop()

    async def read_trusted_us(self) -> int:
        """The time; where it is in doubt, as after a pause, no caller is rejected before the next comparison."""
        until_s: float | None = None
        while True:
            try:
                return self.host.now_us()
            except Unavailable:
                now_s = self.host.store.monotonic_s()
                until_s = until_s if until_s is not None else now_s + CLOCK_WITHIN_S
                if now_s >= until_s:
                    raise
            await self.host.store.pause(CLOCK_PAUSE_S)


def fail_callers(callers: Iterable[asyncio.Future[None]], error: BaseException) -> None:
    for future in callers:
        if not future.done():
            future.set_exception(error)


def acknowledge_callers(callers: Iterable[asyncio.Future[None]]) -> None:
    for future in callers:
        if not future.done():
            future.set_result(None)
