"""The key of a lane's row."""

from __future__ import annotations

from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.types import Value


def lane_key(settings: TimelineSettings, generation: int, shard: int) -> dict[str, Value]:
    """The key of a lane's row."""
    return {"queue": settings.queue, "generation": generation, "shard": shard}
