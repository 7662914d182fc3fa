"""A counter on a real Cassandra: updates, tokens, the fold, the collection at ALL, and its refusal where a hint could
still come.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dev.servers.cassandra import Ring
from dev.servers.cassandra.serving import Serving
from headgate.counters.collect.collector import Collector, PassReport
from headgate.counters.counter import CounterHandle
from headgate.counters.model.decide_shards import TALLY
from headgate.counters.model.settings import CounterSettings
from headgate.counters.model.tables import ALL, shared_tables
from headgate.counters.types.sum import Sum
from headgate.process.live import Live
from headgate.store.cassandra.node_queries import CassandraHintWindows
from headgate.store.cassandra.schema import CassandraSchema
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.statements import Select
from headgate.store.model.table import Keyspace
from headgate.store.schema import ensure
from tests.kit.counter_invariants import CounterLedger
from tests.kit.process import RealProcess, connected

KEYSPACE = "headgate_counters"
SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
KIND = Sum()


async def prepare(environment: dict[str, str], replicas: int) -> None:
    """Keyspace and tables."""
    store = await CassandraStore.connect(read_settings(environment), must_exist=False)
    tables = [table.named(f"counter_{table.name}") for table in ALL]
    await ensure(CassandraSchema(store), Keyspace(KEYSPACE, ((store.data_center, replicas),)), tables)
    await store.close()


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving) -> dict[str, str]:
    """How to reach a server that has the tables."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}
    asyncio.run(prepare(environment, 1))
    return environment


class Process:
    """One process with a counter, whose clock can be sent back: what it does then happened long ago."""

    def __init__(self, real: RealProcess, settings: CounterSettings) -> None:
        self.store, self.host = real.store, real.host
        self.settings = settings
        self.counter = CounterHandle(self.host, settings, kind=KIND)
        self.collector = Collector(self.host, Live(settings), KIND, CassandraHintWindows(real.store))

    async def mutators_of(self, key: str) -> list[bytes]:
        """The rows of a key."""
        bucket = self.settings.buckets
        rows = []
        for number in range(bucket):
            place = {"counter": self.settings.counter, "bucket": number, "key": key}
            rows += await self.store.read(Select(self.settings.tables.shards, place, ("mutator",)))
        return [row.mutator for row in rows]


@asynccontextmanager
async def opened(
    connection_variables: dict[str, str], counter: uuid.UUID, *, ago_us: int = 0, **changes: Any
) -> AsyncIterator[Process]:
    """The counter, as one process has it."""
    settings = replace(CounterSettings(counter, "shop/views", shared_tables(), buckets=4), **changes)
    async with connected(connection_variables, ago_us=ago_us) as real:
        await real.clock.until_trusted(10)
        process = Process(real, settings)
        try:
            yield process
        finally:
            await process.counter.close()


def test_what_many_callers_count_is_read_by_others(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        counter = uuid.uuid4()
        async with opened(connection_variables, counter) as writer, opened(connection_variables, counter) as reader:
            keys = [f"k{number}" for number in range(200)]
            await asyncio.gather(*(writer.counter.add(key, 1) for key in keys for _ in range(50)))
            await asyncio.gather(*(reader.counter.add(key, -1) for key in keys))
            assert await reader.counter.read_many(keys) == dict.fromkeys(keys, 49)
            assert {key: state async for key, state in reader.counter.scan()} == dict.fromkeys(keys, 49)
            assert {len(await reader.mutators_of(key)) for key in keys[:5]} == {2}
            cached = await reader.counter.read_cached("k1")
            assert (cached.state, cached.age_s < 1) == (49, True)

    asyncio.run(work())


def test_under_memory_pressure_every_total_is_kept_and_no_shard_is_added(
    connection_variables: dict[str, str],
) -> None:
    async def work() -> None:
        async with opened(connection_variables, uuid.uuid4(), memory_bytes_max=5_000) as writer:
            own = random.Random(1)
            expected: dict[str, int] = {}

            async def count() -> None:
                key = f"k{own.randrange(100)}"
                expected[key] = expected.get(key, 0) + 1
                await writer.counter.add(key, 1)

            for _ in range(40):
                await asyncio.gather(*(count() for _ in range(50)))
            assert writer.counter.mutator.culled > 100
            assert await writer.counter.read_many(expected) == expected
            assert {len(await writer.mutators_of(key)) for key in list(expected)[:20]} == {1}

    asyncio.run(work())


def test_final_shards_are_collected_at_all_and_the_value_stays(connection_variables: dict[str, str]) -> None:
    async def work() -> None:
        counter = uuid.uuid4()
        for days in (9, 8, 7, 6):
            async with opened(connection_variables, counter, ago_us=days * DAY) as old:
                await asyncio.gather(*(old.counter.add(f"k{key}", 10**days) for key in range(20)))
        async with opened(connection_variables, counter) as now:
            await now.counter.add("k3", 5)
            report = await now.collector.run()
            assert (report.refused, report.full, report.skipped) == (None, True, 0)
            assert (report.keys, report.collected) == (20, 80)
            assert await now.counter.read("k1") == 1_111_000_000
            assert await now.counter.read("k3") == 1_111_000_005
            assert await now.mutators_of("k1") == [TALLY]
            assert (await now.collector.read_result()).full_us == report.pass_us
            again = await now.collector.run()
            assert (again.collected, again.full) == (0, True)
            assert await now.counter.read("k1") == 1_111_000_000

    asyncio.run(work())


def test_updates_with_tokens_count_once_before_and_after_the_fold_and_in_the_tally(
    connection_variables: dict[str, str],
) -> None:
    async def work() -> None:
        counter = uuid.uuid4()
        windows = {"grains_us": (60 * SECOND, HOUR), "retention_us": 30 * DAY}
        async with opened(connection_variables, counter, ago_us=4 * DAY, **windows) as old:
            tokens = [old.counter.new_token(f"order {number}") for number in range(30)]
            for _ in range(3):
                await asyncio.gather(*(old.counter.add("home", 1, str(token)) for token in tokens))
            async with opened(connection_variables, counter, ago_us=4 * DAY, **windows) as other:
                await asyncio.gather(*(other.counter.add("home", 1, token) for token in tokens))
                await other.counter.add("home", 100)
                assert await other.counter.read("home") == 130
                assert {key: state async for key, state in other.counter.scan()} == {"home": 130}
                first = tokens[0].time_us // HOUR * HOUR
                assert await other.counter.read_between("home", first, first + 2 * HOUR) == 130
        async with opened(connection_variables, counter, **windows) as now:
            assert await now.counter.read("home") == 130
            report = await now.collector.run()
            assert report.minutes in (1, 2)  # a minute may have ended meanwhile
            assert await now.counter.read("home") == 130
            assert await now.counter.read_between("home", first, first + 2 * HOUR) == 130
            assert report.collected >= 2
            assert await now.mutators_of("home") == [TALLY]

    asyncio.run(work())


def test_nothing_is_collected_while_the_hint_window_of_the_server_is_too_long(
    connection_variables: dict[str, str], cassandra: Serving
) -> None:
    async def work() -> None:
        async with opened(connection_variables, uuid.uuid4(), ago_us=9 * DAY) as old:
            counter = old.settings.counter
            await old.counter.add("home", 1)
        async with opened(connection_variables, counter, ago_us=8 * DAY) as old:
            await old.counter.add("home", 2)
        async with opened(connection_variables, counter) as now:
            windows = await CassandraHintWindows(now.store).read()
            (window_us,) = windows.values()
            assert window_us == SECOND  # as the test server is set
            now.collector.live.set(replace(now.settings, gc_after_us=window_us + now.settings.skew_us))
            report = await now.collector.run()
            assert report.refused is not None
            assert "gc.after" in report.refused
            assert "\n" not in report.refused
            assert len(await now.mutators_of("home")) == 2
            now.collector.live.set(replace(now.settings, gc_after_us=window_us + now.settings.skew_us + 1))
            report = await now.collector.run()
            assert (report.refused, report.collected) == (None, 2)
            assert await now.counter.read("home") == 3

    asyncio.run(work())


@pytest.fixture
def ring(cassandra_ring: Ring) -> Iterator[Ring]:
    """Three nodes that have the tables."""
    asyncio.run(prepare({**cassandra_ring.environment(), "KEYSPACE": KEYSPACE}, 3))
    return cassandra_ring  # type: ignore[return-value]


async def collected_by_all(collector: Collector) -> PassReport:
    """A pass for which every node reported its hint window: a node that is back is noticed some time after it is."""
    for _ in range(120):
        report = await collector.run()
        if report.waits is None:
            return report
        await asyncio.sleep(0.5)
    raise AssertionError(report.waits)


def test_on_a_ring_a_lost_node_costs_no_update_and_holds_the_collection_up(ring: Ring) -> None:
    environment = {**ring.environment(), "KEYSPACE": KEYSPACE}
    counter = uuid.uuid4()

    async def while_unavailable() -> None:
        for days in (9, 8):
            async with opened(environment, counter, ago_us=days * DAY) as old:
                await old.counter.add("home", days)
                await old.counter.add("home", 100, old.counter.new_token())
        async with opened(environment, counter) as now:
            ledger = CounterLedger(now.host.now_us)
            stopping = asyncio.create_task(asyncio.to_thread(ring.nodes[2].kill))

            async def count() -> None:
                for _ in range(20):
                    tale = ledger.begin("views")
                    ledger.attempt(tale)
                    try:
                        await now.counter.add("views", tale.amount)
                    except Exception as error:  # what it is, the ledger judges
                        ledger.failed(tale, error)
                    else:
                        ledger.acknowledged(tale)
                    await asyncio.sleep(0.02)

            await asyncio.gather(*(count() for _ in range(10)))
            await stopping
            began_us = now.host.now_us()
            ledger.check("views", await now.counter.read("views"), began_us=began_us)
            assert (ledger.broken, ledger.acknowledged_count > 100) == ([], True)

            held_up = await now.collector.run()
            assert held_up.waits is not None
            assert (held_up.minutes, held_up.skipped, held_up.collected, held_up.full) == (2, 1, 0, False)
            assert len(await now.mutators_of("home")) == 4
            assert await now.counter.read("home") == 217

    async def when_it_is_back() -> None:
        async with opened(environment, counter) as now:
            later = await collected_by_all(now.collector)
            assert (later.collected, later.skipped, later.full) == (4, 0, True)
            assert await now.mutators_of("home") == [TALLY]
            assert await now.counter.read("home") == 217

    asyncio.run(while_unavailable())
    ring.restore()  # by this thread: a node ends with the thread that started it
    asyncio.run(when_it_is_back())
