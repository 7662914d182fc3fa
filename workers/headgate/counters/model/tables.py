"""The tables of a counter. Every partition key begins with the counter's id, so that shared tables differ from
dedicated ones in the name alone. The purpose of each, and why nothing in them needs an LWT:
docs/internals/protocols/counters.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type

COUNTER = Column("counter", Type.UUID)
BUCKET = Column("bucket", Type.INT)
KEY = Column("key", Type.TEXT)
MUTATOR = Column("mutator", Type.BLOB)
STATE = Column("state", Type.BLOB)
MINUTE = Column("minute", Type.BIGINT)

UNIFIED = (("class", "UnifiedCompactionStrategy"),)
TIME_WINDOW = (
    ("class", "TimeWindowCompactionStrategy"),
    ("compaction_window_unit", "DAYS"),
    ("compaction_window_size", "1"),
    ("unchecked_tombstone_compaction", "true"),
)

SHARDS = Table(
    "shards",
    "each mutator's counts per key, and the tally of those that have ended",
    partition=(COUNTER, BUCKET),
    clustering=(KEY, MUTATOR),
    columns=(STATE, Column("folded", Type.BIGINT, static=True), Column("tokened", Type.BIGINT, static=True)),
    compaction=UNIFIED,
)
TOKENS = Table(
    "tokens",
    "updates that count once, by the minute of their token",
    partition=(COUNTER, BUCKET, MINUTE),
    clustering=(KEY, Column("token", Type.TEXT)),
    columns=(STATE,),
    compaction=UNIFIED,
)
MINUTES = Table(
    "minutes",
    "which minutes may hold updates with tokens, and when each was folded",
    partition=(COUNTER, BUCKET),
    clustering=(MINUTE,),
    columns=(Column("marked_us", Type.BIGINT), Column("folded_us", Type.BIGINT)),
    compaction=UNIFIED,
)
WINDOWS = Table(
    "windows",
    "the same by windows of time, which expire",
    partition=(COUNTER, Column("grain", Type.BIGINT), Column("start", Type.BIGINT), BUCKET),
    clustering=(KEY, MUTATOR),
    columns=(STATE,),
    compaction=TIME_WINDOW,
)
PASSES = Table(
    "passes",
    "the collector's progress, and when it last visited every key",
    partition=(COUNTER,),
    clustering=(BUCKET,),
    columns=(
        Column("pass_us", Type.BIGINT),
        Column("after", Type.TEXT),
        Column("done", Type.BOOLEAN),
        Column("keys", Type.BIGINT),
        Column("shards", Type.BIGINT),
        Column("expired", Type.BIGINT),
        Column("skipped", Type.BIGINT),
        Column("full_us", Type.BIGINT, static=True),
        Column("refused", Type.TEXT, static=True),
    ),
    compaction=UNIFIED,
)

ALL = (SHARDS, TOKENS, MINUTES, WINDOWS, PASSES)


@dataclass(frozen=True)
class CounterTables:
    shards: Table
    tokens: Table
    minutes: Table
    windows: Table
    passes: Table


def shared_tables() -> CounterTables:
    return CounterTables(*(table.named(f"counter_{table.name}") for table in ALL))


def dedicated_tables(creation: UUID) -> CounterTables:
    """The tables of one creation of a counter: named by its uuid, never by its name."""
    return CounterTables(*(table.named(f"c_{creation.hex}_{table.name}") for table in ALL))
