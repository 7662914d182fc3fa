"""The facts about this engine that code needs to apply a queue to Cassandra (engines/registry.py)."""

from __future__ import annotations

from random import SystemRandom

from headgate.engines.context import Host
from headgate.engines.registry import Making
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.cleanup import forget_rows
from headgate.engines.timeline.model.from_catalogue import settings_of
from headgate.engines.timeline.model.layout import CASSANDRA_4_LAST_EXPIRY_S
from headgate.engines.timeline.model.settings import GenerationSettings as Lanes
from headgate.engines.timeline.model.tables import dedicated_tables, shared_tables
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import Entry
from headgate.store.process_positions import process_positions

REPAIR = Lanes(0, 1)
"""Repair's own lane, by which one process repairs a queue at a time (docs/internals/protocols/repair.md)."""


async def make_generation(entry: Entry, generation: Generation, making: Making) -> None:
    """Its lanes, and repair's. They start a minute before their creation or before their generation, so that an owner
    reads everything that is put into them."""
    host = Host(
        "apply",
        making.store,
        making.now_us,
        making.new_uuid,
        SystemRandom(),
        process_positions(),
        CASSANDRA_4_LAST_EXPIRY_S,
    )
    settings = settings_of(entry, data_center=entry.place.data_center)
    await make_lanes(host, settings, REPAIR)
    await make_lanes(host, settings, Lanes(generation.number, generation.shards, generation.from_us))


__all__ = ["dedicated_tables", "forget_rows", "make_generation", "shared_tables"]
