"""A message in the application's own batch: the CQL that is added, and what is refused before anything is sent.

The prose is "A message in the application's own batch" in docs/internals/protocols/timeline.md.
"""

from __future__ import annotations

import asyncio
from collections import namedtuple
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from headgate.engines.timeline.model.tables import shared_tables
from headgate.errors import Unavailable
from headgate.store.cassandra.batches import (
    FAIL_BYTES,
    TOO_WEAK,
    BatchUnfit,
    CassandraBatches,
    bytes_of,
    size_of_text,
    table_of,
)
from headgate.store.model.cql import insert_text
from headgate.store.model.statements import Insert

QUEUE, DUE = UUID(int=7), UUID("11111111-2222-1333-8444-555555555555")
ROW = {"queue": QUEUE, "generation": 1, "part": 3, "sub": 0, "shard": 2, "due": DUE, "run": b"\x01%s'?"}
INSERT = Insert(shared_tables().work, ROW, timestamp_us=99, ttl_s=60)
UPDATE = "UPDATE t1 SET a = 0x010203, b = 11111111-2222-4333-8444-555555555555 WHERE c2 = -12.5"
LARGE = "INSERT INTO shop.files (id, content) VALUES (1, 0x{})"
WRITE = "INSERT INTO shop.orders (id, name) VALUES (7, 'it''s')"


class Server:
    """A store of which only questions are asked."""

    def __init__(self, *, settings: dict[str, str] | None = None, gc_grace: dict[str, int] | None = None) -> None:
        self.settings = settings or {}
        self.gc_grace = gc_grace or {}
        self.prepared: dict[bytes, str] = {}
        self.refuses = False
        self.asked: list[str] = []

    def coordinators(self) -> list[str]:
        """Two."""
        return ["one", "two"]

    async def cql(self, text: str, values: Sequence[Any], *, at: str | None = None, **how: Any) -> list[Any]:
        """The answer of a server."""
        self.asked.append(text)
        if self.refuses:
            raise Unavailable("not allowed")
        row = namedtuple("row", ("name", "value", "query_string", "logged_keyspace", "gc_grace_seconds"))
        if "settings" in text:
            return [row(name, value, None, None, None) for name, value in self.settings.items() if name in values]
        if "prepared" in text:
            known = self.prepared.get(values[0]) if at == "two" else None
            return [] if known is None else [row(None, None, known, "shop", None)]
        result = self.gc_grace.get(".".join(values))
        return [] if result is None else [row(None, None, None, None, result)]


def batches(server: Server | None = None) -> CassandraBatches:
    """The batches of that server."""
    return CassandraBatches(server or Server())  # type: ignore[arg-type]


def refused(server: Server, batch: Any, tables: Sequence[str] = ()) -> str:
    """The line with which it is refused, after asking the server and adding a message; else nothing."""
    known = batches(server)
    try:
        asyncio.run(known.learn(batch, tables))
        known.add(batch, "headgate", [INSERT])
    except BatchUnfit as error:
        return str(error)
    return ""


def batch_with(*texts: str) -> BatchStatement:
    """The application's."""
    batch = BatchStatement()
    for text in texts:
        batch.add(SimpleStatement(text))
    return batch


# ---- what is added


def test_a_row_becomes_a_statement_with_names_a_timestamp_and_a_ttl_of_its_own() -> None:
    text, values = insert_text("headgate", INSERT)
    assert (
        "INSERT INTO headgate.timeline_work (queue, generation, part, sub, shard, due, run)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) USING TIMESTAMP %s AND TTL %s"
    ) == text
    assert (*ROW.values(), 99, 60) == values


def test_a_row_that_is_kept_for_ever_names_no_ttl() -> None:
    text, values = insert_text("headgate", Insert(shared_tables().work, ROW, timestamp_us=99))
    assert text.endswith(" USING TIMESTAMP %s")
    assert 99 == values[-1]


def test_the_drivers_batch_takes_it_as_text_whatever_bytes_the_payload_has() -> None:
    batch = batch_with(WRITE)
    batches().add(batch, "headgate", [INSERT])
    prepared, text, values = batch._statements_and_parameters[1]
    assert (False, ()) == (prepared, values)
    assert text.endswith(f"VALUES ({QUEUE}, 1, 3, 0, 2, {DUE}, 0x012573273f) USING TIMESTAMP 99 AND TTL 60")


def test_a_batch_without_a_consistency_gets_one_and_its_own_is_left() -> None:
    unset, own = BatchStatement(), BatchStatement(consistency_level=ConsistencyLevel.EACH_QUORUM)
    for batch in (unset, own):
        batches().add(batch, "headgate", [INSERT])
    assert ConsistencyLevel.LOCAL_QUORUM == unset.consistency_level
    assert ConsistencyLevel.EACH_QUORUM == own.consistency_level


# ---- what is refused


@pytest.mark.parametrize("kind", [BatchType.UNLOGGED, BatchType.COUNTER])
def test_a_batch_that_may_be_written_by_half_is_refused(kind: Any) -> None:
    assert "not LOGGED" in refused(Server(), BatchStatement(kind))


@pytest.mark.parametrize("level", sorted(TOO_WEAK))
def test_a_batch_answered_by_less_than_a_quorum_is_refused(level: int) -> None:
    message = refused(Server(), BatchStatement(consistency_level=level))
    assert f"given={ConsistencyLevel.value_to_name[level]}" in message


def test_a_batch_with_one_timestamp_for_all_is_refused() -> None:
    batch = BatchStatement()
    batch.timestamp = 5
    assert "one timestamp for all" in refused(Server(), batch)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO shop.orders (id) VALUES (7) IF NOT EXISTS",
        "UPDATE shop.orders SET name = 'x' WHERE id = 7 if exists",
        "UPDATE shop.orders SET name = 'x' WHERE id = 7 IF name = 'y'",
    ],
)
def test_a_batch_with_a_condition_is_refused(text: str) -> None:
    assert "conditions (IF)" in refused(Server(), batch_with(text))


def test_a_text_that_speaks_of_conditions_is_none() -> None:
    assert "" == refused(Server(), batch_with("INSERT INTO shop.orders (id, name) VALUES (7, 'what IF EXISTS')"))


def test_what_is_no_batch_is_refused() -> None:
    assert "This is not a batch" in refused(Server(), "BEGIN BATCH")


def test_every_refusal_is_one_line_and_leaves_the_batch_as_it_was() -> None:
    batch = batch_with(WRITE)
    batch.add("INSERT INTO shop.files (id, content) VALUES (%s, %s)", (1, bytes(FAIL_BYTES)))
    message = refused(Server(), batch)
    assert "The server would refuse a batch of this size" in message
    assert (1, 2) == (len(message.splitlines()), len(batch))


def test_the_servers_own_limit_counts_under_its_new_and_its_old_name() -> None:
    large = LARGE
    for settings in ({"batch_size_fail_threshold": "100KiB"}, {"batch_size_fail_threshold_in_kb": "100"}):
        assert "" == refused(Server(settings=settings), batch_with(large.format("00" * 80 * 1024)))
        assert "limit=102400" in refused(Server(settings=settings), batch_with(large.format("00" * 101 * 1024)))


def test_a_role_that_may_not_ask_is_held_to_the_default() -> None:
    server = Server()
    server.refuses = True
    large = LARGE.format("00" * 51 * 1024)
    assert f"limit={FAIL_BYTES}" in refused(server, batch_with(large))
    assert "" == refused(server, batch_with(WRITE))


def test_what_is_added_after_the_message_counts_when_it_is_checked() -> None:
    known, batch = batches(), batch_with(WRITE)
    known.add(batch, "headgate", [INSERT])
    known.check(batch)
    batch.add("INSERT INTO shop.files (id, content) VALUES (%s, %s)", (1, bytes(FAIL_BYTES)))
    with pytest.raises(BatchUnfit, match="batch of this size"):
        known.check(batch)


def test_a_table_that_forgets_within_three_hours_is_refused_by_name() -> None:
    server = Server(gc_grace={"shop.orders": 3600, "shop.files": 10_800})
    assert "table=shop.orders, gc_grace_s=3600" in refused(server, batch_with(WRITE))
    assert "" == refused(server, batch_with("UPDATE Shop.Files SET a = 1 WHERE id = 2"))
    assert "table=shop.orders" in refused(server, BatchStatement(), ["shop.orders"])
    assert "A table name needs its keyspace" in refused(server, BatchStatement(), ["orders"])


def test_the_table_of_a_prepared_statement_is_known_from_the_node_that_knows_its_text() -> None:
    server = Server(gc_grace={"shop.orders": 3600})
    server.prepared[b"id"] = WRITE.replace("shop.", "")
    batch = BatchStatement()
    batch._add_statement_and_params(True, b"id", [b"7", None, b"name"])
    assert "table=shop.orders" in refused(server, batch)


def test_a_prepared_statement_that_no_node_reports_of_is_not_judged() -> None:
    batch = BatchStatement()
    batch._add_statement_and_params(True, b"id", [b"7"])
    assert "" == refused(Server(), batch)


def test_what_was_asked_once_is_known() -> None:
    server = Server(gc_grace={"shop.orders": 86_400})
    known = batches(server)
    for _ in range(3):
        asyncio.run(known.learn(batch_with(WRITE)))
    assert 2 == len(server.asked)


# ---- reading CQL


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("INSERT INTO a.b (c) VALUES (1)", ("a", "b")),
        ('insert into "A"."B" (c) values (1)', ("A", "B")),
        ("UPDATE b SET c = 1 WHERE d = 2", ("here", "b")),
        ("DELETE c, d FROM a.b WHERE d = 2", ("a", "b")),
        ("DELETE FROM A.B USING TIMESTAMP 3 WHERE d = 2", ("a", "b")),
        ("SELECT 1", None),
    ],
)
def test_the_table_of_a_statement(text: str, result: tuple[str, str] | None) -> None:
    assert result == table_of(text, "here")


def test_the_table_of_a_statement_without_a_keyspace_is_not_guessed() -> None:
    assert table_of("UPDATE b SET c = 1 WHERE d = 2", None) is None


def test_the_size_of_a_text_is_that_of_its_values() -> None:
    assert 8 + 5 == size_of_text(WRITE)
    assert 3 + 16 + 8 == size_of_text(UPDATE)


@pytest.mark.parametrize(
    ("output", "limit"), [("50KiB", 51_200), ("50", 51_200), ("1MiB", 1_048_576), ("900B", 900), ("null", None)]
)
def test_a_limit_as_settings_report_it(output: str, limit: int | None) -> None:
    assert limit == bytes_of(output)
