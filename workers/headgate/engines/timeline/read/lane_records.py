"""The records of one part of a lane, of all owners and jobs: the settle log, and the rows that were passed.

A part may have hundreds of thousands of records, so reading them lets others have a turn after each piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.log.settle_log_format import Facts, decode, merge_facts
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.passed_rows import PassedRows
from headgate.store.model.positions import position_order
from headgate.store.model.statements import Select
from headgate.store.model.types import Value


def part_key(settings: TimelineSettings, generation: int, shard: int, part: int) -> dict[str, Value]:
    """The key of the records of one part of a lane."""
    return {**lane_key(settings, generation, shard), "part": part}


async def read_pieces(
    host: Host, settings: TimelineSettings, key: dict[str, Value], *, begin: int = 0
) -> AsyncIterator[Facts]:
    """The settle log of a part, piece by piece; of rows below a given order nothing is kept."""
    for row in await host.store.read(Select(settings.tables.settled, key, ("facts",))):
        yield decode(row.facts, wanted=lambda named: position_order(UUID(bytes=named[2:18])) >= begin)
        await asyncio.sleep(0)


async def read_facts(host: Host, settings: TimelineSettings, generation: int, shard: int, part: int) -> Facts:
    """The union of the settle log of a part of a lane."""
    whole: Facts = {}
    async for facts in read_pieces(host, settings, part_key(settings, generation, shard, part)):
        merge_facts(whole, facts)
    return whole


async def read_passed(host: Host, settings: TimelineSettings, generation: int, shard: int, part: int) -> PassedRows:
    """The rows of a part that owners of a lane passed."""
    select = Select(settings.tables.passed, part_key(settings, generation, shard, part), ("ids", "up_to"))
    return PassedRows((row.ids, row.up_to) for row in await host.store.read(select) if row.ids is not None)
