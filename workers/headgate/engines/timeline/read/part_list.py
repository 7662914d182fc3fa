"""The parts of one generation that hold something, from the index as it is now, in order; also those of the future.

For single calls: nothing is cached. Messages acknowledged before the start of the list are on it, since the index row
and that of its day are durable before an acknowledgement. A reader of lanes uses part_index.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from headgate.engines.context import Host
from headgate.engines.timeline.model.layout import DAYS, day_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value


async def parts_from(
    host: Host,
    settings: TimelineSettings,
    generation: int,
    part: int,
    *,
    consistency: Consistency = Consistency.LOCAL_QUORUM,
) -> AsyncIterator[tuple[int, tuple[int, ...]]]:
    """Each part from this one on that holds something, with its subs."""
    first = day_of(part, settings.part_us)
    for day in await _days_from(host, settings, generation, first, consistency):
        key: dict[str, Value] = {"queue": settings.queue, "generation": generation, "day": day}
        within = Slice("part", SliceBound(part, True), None) if day == first else None
        rows = await host.store.read(
            Select(settings.tables.parts, key, ("part", "sub"), within=within, consistency=consistency)
        )
        subs: dict[int, list[int]] = {}
        for row in rows:
            subs.setdefault(row.part, []).append(row.sub)
        for each, of_part in subs.items():
            yield each, tuple(of_part)


async def _days_from(
    host: Host, settings: TimelineSettings, generation: int, first: int, consistency: Consistency
) -> list[int]:
    key: dict[str, Value] = {"queue": settings.queue, "generation": generation, "day": DAYS}
    within = Slice("part", SliceBound(first, True), None)
    rows = await host.store.read(
        Select(settings.tables.parts, key, ("part",), within=within, consistency=consistency)
    )
    return sorted({row.part for row in rows})
