"""The tables of a timeline queue. Every partition key begins with the queue's id, so that shared tables differ from
dedicated ones in the name alone (DESIGN section 4). The purpose of each: docs/internals/protocols/timeline.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headgate.store.model.table import DAY_S, Column, Table, WrittenBy
from headgate.store.model.types import Type

QUEUE = Column("queue", Type.UUID)
GENERATION = Column("generation", Type.INT)
PART = Column("part", Type.BIGINT)
SUB = Column("sub", Type.INT)
SHARD = Column("shard", Type.INT)
WRITER = Column("writer", Type.UUID)
PIECE = Column("piece", Type.INT)
ATTEMPT = Column("attempt", Type.UUID, WrittenBy.LWT)

NOTHING_DELETED_S = DAY_S
"""The gc_grace of tables whose rows only expire: it guards hints and batch logs, and no deletes
(docs/decisions/0049-a-day-of-gc-grace.md)."""
TIME_WINDOW = (
    ("class", "TimeWindowCompactionStrategy"),
    ("compaction_window_unit", "DAYS"),
    ("compaction_window_size", "1"),
    ("unchecked_tombstone_compaction", "true"),
)
UNIFIED = (("class", "UnifiedCompactionStrategy"), ("unchecked_tombstone_compaction", "true"))
NOT_COMPRESSED = (("enabled", "false"),)
"""The writer compresses packed rows."""


def _work(name: str, purpose: str, compaction: tuple[tuple[str, str], ...]) -> Table:
    return Table(
        name,
        purpose,
        partition=(QUEUE, GENERATION, PART, SUB, SHARD),
        clustering=(Column("due", Type.TIMEUUID),),
        columns=(
            Column("run", Type.BLOB),
            Column("cancelled", Type.BIGINT),
            Column("moved", Type.BLOB, WrittenBy.LWT),
            ATTEMPT,
        ),
        attempt="attempt",
        gc_grace_s=NOTHING_DELETED_S,
        compaction=compaction,
        compression=NOT_COMPRESSED,
    )


WORK = _work("work", "messages by due time", TIME_WINDOW)
LATER = _work("later", "messages due beyond the queue's retention", UNIFIED)

PARTS = Table(
    "parts",
    "which parts contain messages",
    partition=(QUEUE, GENERATION, Column("day", Type.INT)),
    clustering=(PART, SUB),
    columns=(Column("put_us", Type.BIGINT), Column("late_us", Type.BIGINT)),
    gc_grace_s=NOTHING_DELETED_S,
    compaction=UNIFIED,
)
PUT_COUNTS = Table(
    "put_counts",
    "how much each producer put into a part; each overwrites its own row",
    partition=(QUEUE, GENERATION, PART),
    clustering=(WRITER,),
    columns=(Column("messages", Type.BIGINT), Column("bytes", Type.BIGINT), Column("sent_us", Type.BIGINT)),
    gc_grace_s=NOTHING_DELETED_S,
    compaction=UNIFIED,
)
LANES = Table(
    "lanes",
    "the owner of each shard and its position; all by LWT",
    partition=(QUEUE, GENERATION, SHARD),
    columns=(
        Column("lock", Type.UUID, WrittenBy.LWT),
        Column("epoch", Type.INT, WrittenBy.LWT),
        Column("taken", Type.BIGINT, WrittenBy.LWT),
        Column("touched", Type.BIGINT, WrittenBy.LWT),
        Column("progress", Type.BIGINT, WrittenBy.LWT),
        Column("last", Type.TIMEUUID, WrittenBy.LWT),
        Column("read_to", Type.TIMEUUID, WrittenBy.LWT),
        Column("stop", Type.INT, WrittenBy.LWT),
        Column("lent", Type.BLOB, WrittenBy.LWT),
        Column("lent_seen", Type.BLOB, WrittenBy.LWT),
        Column("lent_to", Type.TIMEUUID, WrittenBy.LWT),
        Column("purged_before", Type.BIGINT, WrittenBy.LWT),
        ATTEMPT,
    ),
    rows=WrittenBy.LWT,
    attempt="attempt",
    compaction=UNIFIED,
)
SETTLED = Table(
    "settled",
    "messages above a lane's position that are settled, hidden, retried or moved",
    partition=(QUEUE, GENERATION, SHARD, PART),
    clustering=(WRITER, PIECE),
    columns=(Column("facts", Type.BLOB),),
    gc_grace_s=NOTHING_DELETED_S,
    compaction=UNIFIED,
)
PASSED = Table(
    "passed",
    "rows that the owners of a lane passed, used to detect late rows",
    partition=(QUEUE, GENERATION, SHARD, PART),
    clustering=(WRITER, PIECE),
    columns=(
        Column("ids", Type.BLOB),
        Column("messages", Type.BIGINT),
        Column("up_to", Type.TIMEUUID),
    ),
    gc_grace_s=NOTHING_DELETED_S,
    compaction=UNIFIED,
)
CHECKS = Table(
    "looks",
    "the part up to which each repair scan has run",
    partition=(QUEUE, GENERATION),
    clustering=(SHARD, Column("look", Type.INT)),
    columns=(Column("up_to", Type.BIGINT), Column("looked_us", Type.BIGINT)),
    compaction=UNIFIED,
)
ONCE = Table(
    "once",
    "the one message of a key; by LWT",
    partition=(QUEUE, Column("slot", Type.BLOB)),
    clustering=(Column("key", Type.BLOB),),
    columns=(Column("place", Type.BLOB, WrittenBy.LWT), Column("written", Type.BIGINT), ATTEMPT),
    rows=WrittenBy.LWT,
    attempt="attempt",
    compaction=UNIFIED,
)

ALL = (WORK, LATER, PARTS, PUT_COUNTS, LANES, SETTLED, PASSED, CHECKS, ONCE)


@dataclass(frozen=True)
class TimelineTables:
    """The tables that one queue uses, under their real names."""

    work: Table
    later: Table
    parts: Table
    put_counts: Table
    lanes: Table
    settled: Table
    passed: Table
    checks: Table
    once: Table


def shared_tables() -> TimelineTables:
    """The tables that all queues with `storage.tables: shared` use."""
    return TimelineTables(*(table.named(f"timeline_{table.name}") for table in ALL))


def dedicated_tables(creation: UUID) -> TimelineTables:
    """The tables of one creation of a queue: named by its uuid, never by its name."""
    return TimelineTables(*(table.named(f"q_{creation.hex}_{table.name}") for table in ALL))
