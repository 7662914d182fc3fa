"""Reads queues of engine timeline in bulk: plans splits by the index of parts and by put counts, and probes large
partitions ("Source: a batch" in docs/internals/protocols/spark.md). rows.py reads them.

It takes nothing: plain reads, no lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa

from headgate.client.queue import Queue
from headgate.engines.lanes.lane_name import parse_lane
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.lane_snapshot import list_lane_views
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.part_list import parts_from
from headgate.store.model.positions import first_at, last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value
from headgate_spark.engines.contract import LIVE, HistorySplit, Pick, ScanRequest
from headgate_spark.engines.timeline.decide_splits import (
    PROBE_ROWS,
    Probe,
    SplitStretch,
    decide_splits,
    heaviest,
    ranges_to_probe,
    weigh,
)
from headgate_spark.engines.timeline.rows import HistoryRows, LiveRows, PickedRows, partition_of

T = TypeVar("T")

READS_AT_ONCE = 64
PROBED_MAX = 512
"""The maximum number of probed partitions, the heaviest first."""
UNCOUNTED = 1.0
"""The weight of a part without counts: its producer died within a second, or counted nothing."""
FAR = 2**63


@dataclass(frozen=True)
class _Part:
    """A part that holds something in the range."""

    generation: GenerationSettings
    number: int
    subs: tuple[int, ...]
    messages: int


class TimelineScan:
    """`EngineScan` for timeline."""

    async def plan(self, queue: Queue, request: ScanRequest) -> Sequence[Any]:
        return await _Planning(engine_of(queue), request).plan()

    def read(self, queue: Queue, request: ScanRequest, split: Any) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one split, in the order of each part's subs."""
        engine, now_us = engine_of(queue), queue.now_us()
        is_live = request.state == LIVE
        rows = LiveRows(engine, request.columns, now_us) if is_live else HistoryRows(engine, request.columns)
        return rows.read(split)

    def read_picked(
        self, queue: Queue, request: ScanRequest, lane: str, picks: Sequence[Pick]
    ) -> AsyncIterator[pa.RecordBatch]:
        rows = PickedRows(engine_of(queue), request.columns, parse_lane(lane), picks)
        return rows.read(rows.stretches())

    async def history(self, queue: Queue, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """One for each lane and part that holds something: planning reads the index of the range's days alone."""
        engine = engine_of(queue)
        part_us, host = engine.settings.part_us, engine.host
        splits = []
        for generation in engine.settings.generations:
            async for part, subs in parts_from(host, engine.settings, generation.number, from_us // part_us):
                if part * part_us >= until_us:
                    break
                begin, end = max(part * part_us, from_us), min((part + 1) * part_us, until_us)
                if begin < end:
                    lanes = [f"{generation.number}/{shard}" for shard in range(generation.shards)]
                    splits += [HistorySplit(lane, part, subs, begin, end) for lane in lanes]
        return sorted(splits, key=lambda split: (split.where, split.lane))

    def read_history(
        self, queue: Queue, split: HistorySplit, columns: Sequence[str]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Each message at its first place, as in `read`."""
        after, up_to = (position_order(first_at(time_us)) - 1 for time_us in (split.from_us, split.until_us))
        generation, shard = parse_lane(split.lane)
        stretches = [SplitStretch(generation, shard, split.where, sub, after, up_to, 0.0) for sub in split.subs]
        return HistoryRows(engine_of(queue), columns, cancelled_too=False).read(stretches)


def engine_of(queue: Queue) -> TimelineQueue:
    """The registry leads queues of this engine alone here."""
    return cast(TimelineQueue, queue.engine)


class _Planning:
    def __init__(self, engine: TimelineQueue, request: ScanRequest) -> None:
        self._host = engine.host
        self._settings = engine.settings
        self._request = request

    async def plan(self) -> list[list[SplitStretch]]:
        lanes = await self._lanes()
        stretches: list[SplitStretch] = []
        for generation in self._settings.generations:
            of_generation = {shard: after for (number, shard), after in lanes.items() if number == generation.number}
            if of_generation:
                stretches += await self._of_generation(generation, of_generation)
        return decide_splits(stretches, weight_max=self._request.messages_per_split)

    async def _lanes(self) -> dict[tuple[int, int], int]:
        """By lane, the order above which it is read."""
        wanted = self._request.wanted
        first = position_order(first_at(0)) if wanted.first is None else wanted.first
        if self._request.state != LIVE:
            return {
                (each.number, shard): first - 1
                for each in self._settings.generations
                for shard in range(each.shards)
                if wanted.has_lane(each.number, shard)
            }
        views = await list_lane_views(self._host, self._settings, {})
        return {
            (view.generation, view.shard): max(first - 1, view.position)
            for view in views
            if not view.state.is_retired and wanted.has_lane(view.generation, view.shard)
        }

    async def _of_generation(self, generation: GenerationSettings, after: dict[int, int]) -> list[SplitStretch]:
        stretches = []
        for part in await self._parts(generation, min(after.values())):
            start, end = self._bounds(part.number)
            share = (part.messages or UNCOUNTED) / (len(part.subs) * generation.shards)
            stretches += [
                SplitStretch(generation.number, shard, part.number, sub, max(low, start - 1), end, share)
                for sub in part.subs
                for shard, low in after.items()
                if low < end
            ]
        return await self._probed(stretches, generation)

    def _bounds(self, part: int) -> tuple[int, int]:
        """The first and the last order of a part that are wanted."""
        wanted, part_us = self._request.wanted, self._settings.part_us
        start = position_order(first_at(part * part_us))
        end = position_order(last_at((part + 1) * part_us - 1))
        return (
            start if wanted.first is None else max(start, wanted.first),
            end if wanted.last is None else min(end, wanted.last),
        )

    async def _parts(self, generation: GenerationSettings, after: int) -> list[_Part]:
        """Those that hold messages in the range, with their counts."""
        part_us, wanted = self._settings.part_us, self._request.wanted
        last = FAR if wanted.last is None else time_us_of(position_at(wanted.last)) // part_us
        parts = []
        first = max(time_us_of(position_at(after)), 0) // part_us
        async for number, subs in parts_from(self._host, self._settings, generation.number, first):
            if number > last:
                break
            parts.append((number, subs))
        counts = await _some_at_once([self._count(generation.number, number) for number, _ in parts])
        return [_Part(generation, number, subs, count) for (number, subs), count in zip(parts, counts, strict=True)]

    async def _count(self, generation: int, part: int) -> int:
        key: dict[str, Value] = {"queue": self._settings.queue, "generation": generation, "part": part}
        rows = await self._host.store.read(Select(self._settings.tables.put_counts, key, ("messages",)))
        return max(0, sum(int(row.messages) for row in rows))

    # ---- probing

    async def _probed(self, stretches: Sequence[SplitStretch], generation: GenerationSettings) -> list[SplitStretch]:
        """Stretches of large parts, from their probed content. All of a part may be in one shard, so the part's
        weight is compared with the weight of a split."""
        lanes = generation.shards
        of_part = [each.weight * lanes for each in stretches]
        chosen = heaviest(of_part, above=self._request.messages_per_split, most=PROBED_MAX)
        probes = await _some_at_once([self._probe(stretches[at]) for at in sorted(chosen)])
        stretches_probed = [each for at, each in enumerate(stretches) if at not in chosen]
        by_part: dict[tuple[int, int], list[tuple[SplitStretch, list[Probe]]]] = {}
        for at, probed in zip(sorted(chosen), probes, strict=True):
            by_part.setdefault((stretches[at].part, stretches[at].sub), []).append((stretches[at], probed))
        for together in by_part.values():
            rows = sum(probe.rows_estimated for _, probed in together for probe in probed)
            messages = sum(stretch.weight for stretch, _ in together)
            for stretch, probed in together:
                stretches_probed += weigh(stretch, probed, messages_a_row=max(messages / rows, 1.0) if rows else 1.0)
        return stretches_probed

    async def _probe(self, stretch: SplitStretch) -> list[Probe]:
        first = await self._keys(stretch, stretch.after, stretch.up_to, 1)
        last = await self._keys(stretch, stretch.after, stretch.up_to, 1, backwards=True)
        if not first or not last:
            return []
        ranges = ranges_to_probe(stretch.after, first[0], last[0])
        key_lists = await asyncio.gather(*(self._keys(stretch, low, high, PROBE_ROWS) for low, high in ranges))
        probes = [
            Probe(low, high, len(keys), keys[-1] if keys else high)
            for (low, high), keys in zip(ranges, key_lists, strict=True)
        ]
        behind = Probe(last[0], stretch.up_to, 1, stretch.up_to)  # rows that arrive behind it meanwhile are read too
        return [*probes, behind]

    async def _keys(
        self, stretch: SplitStretch, after: int, up_to: int, limit: int, *, backwards: bool = False
    ) -> list[int]:
        if up_to <= after:
            return []
        within = Slice("due", SliceBound(position_at(after), False), SliceBound(position_at(up_to), True))
        table, key = partition_of(self._settings, stretch)
        select = Select(table, key, ("due",), within=within, limit=limit, backwards=backwards)
        return [position_order(row.due) for row in await self._host.store.read(select)]


async def _some_at_once(works: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, this many at a time."""
    results: list[T] = []
    for start in range(0, len(works), READS_AT_ONCE):
        results += await asyncio.gather(*works[start : start + READS_AT_ONCE])
    return results
