"""Removes the data of a queue under deletion from shared tables: the rows of its lanes, which alone have no time to
live. Messages, records and claims expire.

Lanes are found in their order of creation, from shard 0 on without a gap, and removed from the last one down: so a
repeated removal finds the rest. Lanes of generations that were left long ago are found the same way.
"""

from __future__ import annotations

from headgate.engines.registry import Making
from headgate.engines.timeline.model.from_catalogue import tables_of_entry
from headgate.store.catalogue.entry import Entry
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Delete, Select
from headgate.store.model.types import Value

REPAIR = 0
"""The generation of repair's own lane."""


async def forget_rows(entry: Entry, making: Making) -> None:
    """Remove the lanes of all its generations, for good."""
    last = (entry.generations.next or entry.generations.current).number
    for generation in range(REPAIR, last + 1):
        await _forget_lanes(entry, generation, making)


async def _forget_lanes(entry: Entry, generation: int, making: Making) -> None:
    """A row written by an LWT is removed by a delete that is stamped above it (rule R3)."""
    table = tables_of_entry(entry).lanes
    lanes: list[tuple[dict[str, Value], int]] = []
    while True:
        key: dict[str, Value] = {"queue": entry.id, "generation": generation, "shard": len(lanes)}
        select = Select(table, key, ("epoch",), consistency=Consistency.SERIAL, write_times_of=("attempt",))
        rows = await making.store.read(select)
        if not rows or rows[0].epoch is None:
            break
        lanes.append((key, rows[0].attempt_written_us or 0))
    for key, written_us in reversed(lanes):
        stamp_us = making.tombstone_timestamp_us(written_us)
        await making.store.write(Delete(table, key, timestamp_us=stamp_us, above_lwt_us=written_us))
