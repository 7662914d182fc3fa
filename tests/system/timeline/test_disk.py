"""The disk that a queue takes, measured on a real node table by table, and the formula of docs/scaling.md."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

import headgate
from dev.servers.cassandra import Cassandra
from headgate import Put
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
    Load("few200", 200, 10_000, together=10),
    Load("packed200", 200, 100_000),
    Load("packed2000", 2_000, 20_000),
    Load("alone200", 200, 20_000, alone=True),
    Load("alone2000", 2_000, 10_000, alone=True),
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


async def work(environment: Mapping[str, str], load: Load) -> float:
    """Put all, receive and acknowledge all; how many seconds its lanes were busy."""
    document = {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": load.name, "namespace": "shop"},
        "spec": {"shards": LANES, "storage": {"keyspace": f"{KEYSPACE}_{load.name}"}},
    }
    await apply(document, environment=environment)
    async with headgate.connect(environment) as connection:
        queue = await connection.queue(f"shop/{load.name}")
        for first in range(0, load.messages, load.together):
            payloads = [os.urandom(load.payload_bytes) for _ in range(min(load.together, load.messages - first))]
            wanted: list[Any] = [Put(each, delay=3) for each in payloads] if load.alone else list(payloads)
            await queue.put_many(wanted)
        settled: set[str] = set()
        receiving_s = time.monotonic()
        while len(settled) < load.messages:
            messages = await queue.receive(1_000, wait=10)
            answers = await asyncio.gather(*(each.ack() for each in messages), return_exceptions=True)
            settled |= {each.id for each, answer in zip(messages, answers, strict=True) if answer is None}
        return time.monotonic() - receiving_s


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_measure(server: Cassandra, load: Load) -> None:
    environment = {**server.environment(), "KEYSPACE": KEYSPACE}
    busy_s = asyncio.run(work(environment, load))
    sizes = sizes_of(server, f"{KEYSPACE}_{load.name}")
    print(load.name, f"busy {busy_s:.1f} s", {k: (v, round(v / load.messages, 2)) for k, v in sizes.items()})
