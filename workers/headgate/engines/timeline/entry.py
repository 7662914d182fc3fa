"""The record of engine timeline (engines/registry.py). What applies resources needs tables and rows alone, so the
queue itself is imported when one is opened.
"""

from __future__ import annotations

from random import SystemRandom

from headgate.engines.context import Host, Opening
from headgate.engines.contract import Capability, Engine, QueueInspector
from headgate.engines.registry import EngineRecord, Making
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.cleanup import forget_rows
from headgate.engines.timeline.model.from_catalogue import settings_of
from headgate.engines.timeline.model.settings import GenerationSettings as Lanes
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.model.tables import dedicated_tables, shared_tables
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import Entry
from headgate.store.model.table import CASSANDRA_4_LAST_EXPIRY_S
from headgate.store.process_positions import process_positions

REPAIR = Lanes(0, 1)
"""Repair's own lane, by which one process repairs a queue at a time (docs/internals/protocols/repair.md)."""


def open_queue(opening: Opening) -> Engine:
    """A queue that shares its lanes with the other members, and reports its figures."""
    from headgate.engines.lanes.balance.membership import Sharing
    from headgate.engines.timeline.engine import TimelineQueue

    known, dead, catalogue = opening.queue, opening.dead_letters, opening.catalogue
    return TimelineQueue(
        known.host,
        known.settings,
        read_us=known.read_us,
        dead_letters=None if dead is None else dead.settings,
        dead_letter_host=None if dead is None else dead.host,
        sharing=Sharing(catalogue, known.settings.queue),
        summary=catalogue,
    )


def inspect_queue(host: Host, settings: TimelineSettings) -> QueueInspector:
    """The lanes of a queue, for the operator."""
    from headgate.engines.timeline.inspect.inspector import TimelineInspector

    return TimelineInspector(host, settings)


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
    settings = settings_of(entry, entry.place.data_center)
    await make_lanes(host, settings, REPAIR)
    await make_lanes(host, settings, Lanes(generation.number, generation.shards, generation.from_us))


RECORD = EngineRecord(
    capabilities=frozenset(Capability),
    shared_tables=shared_tables,
    dedicated_tables=dedicated_tables,
    make_generation=make_generation,
    forget_rows=forget_rows,
    settings_of=settings_of,
    open=open_queue,
    inspect=inspect_queue,
)
