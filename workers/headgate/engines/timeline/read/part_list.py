"""The parts of one generation that hold something, from the index as it is now, in order; also those of the future.

For single calls: nothing is cached. Messages acknowledged before the start of the list are on it, since the index row
and that of its day are durable before an acknowledgement. A reader of lanes uses part_index.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import groupby
from typing import NamedTuple

from headgate.engines.context import Host
from headgate.engines.timeline.model.layout import DAYS, day_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value


class IndexedPart(NamedTuple):
    """A part that holds something, and its subs."""

    part: int
    subs: tuple[int, ...]
    is_announced: bool
    """Whether something may come late there."""


async def parts_from(
    host: Host, settings: TimelineSettings, generation: int, part: int
) -> AsyncIterator[tuple[int, tuple[int, ...]]]:
    """Each part from this one on that holds something, with its subs."""
    async for each in indexed_from(host, settings, generation, part):
        yield each.part, each.subs


async def indexed_from(
    host: Host,
    settings: TimelineSettings,
    generation: int,
    part: int,
    *,
    consistency: Consistency = Consistency.LOCAL_QUORUM,
) -> AsyncIterator[IndexedPart]:
    """The same, with what was announced there."""
    first = day_of(part, settings.part_us)
    for day in await _days_from(host, settings, generation, first, consistency):
        key: dict[str, Value] = {"queue": settings.queue, "generation": generation, "day": day}
        within = Slice("part", SliceBound(part, True), None) if day == first else None
        columns = ("part", "sub", "late_us")
        rows = await host.read(Select(settings.tables.parts, key, columns, within=within, consistency=consistency))
        for each, group in groupby(rows, lambda row: row.part):
            of_part = [(row.sub, row.late_us is not None) for row in group]
            yield IndexedPart(each, tuple(sub for sub, _ in of_part), any(late for _, late in of_part))


async def _days_from(
    host: Host, settings: TimelineSettings, generation: int, first: int, consistency: Consistency
) -> list[int]:
    key: dict[str, Value] = {"queue": settings.queue, "generation": generation, "day": DAYS}
    within = Slice("part", SliceBound(first, True), None)
    rows = await host.read(Select(settings.tables.parts, key, ("part",), within=within, consistency=consistency))
    return sorted({row.part for row in rows})
