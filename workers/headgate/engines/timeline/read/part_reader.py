"""Reads the stored rows of one lane, part by part: all subs of a part merged by due.

It knows nothing of messages. Each read waits at the process's gate, for what it is expected to bring. The size of a
row is known only after it was read: until then one row is asked for.

Invariant: the caller takes the time up to which it reads before it calls, and the index and the rows are read later.
So all that was acknowledged by then, and is due up to then, is among what is read or counted as cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headgate.engines.context import Host
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.sub_keys import KEYS_EACH, SubKeys
from headgate.process.live import Live
from headgate.store.model.positions import position_at, position_order
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value

ROWS_MAX = 1000
ROW_BYTES_MIN = 200
UNKNOWN_ROW_BYTES = 1024 * 1024
"""What a row of unknown size is expected to bring: a message of the default `maxMessageSize`."""
KEY_BYTES = 100
COLUMNS = ("due", "run", "cancelled", "moved")


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows with their orders and subs, in order, and how far they are complete."""

    rows: Sequence[tuple[int, int, Any]]
    reached: int
    is_cut: bool
    """Whether there may be more below the upper end of the read."""


class PartReader:
    """The stored rows of one lane."""

    def __init__(
        self, host: Host, settings: Live[TimelineSettings], index: PartIndex, *, generation: int, shard: int
    ) -> None:
        self._host = host
        self._settings = settings
        self._index = index
        self._generation = generation
        self._shard = shard
        self._row_bytes: int | None = None
        """The size of a row, from the latest rows; None before the first."""
        self._is_behind = True
        """Whether the last read was cut: else a read is expected to bring little, though it may bring as much."""
        self._keys = SubKeys(-1, -1)

    def note_size(self, size_bytes: int) -> None:
        """A row takes this much: a large one counts at once, and is forgotten slowly, as the next may be as large."""
        before = self._row_bytes or size_bytes
        self._row_bytes = max(ROW_BYTES_MIN, size_bytes, (3 * before + size_bytes) // 4)

    async def read(self, part: int, after: int, upper: int, *, bytes_max: int, up_to_now: bool) -> StoredRows:
        """The rows above `after`, up to `upper`, as many as are expected to fit. `up_to_now`: nothing comes any more
        below `upper`, so keys that are left over serve the next read."""
        stored = await self._read(part, after, upper, bytes_max=bytes_max, up_to_now=up_to_now)
        self._is_behind = stored.is_cut
        return stored

    async def _read(self, part: int, after: int, upper: int, *, bytes_max: int, up_to_now: bool) -> StoredRows:
        rows_max = 1 if self._row_bytes is None else max(1, min(ROWS_MAX, bytes_max // self._row_bytes))
        keys = self._keys if up_to_now and (self._keys.part, self._keys.after) == (part, after) else None
        keys = SubKeys(part, after) if keys is None else keys
        known = self._index.known_subs(part)
        if len(known) > 1:
            stored = await self._read_merged(keys, known, upper, rows_max)
        else:
            named, only = await asyncio.gather(
                self._index.subs(part), self._read_only(part, known, after, upper, rows_max)
            )
            subs = tuple(dict.fromkeys((*known, *named)))
            if len(subs) <= 1:
                return only if subs == known else await self._read_only(part, subs, after, upper, rows_max)
            await self._learn(keys, subs, upper)
            stored = await self._read_next(keys, subs, upper, rows_max)
        if up_to_now:
            keys.pass_to(stored.reached)
            self._keys = keys
        return stored

    async def _read_merged(self, keys: SubKeys, known: Sequence[int], upper: int, rows_max: int) -> StoredRows:
        """The rows of several subs. Where their keys are known, the rows are read beside the index; the read counts
        if the index names no other sub."""
        if keys.unknown(known, upper):
            named, _ = await asyncio.gather(self._index.subs(keys.part), self._learn(keys, known, upper))
        else:
            named, stored = await asyncio.gather(
                self._index.subs(keys.part), self._read_next(keys, known, upper, rows_max)
            )
            if set(named) <= set(known):
                return stored
        subs = tuple(dict.fromkeys((*known, *named)))
        await self._learn(keys, subs, upper)
        return await self._read_next(keys, subs, upper, rows_max)

    async def _read_only(self, part: int, subs: Sequence[int], after: int, upper: int, limit: int) -> StoredRows:
        """The rows of a part that has one sub, or none."""
        if not subs:
            return StoredRows((), upper, False)
        (sub,) = subs
        rows = await self._select(part, sub, after, upper, limit=limit)
        is_cut = len(rows) >= limit
        ordered = [(position_order(row.due), sub, row) for row in rows]
        return StoredRows(ordered, ordered[-1][0] if is_cut else upper, is_cut)

    async def _learn(self, keys: SubKeys, subs: Sequence[int], upper: int) -> None:
        """Read the next keys of the subs of which none is known."""

        async def learn(sub: int) -> None:
            rows = await self._select(keys.part, sub, keys.after, upper, limit=KEYS_EACH, columns=("due",))
            keys.learn(sub, [position_order(row.due) for row in rows], upper=upper)

        await asyncio.gather(*map(learn, keys.unknown(subs, upper)))

    async def _read_next(self, keys: SubKeys, subs: Sequence[int], upper: int, rows_max: int) -> StoredRows:
        """The rows with the next keys. One that landed among them meanwhile may take the place of the last."""
        chosen = keys.choose(subs, upper, rows=rows_max)
        reads = [
            self._select(keys.part, sub, keys.after, orders[-1], limit=len(orders))
            for sub, orders in chosen.by_sub.items()
        ]
        slices = dict(zip(chosen.by_sub, await asyncio.gather(*reads), strict=True))
        reached = chosen.bound
        for sub, rows in slices.items():
            if len(rows) >= len(chosen.by_sub[sub]):
                last = position_order(rows[-1].due)
                reached = min(reached, last) if last < chosen.by_sub[sub][-1] else reached
        ordered = [
            (order, sub, row)
            for sub, rows in slices.items()
            for row in rows
            if (order := position_order(row.due)) <= reached
        ]
        ordered.sort(key=lambda each: each[0])
        return StoredRows(ordered, reached, reached < upper)

    async def _select(
        self, part: int, sub: int, after: int, upper: int, *, limit: int, columns: Sequence[str] = COLUMNS
    ) -> Sequence[Any]:
        settings = self._settings.now
        key: dict[str, Value] = {
            "queue": settings.queue,
            "generation": self._generation,
            "part": part,
            "sub": sub,
            "shard": self._shard,
        }
        table = settings.tables.later if sub >= LATER_SUBS_FROM else settings.tables.work
        within = Slice("due", SliceBound(position_at(after), False), SliceBound(position_at(upper), True))
        row_bytes = KEY_BYTES if columns is not COLUMNS else self._row_bytes or UNKNOWN_ROW_BYTES
        async with self._host.read_gate.read((limit if self._is_behind else 1) * row_bytes):
            return await self._host.store.read(Select(table, key, columns, within=within, limit=limit))
