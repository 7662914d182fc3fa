"""The lanes of a generation: created once, when the generation starts, so that a take never creates one (attack
D6)."""

from __future__ import annotations

import asyncio

from headgate.engines.context import Host
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.store.model.positions import last_at
from headgate.store.model.statements import InsertIfAbsent
from headgate.store.model.types import Value

BEFORE_US = 60_000_000
"""A lane starts this long before its generation: more than clocks can differ."""


def format_lane(name: tuple[int, int]) -> str:
    """A lane outside the engine: generation/shard."""
    return f"{name[0]}/{name[1]}"


def parse_lane(text: str) -> tuple[int, int]:
    """The other way."""
    generation, _, shard = text.partition("/")
    return int(generation), int(shard)


def lane_key(settings: TimelineSettings, generation: int, shard: int) -> dict[str, Value]:
    """The key of a lane's row."""
    return {"queue": settings.queue, "generation": generation, "shard": shard}


async def make_lanes(host: Host, settings: TimelineSettings, generation: GenerationSettings) -> None:
    """Create all lanes of a generation; existing ones stay as they are."""
    begins = last_at((generation.from_us or host.now_us()) - BEFORE_US)

    async def make(shard: int) -> None:
        values: dict[str, Value] = {
            **lane_key(settings, generation.number, shard),
            "epoch": 0,
            "stop": 0,
            "purged_before": 0,
            "released": 0,
            "last": begins,
            "reach": begins,
        }
        await host.store.decide(InsertIfAbsent(settings.tables.lanes, values, attempt=host.uuid()))

    await asyncio.gather(*map(make, range(generation.shards)))
