"""Drift: what differs, what fixes it, and what is left to a person. Only ever additions."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.model.drift import (
    ActualColumn,
    ActualTable,
    Drift,
    DriftStatus,
    Kind,
    columns_of,
    compare,
    missing,
    unmended,
)
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type

KEYSPACE = "shop"
TABLE = Table(
    "things",
    "things, for a test",
    partition=(Column("p", Type.TEXT),),
    clustering=(Column("c", Type.TIMEUUID), Column("d", Type.INT)),
    columns=(Column("s", Type.INT, static=True), Column("v", Type.BLOB)),
    descending=frozenset({"d"}),
    compaction=(("class", "TimeWindowCompactionStrategy"), ("compaction_window_size", "1")),
)


def actual_table(table: Table = TABLE) -> ActualTable:
    """A table as a server describes it that made exactly this."""
    return ActualTable(
        table.name,
        UUID(int=1),
        tuple(columns_of(table).values()),
        table.gc_grace_s,
        table.default_ttl_s,
        table.purpose,
        {"class": "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy", "compaction_window_size": "1"},
        {"class": "org.apache.cassandra.io.compress.LZ4Compressor", "chunk_length_in_kb": "16"},
    )


def only(drifts: tuple[Drift, ...]) -> Drift:
    """The single one."""
    assert len(drifts) == 1
    return drifts[0]


def without(name: str) -> ActualTable:
    """The table with a column missing."""
    return replace(actual_table(), columns=tuple(column for column in actual_table().columns if column.name != name))


def test_a_table_as_it_was_declared_has_no_drift() -> None:
    assert () == compare(KEYSPACE, TABLE, actual_table())


def test_options_that_were_not_declared_are_the_owners() -> None:
    theirs = replace(actual_table(), compression={**actual_table().compression, "chunk_length_in_kb": "64"})
    assert () == compare(KEYSPACE, TABLE, theirs)


@pytest.mark.parametrize(
    ("name", "cql"),
    [
        ("v", "ALTER TABLE shop.things ADD IF NOT EXISTS v blob"),
        ("s", "ALTER TABLE shop.things ADD IF NOT EXISTS s int STATIC"),
    ],
)
def test_a_missing_column_is_added(name: str, cql: str) -> None:
    drift = only(compare(KEYSPACE, TABLE, without(name)))
    assert (DriftStatus.MENDABLE, cql) == (drift.standing, drift.cql)


@pytest.mark.parametrize("name", ["p", "c"])
def test_a_missing_key_column_cannot_be_fixed(name: str) -> None:
    drift = only(compare(KEYSPACE, TABLE, without(name)))
    assert (DriftStatus.BY_HAND, None) == (drift.standing, drift.cql)


@pytest.mark.parametrize(
    "column",
    [
        ActualColumn("v", "text", Kind.REGULAR),
        ActualColumn("v", "blob", Kind.STATIC),
        ActualColumn("d", "int", Kind.CLUSTERING, 1, descending=False),
        ActualColumn("d", "int", Kind.CLUSTERING, 0, descending=True),
        ActualColumn("p", "uuid", Kind.PARTITION, 0),
    ],
)
def test_a_column_of_another_type_kind_place_or_order_is_reported_and_never_changed(column: ActualColumn) -> None:
    columns = tuple(column if each.name == column.name else each for each in actual_table().columns)
    drift = only(compare(KEYSPACE, TABLE, replace(actual_table(), columns=columns)))
    assert (DriftStatus.BY_HAND, f"column {column.name}", None) == (drift.standing, drift.what, drift.cql)


def test_a_column_that_is_not_declared_is_no_drift_since_nothing_is_dropped() -> None:
    newer = replace(actual_table(), columns=(*actual_table().columns, ActualColumn("later", "text", Kind.REGULAR)))
    assert () == compare(KEYSPACE, TABLE, newer)


def test_a_further_column_in_the_key_is_reported() -> None:
    wider = replace(actual_table(), columns=(*actual_table().columns, ActualColumn("e", "text", Kind.CLUSTERING, 2)))
    assert DriftStatus.BY_HAND == only(compare(KEYSPACE, TABLE, wider)).standing


@pytest.mark.parametrize("gc_grace_s", [0, 3600, 86_399, TABLE.gc_grace_s - 1])
def test_gc_grace_below_what_was_declared_is_raised(gc_grace_s: int) -> None:
    drift = only(compare(KEYSPACE, TABLE, replace(actual_table(), gc_grace_s=gc_grace_s)))
    assert "ALTER TABLE shop.things WITH gc_grace_seconds = 864000" == drift.cql


def test_gc_grace_of_a_table_with_deletes_is_never_lowered() -> None:
    assert () == compare(KEYSPACE, TABLE, replace(actual_table(), gc_grace_s=TABLE.gc_grace_s * 2))


@pytest.mark.parametrize("gc_grace_s", [86_399, 86_401, 864_000])
def test_gc_grace_of_a_table_in_which_nothing_is_deleted_is_set_to_a_day(gc_grace_s: int) -> None:
    """A table that was made with ten days kept expired rows for ten days."""
    table = replace(TABLE, gc_grace_s=86_400)
    drift = only(compare(KEYSPACE, table, replace(actual_table(), gc_grace_s=gc_grace_s)))
    assert "ALTER TABLE shop.things WITH gc_grace_seconds = 86400" == drift.cql
    assert () == compare(KEYSPACE, table, replace(actual_table(), gc_grace_s=86_400))


@pytest.mark.parametrize(
    ("theirs", "what"),
    [
        (replace(actual_table(), comment="theirs"), "comment"),
        (replace(actual_table(), default_ttl_s=60), "default_time_to_live"),
        (replace(actual_table(), compaction={"class": "SizeTieredCompactionStrategy"}), "compaction"),
        (replace(actual_table(), compression={"enabled": "false"}), "compression"),
    ],
)
def test_other_options_are_set_back(theirs: ActualTable, what: str) -> None:
    drift = only(compare(KEYSPACE, TABLE, theirs))
    assert (what, DriftStatus.MENDABLE) == (drift.what, drift.standing)
    assert drift.cql is not None
    assert drift.cql.startswith(f"ALTER TABLE shop.things WITH {what} = ")


def test_a_drift_reads_as_one_line_with_what_was_done_about_it() -> None:
    drift = only(compare(KEYSPACE, TABLE, replace(actual_table(), gc_grace_s=60)))
    assert "things: gc_grace_seconds is 60, should be 864000 (repaired)" == str(drift.fixed())


def test_what_is_not_fixed_is_listed() -> None:
    drifts = compare(KEYSPACE, TABLE, replace(without("p"), gc_grace_s=60))
    fixed = [drift.fixed() if drift.cql else drift for drift in drifts]
    assert ["column p", "the table"] == [drift.what for drift in unmended([*fixed, missing(TABLE)])]


def test_no_table_of_the_catalogue_is_decided_by_several_data_centers() -> None:
    decided = [table for table in CATALOGUE_TABLES if table.has_lwt]
    plain = {(table.name, each.name) for table in decided for each in table.columns if each.written.value != "lwt"}
    assert set() == plain
    assert {"LOCAL_SERIAL"} == {table.serial.value for table in decided}
    plain = {table.name for table in CATALOGUE_TABLES} - {table.name for table in decided}
    assert {"catalogue_homes", "catalogue_tables_made", "members", "summary", "standing"} == plain
