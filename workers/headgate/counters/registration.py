"""The facts about counters that code needs to apply a counter to Cassandra, or to remove one (engines/registry.py).

Removing deletes the data of a counter from shared tables: everything except its windows, which expire. Partition by
partition, each by one delete that is stamped ahead of the mutators' possible writes: a counter's id is never used
again. Updates with tokens are in partitions of minutes: the marked ones, and if there are any, those of the last hour
too, since a mark may be late.
"""

from __future__ import annotations

import asyncio

from headgate.counters.model.decide_tokens import MINUTE_US
from headgate.counters.model.settings import CounterSettings, settings_of
from headgate.counters.model.tables import dedicated_tables, shared_tables
from headgate.engines.registry import Making, StoredRecord
from headgate.store.catalogue.entry import Entry
from headgate.store.model.statements import Delete, Select
from headgate.store.model.types import Value

BUCKETS_AT_ONCE = 8
LATE_MINUTES = 60


async def forget_rows(entry: Entry, making: Making) -> None:
    settings = settings_of(entry, data_center=entry.place.data_center)
    at_once = asyncio.Semaphore(BUCKETS_AT_ONCE)

    async def bucket(number: int) -> None:
        async with at_once:
            await _forget_bucket(settings, number, making)

    await asyncio.gather(*map(bucket, range(settings.buckets)))
    counter: dict[str, Value] = {"counter": settings.counter}
    await making.store.write(Delete(settings.tables.passes, counter, timestamp_us=making.tombstone_timestamp_us()))


async def _forget_bucket(settings: CounterSettings, number: int, making: Making) -> None:
    tables = settings.tables
    place: dict[str, Value] = {"counter": settings.counter, "bucket": number}
    rows = await making.store.read(Select(tables.minutes, place, ("minute",)))
    if rows:
        now = making.now_us() // MINUTE_US
        for minute in sorted({row.minute for row in rows} | set(range(now - LATE_MINUTES, now + 2))):
            key = {**place, "minute": minute}
            await making.store.write(Delete(tables.tokens, key, timestamp_us=making.tombstone_timestamp_us()))
    for table in (tables.minutes, tables.shards):
        await making.store.write(Delete(table, place, timestamp_us=making.tombstone_timestamp_us()))


RECORD = StoredRecord(shared_tables=shared_tables, dedicated_tables=dedicated_tables, forget_rows=forget_rows)
