"""The progress of repair of a timeline queue, from its own records: the lane of its leader, the cursors of its scans,
and the index of parts. It takes nothing and decides nothing; `headgate stats` and the operator show it.

Its reads are small: a row for each lane, a row for each scan of a lane, and of the index one part for each place of a
cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.engines.context import Host
from headgate.engines.contract import RepairStanding
from headgate.engines.timeline.lanes.lane_snapshot import LaneView, list_lane_views, read_lane_view
from headgate.engines.timeline.model.decide_repair import CHECKS, EVERYTHING, CheckTerms
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.repair.repair import REPAIR_LANE
from headgate.store.model.statements import Select
from headgate.store.model.types import Value

STARTS_AT_ONCE = 16

Cursors = Mapping[int, int]
"""The part up to which each scan of a lane has run."""
Stretch = tuple[int, int, int]
"""A scan, and the range of parts for which it is due at a lane."""


async def repair_standing(host: Host, settings: TimelineSettings) -> RepairStanding:
    """How far it is now."""
    leader, views = await asyncio.gather(
        read_lane_view(host, settings, {}, REPAIR_LANE.number, 0), list_lane_views(host, settings, {})
    )
    by_generation = await asyncio.gather(
        *(_of_generation(host, settings, generation, views) for generation in settings.generations)
    )
    checked_to = min((to for _, all_to in by_generation for to in all_to), default=0)
    owed = [since for since, _ in by_generation if since is not None]
    return RepairStanding(
        runs_now=leader is not None and leader.state.lock is not None,
        passes=0 if leader is None else leader.state.epoch,
        last_pass_us=(leader.state.touched_us or None) if leader is not None else None,
        checked_to_us=checked_to * settings.part_us if checked_to else None,
        owed_since_us=min(owed, default=None),
    )


async def _of_generation(
    host: Host, settings: TimelineSettings, generation: GenerationSettings, views: Sequence[LaneView]
) -> tuple[int | None, list[int]]:
    """Since when the oldest scan of it is owed, and up to which part each of its lanes had the first one."""
    cursors = await _read_cursors(host, settings, generation.number)
    lanes = [view for view in views if view.generation == generation.number]
    terms, now_us = settings.check_terms, host.now_us()
    stretches = {
        stretch
        for view in lanes
        for stretch in due_stretches(
            terms,
            cursors.get(view.shard, {}),
            passed_below=EVERYTHING if view.state.is_retired else view.part_of_position(settings.part_us),
            sure_us=generation.sure_us,
            now_us=now_us,
        )
    }
    firsts = await _first_parts(host, settings, generation.number, {start for _, start, _ in stretches})
    owed = [
        terms.due_us(part, check, generation.sure_us)
        for check, start, end in stretches
        if (part := firsts[start]) is not None and part < end
    ]
    checked_to_all = [to for view in lanes if (to := cursors.get(view.shard, {}).get(CHECKS[0], 0)) < EVERYTHING]
    return min(owed, default=None), checked_to_all


def due_stretches(
    terms: CheckTerms, cursors: Cursors, *, passed_below: int, sure_us: int | None, now_us: int
) -> Iterator[Stretch]:
    """The scans that are due at a lane, and their parts. Parts too old for a scan are not owed."""
    lapsed_below = min(terms.distinguishable_from_us(now_us), passed_below)
    for check in CHECKS:
        start = max(cursors.get(check, 0), lapsed_below)
        end = min(terms.due_below(check, sure_us, now_us), passed_below)
        if start < end:
            yield check, start, end


async def _first_parts(
    host: Host, settings: TimelineSettings, generation: int, starts: Iterable[int]
) -> dict[int, int | None]:
    """The first part that holds something from each of these on."""
    at_once = asyncio.Semaphore(STARTS_AT_ONCE)

    async def first(start: int) -> tuple[int, int | None]:
        async with at_once:
            async for part, _ in parts_from(host, settings, generation, start):
                return start, part
            return start, None

    return dict(await asyncio.gather(*map(first, starts)))


async def _read_cursors(host: Host, settings: TimelineSettings, generation: int) -> dict[int, dict[int, int]]:
    """Of each shard."""
    key: dict[str, Value] = {"queue": settings.queue, "generation": generation}
    rows = await host.store.read(Select(settings.tables.checks, key, ("shard", "look", "up_to")))
    cursors: dict[int, dict[int, int]] = {}
    for row in rows:
        if row.up_to is not None:
            cursors.setdefault(row.shard, {})[row.look] = row.up_to
    return cursors
