"""The slices of the summary on a real server, after six weeks of marks in a fast clock: what a read meets, and what a
compaction leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID, uuid4

import pytest

from dev.servers.cassandra import Cassandra
from headgate.engines.summary.decide_marks import Owed
from headgate.engines.summary.reading import read_summary
from headgate.engines.summary.rows import SECOND_US, mark_statement
from headgate.local.processes import wait_until
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.statements import Insert
from headgate.store.model.table import Keyspace

pytestmark = pytest.mark.slow

KEYSPACE = "headgate_summary"
TABLE = f"{KEYSPACE}.{SUMMARY.name}"
PART_US = 60 * SECOND_US
PARTS = 60_000
"""Of each, two cells expire: more than the 100,000 tombstones at which a read fails."""
ENDED_WRITERS = 1_000
AT_ONCE = 128


@pytest.fixture
def server() -> Iterator[Cassandra]:
    """A node of its own: its tables are compacted."""
    with Cassandra.start() as node:
        yield node


def marks_of(queue: UUID, writer: UUID, parts: range) -> Iterator[Insert]:
    """The writes of a producer that puts a message with a delay of 30 s at the start of each part. They expire after
    a second in place of an hour."""
    owed = Owed(PART_US)
    for part in parts:
        now_us = part * PART_US
        owed.add([now_us + 30 * SECOND_US], sent_us=now_us)
        for mark in owed.marks(now_us):
            yield mark_statement(
                queue, writer, mark, retention_us=0, stamp_us=now_us, last_expiry_s=now_us // SECOND_US + 1
            )
            owed.is_written(mark)


async def write_all(store: CassandraStore, statements: Iterator[Insert]) -> None:
    """Some at a time."""

    async def write() -> None:
        for statement in statements:
            await store.write(statement)

    await asyncio.gather(*(write() for _ in range(AT_ONCE)))


def ended_writers(queue: UUID, part: int) -> Iterator[Insert]:
    """Each marked one part."""
    for number in range(ENDED_WRITERS):
        yield from marks_of(queue, UUID(int=number + 2), range(part, part + 1))


def sstables(server: Cassandra) -> int:
    """The files of the table."""
    lines = [each.strip() for each in server.node.nodetool("tablestats", TABLE).splitlines()]
    (line,) = (each for each in lines if each.startswith("SSTable count:"))
    return int(line.split(":")[1])


def test_a_slice_reads_after_weeks_of_marks_and_is_compacted_while_more_are_written(server: Cassandra) -> None:
    queue, end = uuid4(), time.time_ns() // 1000 // PART_US

    async def connected(work: Callable[[CassandraStore], Awaitable[None]]) -> None:
        store = await CassandraStore.connect(
            read_settings({**server.environment(), "KEYSPACE": KEYSPACE}), must_exist=False
        )
        try:
            await work(store)
        finally:
            await store.close()

    async def fill(store: CassandraStore) -> None:
        await store.cql(create_keyspace_cql(Keyspace(KEYSPACE, ((store.data_center, 1),))))
        await store.cql(create_table_cql(KEYSPACE, SUMMARY))
        await write_all(store, ended_writers(queue, end - PARTS - 60))
        await write_all(store, marks_of(queue, uuid4(), range(end - PARTS, end - 10)))
        assert set(await read_summary(store, now_us=end * PART_US)) <= {queue}, (
            "the server refuses 100,000 tombstones"
        )
        await store.cql(f"ALTER TABLE {TABLE} WITH gc_grace_seconds = 1")

    asyncio.run(connected(fill))
    assert wait_until(lambda: not server.cql(f"SELECT writer FROM {TABLE}"), timeout_s=30)  # noqa: S608
    server.node.nodetool("flush", KEYSPACE)
    assert sstables(server) > 0
    asyncio.run(connected(lambda store: write_all(store, marks_of(queue, uuid4(), range(end - 10, end)))))

    def is_purged() -> bool:
        server.node.nodetool("compact", KEYSPACE)
        return sstables(server) == 0

    assert wait_until(is_purged, timeout_s=20), "what lies in memory holds something back"
