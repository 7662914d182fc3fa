"""The lanes of a generation: created once, when the generation starts, so that a take never creates one (attack
D6)."""

from __future__ import annotations

import asyncio

from headgate.engines.context import Host
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.store.model.positions import last_at
from headgate.store.model.statements import InsertIfAbsent
from headgate.store.model.types import Value

BEFORE_US = 60_000_000
"""A lane starts this long before its generation: more than clocks can differ."""


async def make_lanes(host: Host, settings: TimelineSettings, generation: GenerationSettings) -> None:
    """Create all lanes of a generation; existing ones stay as they are."""
    begins = last_at((generation.from_us or host.now_us()) - BEFORE_US)

    async def make(shard: int) -> None:
        values: dict[str, Value] = {
            **lane_key(settings, generation.number, shard),
            "epoch": 0,
            "stop": 0,
            "purged_before": 0,
            "last": begins,
            "read_to": begins,
        }
        await host.store.decide(InsertIfAbsent(settings.tables.lanes, values, attempt=host.uuid()))

    await asyncio.gather(*map(make, range(generation.shards)))
