"""Shapes and tables as CQL text, to the letter: it is what a person is shown, and what a server prepares."""

# ruff: noqa: S608 - texts are compared here, and nothing runs them
from __future__ import annotations

import pytest

from headgate.errors import Bug
from headgate.store.model.cql import (
    RESERVED,
    Markers,
    add_column_cql,
    alter_table_cql,
    create_keyspace_cql,
    create_table_cql,
    delete_cql,
    insert_cql,
    scan_cql,
    select_cql,
    table_id,
    update_cql,
)
from headgate.store.model.shapes import (
    ComparisonOperator,
    SliceForm,
    delete_shape,
    insert_shape,
    scan_shape,
    select_shape,
    update_shape,
)
from headgate.store.model.table import Column, Keyspace, Table, WrittenBy
from headgate.store.model.types import Type

LWT = WrittenBy.LWT
LOG = Table(
    "log",
    "what is put, and when it's due",
    (Column("queue", Type.UUID), Column("shard", Type.INT)),
    (Column("due", Type.TIMEUUID), Column("order", Type.INT)),
    (Column("payload", Type.BLOB), Column("limit", Type.INT), Column("closed", Type.BIGINT, static=True)),
    descending=frozenset({"order"}),
    gc_grace_s=86_400,
    default_ttl_s=60,
)
LANES = Table(
    "lanes",
    "the owner of each lane",
    (Column("queue", Type.UUID),),
    (Column("lane", Type.INT),),
    (Column("lock", Type.UUID, LWT), Column("epoch", Type.INT, LWT), Column("attempt", Type.UUID, LWT)),
    rows=LWT,
    attempt="attempt",
)
PLAIN, PLAIN_TTL = Markers(timestamp=True), Markers(timestamp=True, ttl=True)
KEY = ("queue", "shard", "due", "order")


def test_insert() -> None:
    shape = insert_shape(LOG, (*KEY, "payload"), False)
    columns = 'ks.log (queue, shard, due, "order", payload) VALUES (?, ?, ?, ?, ?)'
    assert f"INSERT INTO {columns} USING TIMESTAMP ?" == insert_cql("ks", shape, PLAIN)
    assert f"INSERT INTO {columns} USING TIMESTAMP ? AND TTL ?" == insert_cql("ks", shape, PLAIN_TTL)


def test_insert_if_absent_leaves_its_attempt() -> None:
    shape = insert_shape(LANES, ("queue", "lane", "epoch"), True)
    columns = "ks.lanes (queue, lane, epoch, attempt) VALUES (?, ?, ?, ?) IF NOT EXISTS"
    assert f"INSERT INTO {columns}" == insert_cql("ks", shape, Markers(attempt=True))
    assert f"INSERT INTO {columns} USING TTL ?" == insert_cql("ks", shape, Markers(attempt=True, ttl=True))


def test_update() -> None:
    shape = update_shape(LOG, KEY, ("payload", "limit"), None, ())
    rest = 'SET payload = ?, "limit" = ? WHERE queue = ? AND shard = ? AND due = ? AND "order" = ?'
    assert f"UPDATE ks.log USING TIMESTAMP ? {rest}" == update_cql("ks", shape, PLAIN)
    assert f"UPDATE ks.log USING TIMESTAMP ? AND TTL ? {rest}" == update_cql("ks", shape, PLAIN_TTL)


def test_update_if_sets_its_attempt_after_what_it_changes() -> None:
    conditions = (("lock", ComparisonOperator.IS), ("epoch", ComparisonOperator.BELOW))
    shape = update_shape(LANES, ("queue", "lane"), ("lock",), True, conditions)
    rest = "SET lock = ?, attempt = ? WHERE queue = ? AND lane = ? IF lock = ? AND epoch < ?"
    assert f"UPDATE ks.lanes {rest}" == update_cql("ks", shape, Markers(attempt=True))
    assert f"UPDATE ks.lanes USING TTL ? {rest}" == update_cql("ks", shape, Markers(attempt=True, ttl=True))


def test_an_update_that_rides_in_a_conditional_batch_has_no_condition_and_may_leave_no_attempt() -> None:
    shape = update_shape(LANES, ("queue", "lane"), ("epoch",), True, ())
    assert "UPDATE ks.lanes SET epoch = ? WHERE queue = ? AND lane = ?" == update_cql("ks", shape, Markers())


@pytest.mark.parametrize(
    ("key", "within", "where"),
    [
        (("queue", "shard"), None, "queue = ? AND shard = ?"),
        (("queue", "shard", "due"), None, "queue = ? AND shard = ? AND due = ?"),
        (("queue", "shard"), SliceForm((), "due", True, False), "queue = ? AND shard = ? AND due >= ? AND due < ?"),
        (("queue", "shard"), SliceForm((), "due", None, True), "queue = ? AND shard = ? AND due <= ?"),
        (
            ("queue", "shard"),
            SliceForm(("due",), "order", False, None),
            'queue = ? AND shard = ? AND due = ? AND "order" > ?',
        ),
    ],
    ids=["partition", "prefix", "range", "up to", "within a prefix"],
)
def test_deletes_and_selects_name_the_same_rows(key: tuple[str, ...], within: SliceForm | None, where: str) -> None:
    deleted = delete_cql("ks", delete_shape(LOG, key, within), PLAIN)
    selected = select_cql("ks", select_shape(LOG, key, ("payload",), within, False, False, ()))
    assert f"DELETE FROM ks.log USING TIMESTAMP ? WHERE {where}" == deleted
    assert f"SELECT payload FROM ks.log WHERE {where}" == selected


def test_whole_partitions_of_one_column_are_read_in_one_request() -> None:
    shape = select_shape(LANES, ("queue",), ("lane", "epoch"), None, False, False, ())
    assert "SELECT lane, epoch FROM ks.lanes WHERE queue IN (?, ?, ?)" == select_cql("ks", shape, 3)


def test_a_select_backwards_turns_every_clustering_column() -> None:
    shape = select_shape(LOG, ("queue", "shard"), ("due",), None, True, True, ())
    wanted = 'SELECT due FROM ks.log WHERE queue = ? AND shard = ? ORDER BY due DESC, "order" ASC LIMIT ?'
    assert wanted == select_cql("ks", shape)


def test_a_select_of_write_times() -> None:
    shape = select_shape(LOG, ("queue", "shard"), ("due",), None, False, False, ("payload", "limit"))
    wanted = 'SELECT due, writetime(payload), writetime("limit") FROM ks.log WHERE queue = ? AND shard = ?'
    assert wanted == select_cql("ks", shape)


def test_a_scan_of_partitions_is_distinct_and_one_of_rows_is_not() -> None:
    where = "WHERE token(queue, shard) > ? AND token(queue, shard) <= ?"
    partitions = scan_shape(LOG, ("queue", "shard"))
    rows = scan_shape(LOG, ("queue", "shard", "due"))
    assert f"SELECT DISTINCT queue, shard FROM ks.log {where}" == scan_cql("ks", partitions)
    assert f"SELECT queue, shard, due FROM ks.log {where}" == scan_cql("ks", rows)


def test_create_table() -> None:
    assert (
        create_table_cql("ks", LOG)
        == f"""\
CREATE TABLE IF NOT EXISTS ks.log (
    queue uuid,
    shard int,
    due timeuuid,
    "order" int,
    payload blob,
    "limit" int,
    closed bigint STATIC,
    PRIMARY KEY ((queue, shard), due, "order")
) WITH CLUSTERING ORDER BY (due ASC, "order" DESC) AND ID = {table_id("ks", "log")} AND
    comment = 'what is put, and when it''s due' AND
    gc_grace_seconds = 86400 AND
    default_time_to_live = 60 AND
    compaction = {{'class': 'UnifiedCompactionStrategy'}} AND
    compression = {{'class': 'LZ4Compressor'}}"""
    )


def test_a_table_without_clustering_has_no_order() -> None:
    table = Table("t", "", (Column("p", Type.INT),))
    assert "PRIMARY KEY ((p))\n) WITH ID = " in create_table_cql("ks", table)


def test_the_id_of_a_table_is_the_same_for_everybody_and_no_other_table_has_it() -> None:
    assert table_id("ks", "log") == table_id("ks", "log")
    others = {table_id("ks", "lanes"), table_id("other", "log"), table_id("ksl", "og")}
    assert table_id("ks", "log") not in others


def test_changes_of_a_table() -> None:
    altered = "ALTER TABLE ks.log WITH gc_grace_seconds = 86400 AND default_time_to_live = 60"
    assert altered == alter_table_cql("ks", LOG, ["gc_grace_seconds", "default_time_to_live"])
    assert "ALTER TABLE ks.log ADD IF NOT EXISTS closed bigint STATIC" == add_column_cql("ks", LOG, "closed")


def test_create_keyspace() -> None:
    wanted = (
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication ="
        " {'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '2'}"
    )
    assert wanted == create_keyspace_cql(Keyspace("ks", (("dc1", 3), ("dc2", 2))))


def test_reserved_words_are_quoted_wherever_they_stand() -> None:
    table = Table("select", "", (Column("from", Type.INT),), (Column("to", Type.INT),))
    shape = select_shape(table, ("from",), ("to",), None, True, False, ())
    assert 'SELECT "to" FROM "use"."select" WHERE "from" = ? ORDER BY "to" DESC' == select_cql("use", shape)


def test_the_reserved_words_are_those_of_the_driver() -> None:
    from cassandra.metadata import cql_keywords_reserved

    ours_alone = RESERVED - cql_keywords_reserved
    assert set() == ours_alone


def test_no_attempt_without_a_column_for_it() -> None:
    shape = insert_shape(LOG, (*KEY, "payload"), False)
    with pytest.raises(Bug, match="The table has no column for an attempt"):
        insert_cql("ks", shape, Markers(attempt=True))
