"""The disk that a queue takes, measured on a real node table by table, and the formula of docs/scaling.md."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import headgate
from dev.servers.cassandra import Cassandra
from headgate import HeadgateError, Put
from headgate.applying.call import apply

pytestmark = pytest.mark.slow

KEYSPACE = "headgate_disk"
LANES = 4


@dataclass(frozen=True)
class Load:
    """Messages of one size, put and settled one way."""

    name: str
    payload_bytes: int
    messages: int
    alone: bool = False
    """Each in a row of its own."""
    together: int = 1_000
    """Put in one call."""


LOADS = (
    Load("alone200", 200, 10_000, alone=True, together=200),
    Load("alone2000", 2_000, 5_000, alone=True, together=200),
    Load("few200", 200, 10_000, together=10),
    Load("packed200", 200, 50_000),
    Load("packed2000", 2_000, 10_000),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Cassandra]:
    """A node of its own: its files are measured."""
    with Cassandra.start() as node:
        yield node


def sizes_of(server: Cassandra, keyspace: str) -> dict[str, int]:
    """The bytes of each table's live files, by name without the creation's prefix."""
    server.node.nodetool("flush", keyspace)
    server.node.nodetool("compact", keyspace)
    sizes: dict[str, int] = {}
    for table in (server.node.place.directory / "data" / keyspace).iterdir():
        name = table.name.rpartition("-")[0]
        name = name.split("_", 2)[2] if name.startswith("q_") else name
        sizes[name] = sizes.get(name, 0) + sum(each.stat().st_size for each in table.glob("*-*.*") if each.is_file())
    return sizes


async def work(environment: Mapping[str, str], load: Load) -> tuple[int, float]:
    """Put, receive and acknowledge all; how many messages were stored, and how many seconds the lanes were busy. A
    busy machine makes some calls fail: what they may have stored is received, and counts."""
    document = {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": load.name, "namespace": "shop"},
        "spec": {"shards": LANES, "storage": {"keyspace": f"{KEYSPACE}_{load.name}"}},
    }
    await apply(document, environment=environment)
    async with headgate.connect(environment) as connection:
        queue = await connection.queue(f"shop/{load.name}")
        for _ in range(load.messages // load.together):
            payloads = [os.urandom(load.payload_bytes) for _ in range(load.together)]
            wanted: list[Any] = [Put(each, delay=3) for each in payloads] if load.alone else list(payloads)
            with suppress(HeadgateError):
                await queue.put_many(wanted)
        received: set[str] = set()
        began_s = ended_s = time.monotonic()
        while messages := await receive(queue):
            received |= {each.id for each in messages}
            await asyncio.gather(*(each.ack() for each in messages), return_exceptions=True)
            ended_s = time.monotonic()
    return len(received), ended_s - began_s


async def receive(queue: headgate.Queue) -> list[headgate.Message]:
    """What comes within a minute."""
    for _ in range(6):
        with suppress(HeadgateError):
            if messages := await queue.receive(500, wait=10):
                return messages
    return []


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_measure(server: Cassandra, load: Load) -> None:
    environment = {**server.environment(), "KEYSPACE": KEYSPACE}
    count, busy_s = asyncio.run(work(environment, load))
    sizes = sizes_of(server, f"{KEYSPACE}_{load.name}")
    print(
        load.name,
        count,
        f"busy {busy_s:.1f} s",
        {k: (v, round(v / count, 2)) for k, v in sizes.items() if v},
        flush=True,
    )
