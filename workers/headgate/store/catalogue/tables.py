"""The tables of the catalogue: the facts about queues and counters that every process needs, the created tables, and
the active processes.

An entry lies in a partition of its home data center, and is decided there alone (rule R5): no partition that is
written by LWT is shared by two data centers, since their Paxos rounds would not see each other. Processes of other
data centers read copies. `catalogue_homes` and `catalogue_tables_made` are sets that only grow, so they are written
plainly. docs/internals/protocols/catalogue.md is their protocol.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.store.model.consistency import SerialLevel
from headgate.store.model.table import DAY_S, Column, Table, WrittenBy
from headgate.store.model.types import Type


def _decided(
    name: str, purpose: str, partition: tuple[Column, ...], clustering: tuple[Column, ...] = (), /, **columns: Type
) -> Table:
    """A table whose rows and columns are all written by LWT."""
    types = {**columns, "attempt": Type.UUID}
    lwt = tuple(Column(column, kind, WrittenBy.LWT) for column, kind in types.items())
    by = WrittenBy.LWT
    return Table(name, purpose, partition, clustering, lwt, rows=by, attempt="attempt")


_CELLS = {
    "id": Type.UUID,
    "owner": Type.TEXT,
    "state": Type.TEXT,
    "revision": Type.INT,
    "document": Type.TEXT,
    "tables_keyspace": Type.TEXT,
    "tables_mode": Type.TEXT,
    "receipt_key": Type.BLOB,
    "generation": Type.INT,
    "shards": Type.INT,
    "from_us": Type.BIGINT,
    "next_generation": Type.INT,
    "next_shards": Type.INT,
    "next_from_us": Type.BIGINT,
    "sure_us": Type.BIGINT,
    "earlier": Type.TEXT,
    "changed_us": Type.BIGINT,
}

ENTRIES = _decided(
    "catalogue_entries",
    "queues and counters: one row each, by home data center and namespace; by LWT",
    (Column("home_data_center", Type.TEXT), Column("namespace", Type.TEXT)),
    (Column("kind", Type.TEXT), Column("name", Type.TEXT)),
    **_CELLS,
)

HOMES = Table(
    "catalogue_homes",
    "namespaces that have, or had, queues or counters, by home data center; one partition, which only grows",
    partition=(Column("everything", Type.TEXT),),
    clustering=(Column("home_data_center", Type.TEXT), Column("namespace", Type.TEXT)),
)

TABLES_MADE = Table(
    "catalogue_tables_made",
    "tables that were created, by keyspace, so that none is created again after a drop; only grows",
    partition=(Column("tables_keyspace", Type.TEXT),),
    clustering=(Column("table_name", Type.TEXT),),
    columns=(Column("made_us", Type.BIGINT),),
)

EARLIER_ENTRIES = replace(
    _decided(
        "catalogue",
        "queues and counters of releases before 0.1: each is moved to `catalogue_entries` when it is met; by LWT",
        (Column("namespace", Type.TEXT),),
        (Column("kind", Type.TEXT), Column("name", Type.TEXT)),
        home_data_center=Type.TEXT,
        **_CELLS,
    ),
    serial=SerialLevel.SERIAL,
)
"""It is never created. Data centers share its partitions, hence SERIAL."""

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
        Column("unreadable", Type.BIGINT),
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
    gc_grace_s=DAY_S,
)

BULK = _decided(
    "bulk",
    "the bulk jobs of Spark: the current run, and its batch; one row per job, by LWT",
    (Column("job", Type.UUID),),
    driver=Type.UUID,
    state=Type.TEXT,
    number=Type.BIGINT,
    plan=Type.BLOB,
    **{"told": Type.TEXT},  # noqa: PIE804  the name of a stored column is no word of ours
)

BULK_MARKS = _decided(
    "bulk_marks",
    "bulk writes that were started: the latest batch of each query and its start; by LWT, expires after a year",
    (Column("id", Type.UUID), Column("query", Type.TEXT)),
    batch=Type.BIGINT,
    begun_us=Type.BIGINT,
    key_column=Type.TEXT,
)

CATALOGUE_TABLES = (ENTRIES, HOMES, TABLES_MADE, MEMBERS, SUMMARY, STANDING, BULK, BULK_MARKS)
EVERYTHING = "everything"
