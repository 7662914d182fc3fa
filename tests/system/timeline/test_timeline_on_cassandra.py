"""A timeline queue on a real Cassandra: put, received and settled by processes of their own, one of them killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra.serving import Serving
from headgate.engines.contract import Ack, Cancelled, NewMessage, PassEnd, Settled
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.packed_row import PackedRun
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, day_of, id_bytes, id_text
from headgate.engines.timeline.model.partitions import day_statement, index_statement
from headgate.engines.timeline.model.row import index_key_of
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.model.tables import ALL, shared_tables
from headgate.local.processes import wait_until
from headgate.store.cassandra.schema import CassandraSchema
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.statements import UpdateIf, is_
from headgate.store.model.table import Keyspace
from headgate.store.schema import ensure
from tests.kit.process import connected

KEYSPACE = "headgate_timeline"
SECOND = 1_000_000
LEASE = LeaseTerms(ttl_s=6, touch_us=SECOND, skew_us=500_000)
"""A short one, where a test waits for its end."""
COMES_WITHIN_S = 90.0
IN_FLIGHT = 20


def settings_of(queue: uuid.UUID) -> TimelineSettings:
    """A queue of three lanes."""
    return TimelineSettings(queue, "emails", shared_tables(), (GenerationSettings(1, 3),), receipt_key=b"secret")


@asynccontextmanager
async def opened(
    connection_variables: dict[str, str], queue: uuid.UUID, **changes: Any
) -> AsyncIterator[TimelineQueue]:
    """The queue, as one process has it."""
    async with connected(connection_variables) as process:
        host, settings = process.host, replace(settings_of(queue), **changes)
        engine = TimelineQueue(host, settings, read_us=host.now_us())
        await make_lanes(host, engine.settings, engine.settings.generations[0])
        try:
            yield engine
        finally:
            await engine.close()


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving) -> dict[str, str]:
    """How to reach a server that has the tables."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}

    async def prepare() -> None:
        store = await CassandraStore.connect(read_settings(environment), must_exist=False)
        tables = [table.named(f"timeline_{table.name}") for table in ALL]
        await ensure(CassandraSchema(store), Keyspace(KEYSPACE, ((store.data_center, 1),)), tables)
        await store.close()

    asyncio.run(prepare())
    return environment


async def drain(engine: TimelineQueue, expected: int, *, and_on_s: float = 4.0) -> list[str]:
    """Receive and settle until this number came, and some time longer, so that duplicates show; ids in order."""
    matches: list[str] = []
    until_s = time.monotonic() + COMES_WITHIN_S
    while time.monotonic() < until_s:
        if given := await engine.receive(200, wait_us=SECOND):
            before, matches = len(matches), [*matches, *(each.message_id for each in given)]
            settled = await engine.settle([Ack(each.receipt) for each in given])
            assert {Settled.DONE} == set(settled)
            if before < expected <= len(matches):
                until_s = time.monotonic() + and_on_s
    return matches


def test_what_is_put_is_received_and_settled_once(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        async with opened(connection_variables, uuid.uuid4()) as engine:
            ids = await engine.put(
                [NewMessage(b"%d" % number, attributes={"n": str(number)}) for number in range(1500)]
            )
            assert sorted(ids) == sorted(await drain(engine, len(ids)))

    asyncio.run(work())


def test_a_delayed_message_comes_at_its_time_and_a_cancelled_one_never(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        async with opened(connection_variables, uuid.uuid4()) as engine:
            due_us = engine.host.now_us() + 6 * SECOND
            kept, dropped = await engine.put(
                [NewMessage(b"kept", due_us=due_us), NewMessage(b"dropped", due_us=due_us)]
            )
            assert Cancelled.CANCELLED is await engine.cancel(dropped)
            assert [] == await engine.receive(10, wait_us=3 * SECOND)
            (given,) = await engine.receive(10, wait_us=8 * SECOND)
            assert (kept, True) == (given.message_id, engine.host.now_us() >= due_us)
            assert engine.host.now_us() - due_us < 1_500_000
            assert [Settled.DONE] == await engine.settle([Ack(given.receipt)])
            assert [] == await engine.receive(10, wait_us=2 * SECOND)

    asyncio.run(work())


@pytest.mark.slow  # it waits for real time; in the simulation and on a ring the same is shown each time
def test_a_generation_that_is_over_is_left_and_what_was_scheduled_in_it_comes_from_the_next(
    connection_variables: dict[str, str],
) -> None:
    """Many rows of one partition move in conditional batches, one of which meets a row that has moved already."""

    async def work() -> None:
        async with opened(
            connection_variables, uuid.uuid4(), lease=LEASE, generations=(GenerationSettings(1, 2),)
        ) as engine:
            host = engine.host
            due_us = host.now_us() + 25 * SECOND
            ids = await engine.put([NewMessage(b"%d" % each, due_us=due_us + each * 1000) for each in range(450)])
            ids += await engine.put(
                [NewMessage(b"g %d" % each, due_us=due_us + each, group="g") for each in range(20)]
            )
            now_us = host.now_us()
            generations = (
                GenerationSettings(1, 2, until_us=now_us, sure_us=now_us),
                GenerationSettings(2, 3, from_us=now_us),
            )
            over = replace(engine.settings, generations=generations)
            engine.settings_changed(over, read_us=host.now_us())
            met = MessagePlace.from_bytes(id_bytes(ids[200])).row
            key = {**lane_key(over, 1, met.shard), "part": met.part(over.part_us), "sub": met.sub, "due": met.due}
            place = engine.producer.sender.fix_place(due_us).to_bytes()
            mark = UpdateIf(
                over.tables.work, key, {"moved": place}, is_("moved", None), attempt=host.uuid(), ttl_s=999
            )
            assert (await host.store.decide(mark)).applied
            (first,) = await engine.receive(1, wait_us=60 * SECOND)
            await engine.settle([Ack(first.receipt)])
            matches = [first.message_id, *await drain(engine, len(ids) - 1)]
            assert sorted(ids) == sorted(matches)
            assert ids[450:] == [each for each in matches if each in set(ids[450:])]
            assert {(1, 0), (1, 1)} == engine.lanes.retired
            assert {2} == {generation for generation, _ in engine.lanes.held}

    asyncio.run(work())


def test_rows_that_land_below_the_position_are_restamped_once(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        short = {"part_us": 2 * SECOND, "late_write_us": SECOND, "generations": (GenerationSettings(1, 1),)}
        async with opened(connection_variables, uuid.uuid4(), **short) as engine:
            sender, now_us = engine.producer.sender, engine.host.now_us()
            await engine.put([NewMessage(b"in time")])
            place = sender.place_row(1, 0, now_us + SECOND, now_us=now_us, size_bytes=9)
            late = sender.stamp(PackedRun([now_us] * 3, [now_us] * 3, [b"a", b"b", b"c"]), place, now_us=now_us)
            for statement in (
                index_statement(
                    engine.settings, index_key_of(late.partition), now_us=now_us, last_expiry_s=2**31 - 2
                ),
                day_statement(
                    engine.settings,
                    1,
                    day_of(late.partition.part, 2 * SECOND),
                    now_us=now_us,
                    last_expiry_s=2**31 - 2,
                ),
            ):
                await engine.host.store.write(statement)
            assert 1 == len(await drain(engine, 1, and_on_s=7.0))  # until its position is beyond them
            await engine.host.store.write(late.statement)
            done = await engine.repair()
            assert (PassEnd.DONE, 1, 1, (), None) == (
                *(done.end, done.late, done.put_again, done.problems, done.oldest_owed_us),
            )
            assert [id_text(MessagePlace(place, index).to_bytes()) for index in range(3)] == await drain(engine, 3)
            again = await engine.repair()
            assert (PassEnd.DONE, 0, ()) == (again.end, again.put_again, again.problems)
            assert again.checked > 0

    asyncio.run(work())


@pytest.mark.slow
def test_lanes_of_a_killed_process_are_taken_over_and_nothing_is_lost(
    connection_variables: dict[str, str], tmp_path: Path
) -> None:
    queue = uuid.uuid4()
    asked, out = tmp_path / "asked.txt", tmp_path / "acked.txt"
    program = textwrap.dedent(
        f"""
        import asyncio, uuid
        from headgate.engines.contract import Ack, Settled
        from tests.system.timeline.test_timeline_on_cassandra import LEASE, opened

        async def main():
            async with opened({connection_variables!r}, uuid.UUID({str(queue)!r}), lease=LEASE) as engine:
                with open({str(asked)!r}, "a", buffering=1) as asked, open({str(out)!r}, "a", buffering=1) as acked:
                    while True:
                        given = await engine.receive({IN_FLIGHT}, wait_us=1_000_000)
                        await asyncio.sleep(0.05)
                        print(*(each.message_id for each in given), file=asked)
                        settled = await engine.settle([Ack(each.receipt) for each in given])
                        for each, how in zip(given, settled):
                            if how is Settled.DONE:
                                print(each.message_id, file=acked)

        asyncio.run(main())
        """
    )

    async def put() -> list[str]:
        async with opened(connection_variables, queue, lease=LEASE) as engine:
            return [each for _ in range(20) for each in await engine.put([NewMessage(b"x")] * 100)]

    async def rest(expected: int) -> list[str]:
        async with opened(connection_variables, queue, lease=LEASE) as engine:
            return await drain(engine, expected)

    ids = asyncio.run(put())
    with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": "workers:."}) as worker:
        in_the_middle = wait_until(lambda: out.exists() and len(out.read_text().split()) >= 200, timeout_s=60)
        assert in_the_middle and worker.poll() is None, "the worker got nowhere"
        worker.send_signal(signal.SIGKILL)
    before = out.read_text().split()
    assert len(before) < len(ids), "it was killed too late to show anything"
    unanswered = set(asked.read_text().split()) - set(before)
    assert len(unanswered) <= IN_FLIGHT
    after = asyncio.run(rest(len(ids) - len(before)))
    assert set(ids) - unanswered <= set(before) | set(after) <= set(ids)
    twice = set(before) & set(after)
    assert set() == twice, json.dumps(sorted(twice)[:5])
