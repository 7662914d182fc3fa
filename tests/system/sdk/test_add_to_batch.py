"""An application's own logged batch with a message in it, sent by the driver that applications use: on one Cassandra,
and on a ring whose coordinators are killed while batches are in flight. And the backlog, as `headgate top` shows
it.

The prose is "A message in the application's own batch" in docs/internals/protocols/timeline.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import BatchStatement, SimpleStatement

import headgate
from dev.servers.cassandra import Ring
from dev.servers.cassandra.connection import ContactPoint, read_connection
from dev.servers.cassandra.serving import Serving
from headgate.store.cassandra.batches import BatchUnfit

SPEC = "{shards: 2, timeline: {part: 5s}, storage: {tables: shared}}"
QUEUE = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: orders, namespace: shop}}
spec: {spec}
"""
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text)",
    "CREATE TABLE files (id int PRIMARY KEY, content blob)",
    "CREATE TABLE short (id int PRIMARY KEY, item text) WITH gc_grace_seconds = 3600",
)
ORDER = "INSERT INTO orders (id, item) VALUES (?, ?)"
FILE = "INSERT INTO files (id, content) VALUES (?, ?)"
ROUND = 120
IN_FLIGHT = 20
CALM = 60
KILLED_AFTER = 100
"""Batches of one round on the ring: some at a time, then all at once, in whose midst the coordinator dies."""
SETTLES_WITHIN_S = 420
CHECKS = 12


def command(connection_variables: Mapping[str, str], *words: str) -> str:
    """The output of a command of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **connection_variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepared(environment: Mapping[str, str], file: Path) -> dict[str, str]:
    """A queue that was applied, and tables of an application beside it."""
    variables = {**environment, "KEYSPACE": f"shop_{uuid.uuid4().hex[:12]}"}
    file.write_text(QUEUE.format(spec=SPEC))
    command(variables, "apply", str(file))
    with session_at(variables, read_connection(variables).contact_points[0]) as session:
        for text in TABLES:
            session.execute(text)
    return variables


@contextmanager
def session_at(connection_variables: Mapping[str, str], point: ContactPoint) -> Iterator[Any]:
    """A session of the application, all of whose requests go to one node."""
    connection = read_connection(connection_variables)
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([point.host]), request_timeout=30)
    auth = None
    if connection.username is not None:
        auth = PlainTextAuthProvider(connection.username, connection.password)
    cluster = Cluster(
        [point.host],
        port=point.port,
        auth_provider=auth,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        protocol_version=5,
        ssl_context=None if connection.tls is None else connection.tls.context(),
    )
    try:
        yield cluster.connect(connection_variables["KEYSPACE"])
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an application on one node."""
    return prepared(cassandra.environment(), tmp_path_factory.mktemp("batches") / "queue.yaml")


def ordering(
    connection_variables: dict[str, str], work: Callable[[headgate.Queue, Any], Coroutine[Any, Any, None]]
) -> None:
    """Do something with the queue and a session of the application."""

    async def run() -> None:
        async with headgate.connect(connection_variables) as connection:
            with session_at(connection_variables, read_connection(connection_variables).contact_points[0]) as session:
                await work(await connection.queue("shop/orders"), session)

    asyncio.run(run())


async def received(queue: headgate.Queue, count: int) -> list[Any]:
    """The bodies of this number of messages, settled."""
    entries: list[headgate.Message] = []
    while len(entries) < count:
        given = await queue.receive(100, wait=20)
        assert given, f"{len(entries)} of {count}, and no more"
        await queue.ack(given)
        entries += given
    return [each.json() for each in entries]


def test_an_order_and_its_message_are_written_by_one_batch(connection_variables: dict[str, str]) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        insert = session.prepare(ORDER)
        batch = BatchStatement()
        batch.add(insert, (1, "tea"))
        put = await queue.add_to_batch(batch, {"order": 1}, attributes={"from": "it's 100 %"}, within=5)
        put.check()
        await asyncio.to_thread(session.execute, batch)
        (message,) = await queue.receive(10, wait=20)
        assert (put.id, {"order": 1}) == (message.id, message.json())
        assert "it's 100 %" == message.attributes["from"]
        await message.ack()
        rows = session.execute("SELECT item FROM orders WHERE id = 1")
        assert ["tea"] == [row.item for row in rows]

    ordering(connection_variables, work)


def test_a_message_that_is_due_later_can_be_cancelled_like_any_other(connection_variables: dict[str, str]) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        batch = BatchStatement()
        put = await queue.add_to_batch(batch, {"order": 2}, delay=3600)
        await asyncio.to_thread(session.execute, batch)
        assert [put.id] == [each.id for each in await queue.peek() if each.id == put.id]
        assert await queue.cancel(put.id)

    ordering(connection_variables, work)


def test_what_is_refused_for_its_size_the_server_would_refuse_and_what_is_not_it_takes(
    connection_variables: dict[str, str],
) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        insert = session.prepare(FILE)

        def large(size: int) -> BatchStatement:
            batch = BatchStatement()
            batch.add(insert, (1, bytes(size)))
            batch.add(SimpleStatement("INSERT INTO orders (id, item) VALUES (9, 'x')"))
            return batch

        with pytest.raises(BatchUnfit, match=r"of this size .*limit=51200"):
            await queue.add_to_batch(large(51_200), {"order": 3})
        with pytest.raises(InvalidRequest, match="Batch too large"):
            await asyncio.to_thread(session.execute, large(51_200))
        batch = large(50_000)
        put = await queue.add_to_batch(batch, {"order": 3}, within=10)
        put.check()
        await asyncio.to_thread(session.execute, batch)
        assert [{"order": 3}] == await received(queue, 1)
        added = large(30_000)
        put = await queue.add_to_batch(added, {"order": 4}, within=30)
        added.add(insert, (2, bytes(30_000)))
        with pytest.raises(BatchUnfit, match="of this size"):
            put.check()
        with pytest.raises(InvalidRequest, match="Batch too large"):
            await asyncio.to_thread(session.execute, added)

    ordering(connection_variables, work)


def test_a_table_that_forgets_too_soon_is_seen_where_it_is_reported_and_in_prepared_statements(
    connection_variables: dict[str, str],
) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        text = "INSERT INTO short (id, item) VALUES (%s, %s)"
        named = f"{connection_variables['KEYSPACE']}.short"
        by_text, by_prepared = BatchStatement(), BatchStatement()
        by_text.add(text, (1, "tea"))
        by_prepared.add(session.prepare(text.replace("%s", "?")), (1, "tea"))
        for batch, tables in ((by_text, [named]), (by_prepared, [])):
            with pytest.raises(BatchUnfit, match=rf"gc_grace .*table={named}, gc_grace_s=3600"):
                await queue.add_to_batch(batch, {"order": 5}, tables=tables)
            assert 1 == len(batch)

    ordering(connection_variables, work)


def test_conditions_are_refused_as_the_server_refuses_them(connection_variables: dict[str, str]) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        batch = BatchStatement(consistency_level=ConsistencyLevel.LOCAL_QUORUM)
        put = await queue.add_to_batch(batch, {"order": 6}, within=30)
        batch.add(SimpleStatement("INSERT INTO orders (id, item) VALUES (1, 'x') IF NOT EXISTS"))
        with pytest.raises(BatchUnfit, match=r"conditions \(IF\)"):
            put.check()
        with pytest.raises(InvalidRequest):
            await asyncio.to_thread(session.execute, batch)

    ordering(connection_variables, work)


def test_without_async_it_is_the_same(connection_variables: dict[str, str]) -> None:
    with (
        headgate.connect_sync(connection_variables) as connection,
        session_at(connection_variables, read_connection(connection_variables).contact_points[0]) as session,
    ):
        queue = connection.queue("shop/orders")
        batch = BatchStatement()
        put = queue.add_to_batch(batch, headgate.Put({"order": 7}), within=5)
        put.check()
        session.execute(batch)
        (message,) = queue.receive(10, wait=20)
        assert put.id == message.id
        message.ack()


def test_top_shows_the_queue_that_works_it_and_what_is_behind(connection_variables: dict[str, str]) -> None:
    async def work(queue: headgate.Queue, session: Any) -> None:
        await queue.put_many([b"%d" % number for number in range(30)])
        (held,) = await queue.receive(1, wait=20)
        figures: tuple[object, ...] = ()
        for _ in range(CHECKS):  # figures of messages that have been due for some time are reported every second
            (observation,) = json.loads(
                await asyncio.to_thread(command, connection_variables, "top", "--snapshot", "-o", "json")
            )["queues"]
            figures = tuple(observation[name] for name in ("queue", "workers", "lanes", "backlog", "in_flight"))
            if figures == ("shop/orders", 1, 2, 29, 1):
                break
        assert figures == ("shop/orders", 1, 2, 29, 1)
        lines = (await asyncio.to_thread(command, connection_variables, "top", "--snapshot")).splitlines()
        assert ["shop/orders", "29", "1"] == lines[1].split()[:3]
        assert "" == (
            await asyncio.to_thread(command, connection_variables, "top", "--snapshot", "--namespace", "none")
        ).replace("no queues\n", "")
        await held.ack()
        await received(queue, 29)

    ordering(connection_variables, work)


# ---- on a ring


@pytest.mark.slow
def test_a_coordinator_killed_at_any_step_of_a_batch_leaves_order_and_message_or_neither(
    cassandra_ring: Ring, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    variables = prepared(cassandra_ring.environment(), tmp_path / "queue.yaml")
    acknowledged: set[int] = set()
    for number, victim in enumerate(cassandra_ring.nodes):
        acknowledged |= asyncio.run(_order_until_killed(variables, victim, ROUND * number))
        cassandra_ring.restore()
    delivered = asyncio.run(_deliver_all(variables))
    written = set(_orders(variables))
    tried = ROUND * len(cassandra_ring.nodes)
    measured(f"{tried} batches, {len(acknowledged)} acknowledged, {len(written)} written with their messages")
    assert set() == acknowledged - written
    assert written == set(delivered)
    assert {1} == set(delivered.values())
    assert 0 < len(acknowledged) < tried


async def _order_until_killed(connection_variables: dict[str, str], victim: Any, first: int) -> set[int]:
    """Batches, some at a time; the coordinator of all is killed while these are in flight. The answered."""
    (point,) = victim.connection.contact_points
    async with headgate.connect(connection_variables) as connection:
        queue = await connection.queue("shop/orders")
        with session_at(connection_variables, point) as session:
            insert = session.prepare(ORDER)
            sent = {}
            for number in range(first, first + ROUND):
                batch = BatchStatement()
                batch.add(insert, (number, "tea"))
                put = await queue.add_to_batch(batch, {"order": number}, within=5)
                put.check()
                sent[number] = session.execute_async(batch)
                if number < first + CALM and number - IN_FLIGHT in sent:
                    await asyncio.to_thread(_answered, sent[number - IN_FLIGHT])
                if number == first + KILLED_AFTER:
                    victim.kill()
            return {number for number, future in sent.items() if await asyncio.to_thread(_answered, future)}


def _answered(future: Any) -> bool:
    try:
        future.result()
    except Exception:  # whatever it is, nobody knows
        return False
    return True


def _orders(connection_variables: dict[str, str]) -> list[int]:
    """All that are written, on whichever replica."""
    with session_at(connection_variables, read_connection(connection_variables).contact_points[0]) as session:
        asked = SimpleStatement("SELECT id FROM orders", consistency_level=ConsistencyLevel.ALL)
        return [row.id for row in session.execute(asked)]


async def _deliver_all(connection_variables: dict[str, str]) -> Counter[int]:
    """Receive and repair until every order that is written has its message, and then for a while longer."""
    delivered: Counter[int] = Counter()
    async with headgate.connect(connection_variables) as connection:
        queue = await connection.queue("shop/orders")
        loop = asyncio.get_running_loop()
        until_s, calm = loop.time() + SETTLES_WITHIN_S, 0
        while calm < 3 and loop.time() < until_s:
            given = await queue.receive(100, wait=10)
            await queue.ack(given)
            delivered.update(each.json()["order"] for each in given)
            repaired = await queue.repair()
            whole = set(await asyncio.to_thread(_orders, connection_variables)) == set(delivered)
            calm = calm + 1 if whole and not given and not repaired.rewritten else 0
    return delivered
