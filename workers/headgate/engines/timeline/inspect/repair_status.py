"""The progress of repair of a timeline queue, from its own records: the lane of its leader, the cursors of its scans,
and the index of parts. It takes nothing and decides nothing; `headgate stats` and the operator show it.

Its reads are small: a row for each lane, a row for each scan of a lane, and of the index one part for each place of a
cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from headgate.engines.context import Host
from headgate.engines.contract import RepairStanding
from headgate.engines.timeline.lanes.lane_snapshot import LaneView, list_lane_views, read_lane_view
from headgate.engines.timeline.model.decide_repair import (
    ASK_ALL_EVERY_US,
    CHECKS,
    EVERYTHING,
    LAST_CHECK,
    CheckTerms,
)
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.read.part_list import indexed_from
from headgate.engines.timeline.repair.cursors import Cursors
from headgate.engines.timeline.repair.repair import REPAIR_LANE

STARTS_AT_ONCE = 16

DueStretch = tuple[int, int, int]
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
    passes = 0 if leader is None else leader.state.epoch
    return RepairStanding(
        runs_now=leader is not None and leader.state.lock is not None,
        passes=passes,
        last_pass_us=(leader.state.touched_us or None) if leader is not None else None,
        checked_to_us=checked_to * settings.part_us if checked_to and passes else None,
        owed_since_us=min(owed, default=None),
    )


async def _of_generation(
    host: Host, settings: TimelineSettings, generation: GenerationSettings, views: Sequence[LaneView]
) -> tuple[int | None, list[int]]:
    """Since when the oldest scan of it is owed, and up to which part each of its lanes had the first one."""
    cursors = (await Cursors(host, settings, generation.number, generation.shards).read()).lanes
    terms, now_us = settings.check_terms, host.now_us()
    stretches = {
        view.shard: list(
            due_stretches(
                terms,
                cursors[view.shard].up_to,
                passed_below=EVERYTHING if view.state.is_retired else view.part_of_position(settings.part_us),
                sure_us=generation.sure_us,
                now_us=now_us,
            )
        )
        for view in views
        if view.generation == generation.number
    }
    firsts = await _first_parts(host, settings, generation.number, chain.from_iterable(stretches.values()))
    owed: list[int] = []
    checked_to: list[int] = []
    for shard, of_lane in stretches.items():
        checked = cursors[shard].up_to.get(CHECKS[0], 0)
        for check, start, end in of_lane:
            part = firsts[check == CHECKS[0], start]
            if part is not None and part < end:
                owed.append(terms.due_us(part, check, generation.sure_us))
            elif check == CHECKS[0]:
                checked = end
        if checked < EVERYTHING:
            checked_to.append(checked)
    return min(owed, default=None), checked_to


def due_stretches(
    terms: CheckTerms, cursors: Mapping[int, int], *, passed_below: int, sure_us: int | None, now_us: int
) -> Iterator[DueStretch]:
    """The scans that are due at a lane, and their parts. Parts too old for a scan are not owed, and the last scan is
    owed once its next run could have been."""
    lapsed_below = min(terms.distinguishable_from_us(now_us), passed_below)
    for check in CHECKS:
        start = max(cursors.get(check, 0), lapsed_below)
        due_us = now_us - ASK_ALL_EVERY_US if check == LAST_CHECK else now_us
        end = min(terms.due_below(check, sure_us, due_us), passed_below)
        if start < end:
            yield check, start, end


async def _first_parts(
    host: Host, settings: TimelineSettings, generation: int, stretches: Iterable[DueStretch]
) -> dict[tuple[bool, int], int | None]:
    """The first part that a scan checks from each of these on: any, or one that is announced."""
    at_once = asyncio.Semaphore(STARTS_AT_ONCE)

    async def first(is_any: bool, start: int) -> tuple[tuple[bool, int], int | None]:
        async with at_once:
            async for each in indexed_from(host, settings, generation, start):
                if is_any or each.is_announced:
                    return (is_any, start), each.part
            return (is_any, start), None

    wanted = {(check == CHECKS[0], start) for check, start, _ in stretches}
    return dict(await asyncio.gather(*(first(*each) for each in wanted)))
