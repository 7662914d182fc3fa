"""Two data centers of a real Cassandra, one of which is killed: the other continues with what is at home in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

import headgate
from dev.servers.cassandra import NodeSettings, Ring
from headgate.applying.call import ApplyReport, apply
from headgate.errors import Unavailable
from headgate.store.catalogue.entry import WrongDataCenter
from headgate.store.model.cql import create_keyspace_cql
from headgate.store.model.table import Keyspace

pytestmark = pytest.mark.slow

KEYSPACE = "headgate_centers"
CENTERS = {"dc1": (0,), "dc2": (1, 2)}
"""Their nodes; each has all of the data."""
BEYOND_KNOWLEDGE_S = 65
"""Longer than knowledge of the catalogue may be used."""


@pytest.fixture(scope="module")
def ring() -> Iterator[Ring]:
    """Two data centers, and a keyspace that is replicated in both."""
    homes = [home for home, nodes in CENTERS.items() for _ in nodes]
    with Ring.start(NodeSettings(authentication=False), nodes=len(homes), data_centers=homes) as started:
        started.cql(
            create_keyspace_cql(Keyspace(KEYSPACE, tuple((home, len(nodes)) for home, nodes in CENTERS.items())))
        )
        yield started


def environment(ring: Ring, home: str) -> Mapping[str, str]:
    """Of a process in that data center."""
    node = ring.nodes[CENTERS[home][0]]
    return {**node.connection.environment(), "DATA_CENTER": home, "KEYSPACE": KEYSPACE}


def queue_document(name: str, shards: int) -> dict[str, Any]:
    """A resource as a person applies it."""
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"shards": shards, "storage": {"tables": "shared"}},
    }


async def applied(ring: Ring, home: str, name: str, shards: int) -> ApplyReport:
    """`headgate apply` in that data center."""
    return await apply(queue_document(name, shards), environment=environment(ring, home))


async def receive_all(queue: headgate.Queue, wanted: set[bytes]) -> None:
    """Receive and acknowledge until all are acknowledged. What was once does not come again, and nothing else comes:
    a busy machine may leave an acknowledgement unknown, after which the message may come again."""
    acknowledged: set[bytes] = set()
    async with asyncio.timeout(120):
        while acknowledged != wanted:
            with suppress(Unavailable):
                for message in await queue.receive(50, wait=10):
                    assert message.payload in wanted - acknowledged
                    with suppress(Unavailable):
                        await message.ack()
                        acknowledged.add(message.payload)


async def put_all(queue: headgate.Queue, wanted: set[bytes]) -> None:
    """Put each once: with a key, so that one of an unknown outcome may be put again."""
    for payload in sorted(wanted):
        async with asyncio.timeout(60):
            while True:
                with suppress(Unavailable):
                    await queue.put(payload, once=payload.decode())
                    break


@pytest.mark.parametrize("home", sorted(CENTERS))
def test_with_the_other_killed_queues_at_home_are_used_and_created_and_resharded(ring: Ring, home: str) -> None:
    (other,) = CENTERS.keys() - {home}

    async def work() -> None:
        name = f"emails-{home}"
        await applied(ring, home, name, 2)
        with pytest.raises(WrongDataCenter, match=f"set DATA_CENTER={home}"):
            async with headgate.connect(environment(ring, other)) as elsewhere:
                await elsewhere.queue(f"shop/{name}")
        async with headgate.connect(environment(ring, home)) as connection:
            queue = await connection.queue(f"shop/{name}")
            await put_all(queue, {b"before"})
            await receive_all(queue, {b"before"})
            for node in CENTERS[other]:
                ring.nodes[node].kill()
            await asyncio.sleep(BEYOND_KNOWLEDGE_S)
            await put_all(queue, {b"a", b"b"})
            await receive_all(queue, {b"a", b"b"})
            await applied(ring, home, f"fresh-{home}", 1)
            fresh = await connection.queue(f"shop/fresh-{home}")
            await put_all(fresh, {b"c"})
            await receive_all(fresh, {b"c"})
            await applied(ring, home, name, 3)
            await asyncio.sleep(BEYOND_KNOWLEDGE_S)
            many = {f"m{number}".encode() for number in range(20)}
            await put_all(queue, many)
            await receive_all(queue, many)

    try:
        asyncio.run(work())
    finally:
        ring.restore()
