"""Folding: the updates with tokens of a minute become one shard for each key, once nothing of it is acknowledged any
more. The prose is "Tokens" in docs/internals/protocols/counters.md; the decisions are in decide_tokens.py.

Any process folds. Concurrent and interrupted folds do no harm: shards, their ids and timestamps follow from the
minute, so folding it again writes the same.

Invariants: minutes of a bucket are folded in order; `folded` is written only when all shards of its minute are
durable, and in a write of its own; the rows of a minute are deleted only an hour after that was durable, whole
partitions at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.counters.model.decide_tokens import Token, decide_last_foldable, fold_id, fold_stamp_us, removable
from headgate.counters.model.decide_windows import TOTAL, GrainWindow, Place, places_at
from headgate.counters.model.settings import CounterSettings
from headgate.counters.read.reading import Reader
from headgate.counters.types.contract import CounterType
from headgate.counters.write.part import CounterPart
from headgate.engines.context import Host
from headgate.process.live import Live
from headgate.store.model.statements import Delete, RowsOf, Select, Slice, SliceBound, Update

PAGE_ROWS = 1_000
WINDOW_PAGE_ROWS = 500
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


class Folder(CounterPart):
    def __init__(
        self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any], reader: Reader
    ) -> None:
        super().__init__(host, settings, kind)
        self._reader = reader

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
            for minute in await self._reader.read_minutes(bucket, after=folded, up_to=last):
                keys += await self._fold_minute(bucket, minute)
                await self._write_folded(bucket, minute)
                minutes += 1
            await self._write_folded(bucket, last)  # minutes without a mark hold nothing that was acknowledged
            folded = last
        removed = await self._remove(bucket, folded)
        return Folded(minutes, keys, removed, folded, tokened)

    async def _fold_minute(self, bucket: int, minute: int) -> int:
        keys = 0
        place = {**self.partition(bucket), "minute": minute}
        async for rows in self.read_pages(self.settings.tables.tokens, place, ("key", "token", "state"), PAGE_ROWS):
            keys += await self._write_minute(bucket, minute, rows)
        return keys

    async def _write_minute(self, bucket: int, minute: int, rows: Sequence[Any]) -> int:
        """The shards of some keys, durable when this returns."""
        states: dict[Place, dict[str, list[bytes]]] = {TOTAL: {}}
        for row in rows:  # in the order of tokens
            for place in places_at(Token.parse(row.token).time_us, self.settings.grains_us):
                states.setdefault(place, {}).setdefault(row.key, []).append(row.state)
        mutator, stamp_us, now_us = fold_id(minute), fold_stamp_us(minute), self.host.now_us()
        writes: list[RowsOf] = []
        for place, by_key in states.items():
            if place == TOTAL or self.ttl_s(place, now_us) > 0:
                shards = ((key, mutator, self.kind.dump(self.merged(each))) for key, each in by_key.items())
                writes += self.build_rows(bucket, place, shards, stamp_us=stamp_us, now_us=now_us)
        for first in range(0, len(writes), WRITES_AT_ONCE):
            some = writes[first : first + WRITES_AT_ONCE]
            await asyncio.gather(*(self.host.store.write(each) for each in some))
        return len(states[TOTAL])

    async def _write_folded(self, bucket: int, minute: int) -> None:
        """The timestamp is the minute: of two folders the one that has come farther counts."""
        if minute >= 1:
            shards = self.settings.tables.shards
            await self.host.store.write(
                Update(shards, self.partition(bucket), {"folded": minute}, timestamp_us=minute)
            )

    async def _remove(self, bucket: int, folded: int | None) -> int:
        """Rows of minutes that were folded an hour ago; for those that were just folded, record the time."""
        if folded is None:
            return 0
        tables, partition = self.settings.tables, self.partition(bucket)
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


class WindowReader(CounterPart):
    """Whole windows, for callers that export a time series; one key of a window is reading.py's. A window is whole
    once it is final (decide_windows.py) and its bucket's minutes were folded, which this does first."""

    def __init__(self, host: Host, settings: CounterSettings, kind: CounterType[Any, Any]) -> None:
        super().__init__(host, Live(settings), kind)
        self._folder = Folder(host, self.live, kind, Reader(host, self.live, kind))

    async def keys(self, bucket: int, window: GrainWindow) -> AsyncIterator[tuple[str, Any]]:
        """Each key that was counted in it, in order, with its merged state; a page of them in memory at a time."""
        await self._folder.fold(bucket)
        partition = self.partition(bucket, (window.grain_us, window.start_us))
        table, names = self.settings.tables.windows, ("key", "mutator", "state")
        async for rows in self.read_pages(table, partition, names, WINDOW_PAGE_ROWS):
            by_key: dict[str, list[bytes]] = {}
            for row in rows:
                if row.state is not None:
                    by_key.setdefault(row.key, []).append(row.state)
            for key, states in by_key.items():
                yield key, self.merged(states)
