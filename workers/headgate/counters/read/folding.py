"""Folding: the updates with tokens of a minute become one shard for each key, once nothing of it is acknowledged any
more. The prose is "Tokens" in docs/internals/protocols/counters.md; the decisions are in decide_tokens.py.

Any process folds. Concurrent and interrupted folds do no harm: shards, their ids and timestamps follow from the
minute, so folding it again writes the same.

Invariants: minutes of a bucket are folded in order; `folded` is written only when all shards of its minute are
durable, and in a write of its own; the rows of a minute are deleted only an hour after that was durable, whole
partitions at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.counters.model.decide_shards import whole_keys
from headgate.counters.model.decide_tokens import Token, decide_last_foldable, fold_id, fold_stamp_us, removable
from headgate.counters.model.decide_windows import GrainWindow, ttl_s, window_at
from headgate.counters.model.settings import CounterSettings
from headgate.counters.read.reading import Reader
from headgate.counters.types.contract import CounterType
from headgate.counters.write.mutator import FLUSH_BYTES_MAX, FLUSH_ROWS_MAX
from headgate.engines.context import Host
from headgate.process.live import Live
from headgate.store.model.shapes import InsertShape, insert_shape
from headgate.store.model.statements import Delete, RowsOf, Select, Slice, SliceBound, Update
from headgate.store.model.types import Value

PAGE_ROWS = 1_000
MINUTES_MAX = 10_000
"""Marks read at a time."""
WRITES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Folded:
    minutes: int = 0
    keys: int = 0
    removed: int = 0
    folded: int | None = None
    tokened: int | None = None


class Folder:
    def __init__(
        self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any], reader: Reader
    ) -> None:
        self.host = host
        self.live = settings
        self.kind = kind
        self._reader = reader
        names = ("counter", "bucket", "key", "mutator", "state")
        self._shape = insert_shape(self.settings.tables.shards, names, False)

    @property
    def settings(self) -> CounterSettings:
        """As the catalogue was last read; fixed fields stay fixed."""
        return self.live.now

    async def fold(self, bucket: int) -> Folded:
        """All minutes of a bucket that can be folded now; and delete the rows of those folded long enough ago."""
        folded, tokened = await self._reader.read_marks(bucket)
        if tokened is None:
            return Folded()
        settings = self.settings
        last = decide_last_foldable(self.host.now_us(), settings.token_window_us, settings.skew_us)
        last = min(last, tokened)
        minutes = keys = 0
        if folded is None or folded < last:
            for minute in await self._marked(bucket, after=folded, up_to=last):
                keys += await self._fold_minute(bucket, minute)
                await self._write_folded(bucket, minute)
                minutes += 1
            await self._write_folded(bucket, last)  # minutes without a mark hold nothing that was acknowledged
            folded = last
        removed = await self._remove(bucket, folded)
        return Folded(minutes, keys, removed, folded, tokened)

    async def _marked(self, bucket: int, *, after: int | None, up_to: int) -> list[int]:
        lower = SliceBound(after, False) if after is not None else None
        rows = await self.host.store.read(
            Select(
                self.settings.tables.minutes,
                self._partition(bucket),
                ("minute",),
                within=Slice("minute", lower, SliceBound(up_to, True)),
            )
        )
        return [row.minute for row in rows]

    # ---- one minute

    async def _fold_minute(self, bucket: int, minute: int) -> int:
        place: dict[str, Value] = {**self._partition(bucket), "minute": minute}
        table = self.settings.tables.tokens
        after: str | None = None
        keys = 0
        while True:
            within = Slice("key", SliceBound(after, False)) if after is not None else None
            names = ("key", "token", "state")
            rows = await self.host.store.read(Select(table, place, names, within=within, limit=PAGE_ROWS))
            last, more = whole_keys([row.key for row in rows], PAGE_ROWS)
            if last is None and more:  # one key with more tokens than a page: read by itself
                last = rows[0].key
                rows = await self.host.store.read(Select(table, {**place, "key": last}, names))
            elif more:
                rows = [row for row in rows if row.key <= last]
            keys += await self._write_minute(bucket, minute, rows)
            if not more:
                return keys
            after = last

    async def _write_minute(self, bucket: int, minute: int, rows: Sequence[Any]) -> int:
        totals: dict[str, list[bytes]] = {}
        windows: dict[GrainWindow, dict[str, list[bytes]]] = {}
        for row in rows:  # in the order of tokens
            totals.setdefault(row.key, []).append(row.state)
            time_us = Token.parse(row.token).time_us
            for grain in self.settings.grains_us:
                window = window_at(time_us, grain)
                windows.setdefault(window, {}).setdefault(row.key, []).append(row.state)
        counter = self.settings.counter
        writes = list(self._rows_of(self._shape, (counter, bucket), minute, totals, None))
        for window, states_in_window in windows.items():
            ttl = self._ttl_s(window)
            if ttl > 0:
                lead = (counter, window.grain_us, window.start_us, bucket)
                writes += self._rows_of(self._window_shape(), lead, minute, states_in_window, ttl)
        for first in range(0, len(writes), WRITES_AT_ONCE):
            some = writes[first : first + WRITES_AT_ONCE]
            await asyncio.gather(*(self.host.store.write(each) for each in some))
        return len(totals)

    def _rows_of(
        self,
        shape: InsertShape,
        lead: tuple[Value, ...],
        minute: int,
        states: dict[str, list[bytes]],
        ttl: int | None,
    ) -> Iterable[RowsOf]:
        mutator, stamp = fold_id(minute), (fold_stamp_us(minute), ttl)
        some: list[tuple[str, bytes, bytes]] = []
        size = 0
        for key, state_of_key in states.items():
            state = self.kind.dump(self.kind.merge_all([self.kind.load(each) for each in state_of_key]))
            if some and (size + len(state) > FLUSH_BYTES_MAX or len(some) >= FLUSH_ROWS_MAX):
                yield RowsOf(shape, lead, some, [stamp] * len(some))
                some, size = [], 0
            some.append((key, mutator, state))
            size += len(state)
        if some:
            yield RowsOf(shape, lead, some, [stamp] * len(some))

    def _window_shape(self) -> InsertShape:
        names = ("counter", "grain", "start", "bucket", "key", "mutator", "state")
        return insert_shape(self.settings.tables.windows, names, False)

    def _ttl_s(self, window: GrainWindow) -> int:
        now_us = self.host.now_us()
        lasts_s = ttl_s(window, self.settings.retention_us, now_us)
        return min(lasts_s, self.host.last_expiry_s - now_us // 1_000_000)

    async def _write_folded(self, bucket: int, minute: int) -> None:
        """The timestamp is the minute: of two folders the one that has come farther counts."""
        if minute < 1:
            return
        partition = self._partition(bucket)
        await self.host.store.write(
            Update(self.settings.tables.shards, partition, {"folded": minute}, timestamp_us=minute)
        )

    # ---- letting go

    async def _remove(self, bucket: int, folded: int | None) -> int:
        """Rows of minutes that were folded an hour ago; for those that were just folded, record the time."""
        if folded is None:
            return 0
        tables, partition = self.settings.tables, self._partition(bucket)
        within = Slice("minute", None, SliceBound(folded, True))
        rows = await self.host.store.read(
            Select(tables.minutes, partition, ("minute", "folded_us"), within=within, limit=MINUTES_MAX)
        )
        now_us, skew_us = self.host.now_us(), self.settings.skew_us
        for row in rows:
            if row.folded_us is None:
                place = {**partition, "minute": row.minute}
                await self.host.store.write(Update(tables.minutes, place, {"folded_us": now_us}, timestamp_us=now_us))
        gone = []
        for row in rows:
            if not removable(row.folded_us, now_us=now_us, skew_us=skew_us):
                break
            gone.append(row.minute)
        for minute in gone:
            await self.host.store.write(Delete(tables.tokens, {**partition, "minute": minute}, timestamp_us=now_us))
        if gone:  # one range, and not a tombstone for each
            whole = Slice("minute", None, SliceBound(gone[-1], True))
            await self.host.store.write(Delete(tables.minutes, partition, timestamp_us=now_us, within=whole))
        return len(gone)

    def _partition(self, bucket: int) -> dict[str, Value]:
        return {"counter": self.settings.counter, "bucket": bucket}
