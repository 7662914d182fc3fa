"""The disk that a queue takes, measured on a real node table by table, against the formula of docs/scaling.md."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

import headgate
from dev.servers.cassandra import Cassandra, NodeSettings
from headgate import HeadgateError, Put
from headgate.applying.call import apply
from headgate.engines.timeline.model.tables import WORK
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.statements import Insert
from headgate.store.model.table import Keyspace
from headgate.store.process_positions import process_positions
from tests.kit.page_examples import examples_of

pytestmark = pytest.mark.slow

KEYSPACE = "headgate_disk"
TOLERANCE = 0.15
OF_FILES_BYTES = 6_000
"""The parts of a table's files that do not grow with its rows."""
DAY_S = 60
"""What stands for a day where a retention is measured."""
RETENTION_DAYS = 3
ROW_BYTES, ROWS_TOGETHER, EVERY_S = 10_000, 20, 0.4


@dataclass(frozen=True)
class Load:
    """Messages of one size, put one way."""

    payload_bytes: int
    messages: int
    together: int
    """How many share a row."""
    alone: bool = False
    """Each has a row of its own, though they are put in one call."""

    @property
    def name(self) -> str:
        return f"of{self.payload_bytes}by{self.together}"


LOADS = (
    Load(200, 10_000, together=1, alone=True),
    Load(2_000, 5_000, together=1, alone=True),
    Load(200, 10_000, together=10),
    Load(200, 50_000, together=500),
    Load(2_000, 10_000, together=50),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Cassandra]:
    """A node of its own, since its files are measured. It flushes often."""
    overrides = {"memtable_heap_space": "6MiB", "memtable_offheap_space": "6MiB"}
    with Cassandra.start(NodeSettings(overrides=overrides)) as node:
        yield node


@pytest.fixture(scope="module")
def formula() -> Callable[..., float]:
    """The bytes of one message, as the page for users computes them."""
    (program,) = (each for each in examples_of("scaling.md") if "def stored_bytes(" in each.text)
    names: dict[str, Any] = {}
    exec(program.text, names)  # noqa: S102 - it is a page of this repository
    stored_bytes: Callable[..., float] = names["stored_bytes"]
    return stored_bytes


def bytes_of(server: Cassandra, keyspace: str, table: str) -> int:
    """Of a table's live files."""
    folders = (server.node.place.directory / "data" / keyspace).glob(f"*{table}-*")
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*-*.*"))


async def store_all(environment: Mapping[str, str], load: Load) -> int:
    """Put, receive and acknowledge all; how many messages were stored. A busy machine makes some calls fail. What
    they may have stored is received too."""
    document = {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": load.name, "namespace": "shop"},
        "spec": {"shards": 1, "storage": {"keyspace": f"{KEYSPACE}_{load.name}"}},
    }
    await apply(document, environment=environment)
    received: set[str] = set()
    async with headgate.connect(environment) as connection:
        queue = await connection.queue(f"shop/{load.name}")
        for _ in range(0, load.messages, 200 if load.alone else load.together):
            payloads = [os.urandom(load.payload_bytes) for _ in range(200 if load.alone else load.together)]
            wanted: list[Any] = [Put(each, delay=3) for each in payloads] if load.alone else list(payloads)
            with suppress(HeadgateError):
                await queue.put_many(wanted)
        while messages := await receive(queue):
            received |= {each.id for each in messages}
            await asyncio.gather(*(each.ack() for each in messages), return_exceptions=True)
    return len(received)


async def receive(queue: headgate.Queue) -> list[headgate.Message]:
    """What comes within a minute."""
    for _ in range(6):
        with suppress(HeadgateError):
            if messages := await queue.receive(500, wait=10):
                return messages
    return []


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_message_takes_the_bytes_of_the_formula(
    server: Cassandra, load: Load, formula: Callable[..., float], record_property: Callable[[str, object], None]
) -> None:
    count = asyncio.run(store_all({**server.environment(), "KEYSPACE": KEYSPACE}, load))
    keyspace = f"{KEYSPACE}_{load.name}"
    server.node.nodetool("flush", keyspace)
    server.node.nodetool("compact", keyspace)
    a_message = (bytes_of(server, keyspace, "_work") - OF_FILES_BYTES) / count
    record_property("bytes", round(a_message, 1))
    assert a_message == pytest.approx(formula(load.payload_bytes, together=load.together), rel=TOLERANCE)
    others = sum(bytes_of(server, keyspace, f"_{name}") for name in ("parts", "put_counts", "settled", "lanes"))
    assert others < 5 * OF_FILES_BYTES, "what does not grow with messages"


async def fill(server: Cassandra, sizes: list[float]) -> None:
    """Rows of `work` at a steady rate for nine days, each of which lasts a minute; the bytes every five seconds of
    the last four, in days of that rate."""
    keyspace = f"{KEYSPACE}_days"
    store = await CassandraStore.connect(
        read_settings({**server.environment(), "KEYSPACE": keyspace}), must_exist=False
    )
    queue, positions, began_s = uuid4(), process_positions(), time.monotonic()
    try:
        await store.cql(create_keyspace_cql(Keyspace(keyspace, ((store.data_center, 1),))))
        await store.cql(create_table_cql(keyspace, WORK))
        compaction = {**dict(WORK.compaction), "compaction_window_unit": "MINUTES"}
        compaction["expired_sstable_check_frequency_seconds"] = "5"
        await store.cql(f"ALTER TABLE {keyspace}.work WITH gc_grace_seconds = {DAY_S} AND compaction = {compaction}")
        turns = int(9 * DAY_S / EVERY_S)
        for turn in range(turns):
            now_us = time.time_ns() // 1000
            key = {"queue": queue, "generation": 1, "part": turn // 100, "sub": 0, "shard": 0}
            rows = [{**key, "due": positions.at(now_us), "run": os.urandom(ROW_BYTES)} for _ in range(ROWS_TOGETHER)]
            ttl_s = RETENTION_DAYS * DAY_S
            writes = (store.write(Insert(WORK, row, timestamp_us=now_us, ttl_s=ttl_s)) for row in rows)
            await asyncio.gather(*writes)
            if turn > turns * 5 / 9 and turn % 12 == 0:
                written_each_s = turn * ROWS_TOGETHER * ROW_BYTES / (time.monotonic() - began_s)
                sizes.append(bytes_of(server, keyspace, "work") / written_each_s / DAY_S)
            await asyncio.sleep(max(0.0, began_s + (turn + 1) * EVERY_S - time.monotonic()))
    finally:
        await store.close()


def test_messages_stay_for_their_retention_and_two_days(server: Cassandra) -> None:
    """The day of gc_grace, and half a day of the file before and after it."""
    sizes: list[float] = []
    asyncio.run(fill(server, sizes))
    assert sum(sizes) / len(sizes) == pytest.approx(RETENTION_DAYS + 2, rel=TOLERANCE)
