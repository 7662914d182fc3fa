"""The tables of the catalogue: the facts about queues and counters that every process needs, the created tables, and
the active processes.

All except `members`, `summary` and `standing` are written by LWT, and of these only `bulk_marks` expires. They are
SERIAL, not LOCAL_SERIAL. Resources with different home data centers share them, and a reader in any data center has
to read the decisions of another (rule R5 is about the resources' own tables).
"""

from __future__ import annotations

from headgate.store.model.consistency import SerialLevel
from headgate.store.model.table import DAY_S, Column, Table, WrittenBy
from headgate.store.model.types import Type

_ATTEMPT = Column("attempt", Type.UUID, WrittenBy.LWT)


def _lwt(name: str, kind: Type) -> Column:
    return Column(name, kind, WrittenBy.LWT)


ENTRIES = Table(
    "catalogue",
    "queues and counters: one row each, by namespace; by LWT",
    partition=(Column("namespace", Type.TEXT),),
    clustering=(Column("kind", Type.TEXT), Column("name", Type.TEXT)),
    columns=(
        _lwt("id", Type.UUID),
        _lwt("owner", Type.TEXT),
        _lwt("state", Type.TEXT),
        _lwt("revision", Type.INT),
        _lwt("document", Type.TEXT),
        _lwt("home_data_center", Type.TEXT),
        _lwt("tables_keyspace", Type.TEXT),
        _lwt("tables_mode", Type.TEXT),
        _lwt("receipt_key", Type.BLOB),
        _lwt("generation", Type.INT),
        _lwt("shards", Type.INT),
        _lwt("from_us", Type.BIGINT),
        _lwt("next_generation", Type.INT),
        _lwt("next_shards", Type.INT),
        _lwt("next_from_us", Type.BIGINT),
        _lwt("sure_us", Type.BIGINT),
        _lwt("earlier", Type.TEXT),
        _lwt("changed_us", Type.BIGINT),
        _ATTEMPT,
    ),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

IDS = Table(
    "catalogue_ids",
    "the catalogue entry of an id; by LWT",
    partition=(Column("id", Type.UUID),),
    columns=(_lwt("namespace", Type.TEXT), _lwt("kind", Type.TEXT), _lwt("name", Type.TEXT), _ATTEMPT),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

NAMESPACES = Table(
    "catalogue_namespaces",
    "namespaces that have, or had, queues or counters; one partition, by LWT",
    partition=(Column("everything", Type.TEXT),),
    clustering=(Column("namespace", Type.TEXT),),
    columns=(_ATTEMPT,),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

TABLES_MADE = Table(
    "catalogue_tables",
    "tables that were created, by keyspace, so that none is created again after a drop; by LWT",
    partition=(Column("tables_keyspace", Type.TEXT),),
    clustering=(Column("table_name", Type.TEXT),),
    columns=(_lwt("made_us", Type.BIGINT), _ATTEMPT),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

MEMBERS = Table(
    "members",
    "processes that want lanes of a queue or hold some; each writes its own row, which expires soon",
    partition=(Column("queue", Type.UUID),),
    clustering=(Column("member", Type.UUID),),
    columns=(
        Column("name", Type.TEXT),
        Column("room", Type.INT),
        Column("began_us", Type.BIGINT),
        Column("held", Type.BLOB),
        Column("held_us", Type.BIGINT),
    ),
    gc_grace_s=DAY_S,
)

SUMMARY = Table(
    "summary",
    "the backlog: marks by producers, figures by lane owners; small rows, all of which expire",
    partition=(Column("slice", Type.INT),),
    clustering=(Column("queue", Type.UUID), Column("writer", Type.UUID)),
    columns=(
        Column("put_us", Type.BIGINT),
        Column("due_us", Type.BIGINT),
        Column("until_us", Type.BIGINT),
        Column("backlog", Type.BIGINT),
        Column("in_flight", Type.BIGINT),
        Column("oldest_us", Type.BIGINT),
        Column("rate", Type.DOUBLE),
        Column("lanes", Type.INT),
        Column("held", Type.INT),
        Column("unread", Type.INT),
        Column("lowest", Type.BIGINT),
        Column("total", Type.BIGINT),
        Column("total_oldest_us", Type.BIGINT),
        Column("at_us", Type.BIGINT),
    ),
    gc_grace_s=DAY_S,
)

STANDING = Table(
    "standing",
    "the result of the last pass of repair or of the collector, one row per resource; expires much later",
    partition=(Column("slice", Type.INT),),
    clustering=(Column("id", Type.UUID),),
    columns=(
        Column("ended_us", Type.BIGINT),
        Column("problems", Type.INT),
        Column("says", Type.TEXT),
        Column("refused", Type.TEXT),
        Column("owed_us", Type.BIGINT),
        Column("waits_for_all_us", Type.BIGINT),
        Column("full_us", Type.BIGINT),
        Column("keys", Type.BIGINT),
        Column("shards", Type.BIGINT),
        Column("expired", Type.BIGINT),
    ),
)

BULK = Table(
    "bulk",
    "the bulk jobs of Spark: the current run, and its batch; one row per job, by LWT",
    partition=(Column("job", Type.UUID),),
    columns=(
        _lwt("driver", Type.UUID),
        _lwt("state", Type.TEXT),
        _lwt("number", Type.BIGINT),
        _lwt("plan", Type.BLOB),
        _lwt("told", Type.TEXT),
        _ATTEMPT,
    ),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

BULK_MARKS = Table(
    "bulk_marks",
    "bulk writes that were started: the latest batch of each query and its start; by LWT, expires after a year",
    partition=(Column("id", Type.UUID), Column("query", Type.TEXT)),
    columns=(_lwt("batch", Type.BIGINT), _lwt("begun_us", Type.BIGINT), _lwt("key_column", Type.TEXT), _ATTEMPT),
    rows=WrittenBy.LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)

CATALOGUE_TABLES = (ENTRIES, IDS, NAMESPACES, TABLES_MADE, MEMBERS, SUMMARY, STANDING, BULK, BULK_MARKS)
EVERYTHING = "everything"
