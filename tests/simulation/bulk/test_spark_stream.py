"""A streaming query as a consumer, in the simulated world: the ranges that its reader borrows, delivers and
settles, beside live consumers and over restarts. The tests play Spark: they ask in the same order as it does."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.engines.contract import Ack, NewMessage
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.inspect.peek import peek
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.store.catalogue.entry import Name
from headgate_spark.engines.contract import LIVE, ReadRange, ScanRequest
from headgate_spark.engines.timeline.entry import ENGINE
from headgate_spark.options import StreamOptions, Subject
from headgate_spark.read.decide_stream_batch import BatchOffset
from headgate_spark.read.stream_reader import QueueStreamReader
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

TWO_LANES = replace(WORKED, generations=(GenerationSettings(1, 2),), visibility_us=30 * SECOND)
VISIBILITY_US = 60 * SECOND


@dataclass
class Query:
    """Spark's part: the offset log and the commit log, and a driver that may be restarted."""

    queue: Queue
    bound: int = 20
    visibility_us: int = VISIBILITY_US
    offsets: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    """This number of batches is noted as done."""
    batches: list[list[bytes]] = field(default_factory=list)
    starts: int = 0

    async def start(self) -> None:
        """Another driver: what the one before knew is lost, but for the logs."""
        self.starts += 1
        self.driver = Consumer(self.queue, f"driver-{self.starts}", DeliveryLog())
        engine = await self.driver.process.start(self.driver.open())
        entry = SimpleNamespace(name=Name("Queue", "shop", "emails"), spec={"engine": "timeline"})
        self.opened: Any = SimpleNamespace(engine=engine, entry=entry, name="shop/emails")
        options = StreamOptions(Subject("shop/emails", None, ()), self.bound, self.visibility_us, 7)
        self.reader = QueueStreamReader(options, ("payload",))

        async def the_queue() -> Any:
            return self.opened

        self.reader._queue = the_queue  # type: ignore[method-assign]  # the connection is the simulation's
        if self.done < len(self.offsets):
            await self.run_batch(self.offsets[-1])

    async def trigger(self) -> bool:
        """Ask for the next batch, note it, commit the one before, run it; whether there was one."""
        offset = json.loads(json.dumps((await self._in_driver(self.reader._next())).to_json()))
        if self.offsets and offset == self.offsets[-1]:
            return False
        self.offsets.append(offset)
        if len(self.offsets) > 1:
            await self.commit(self.offsets[-2])
        await self.run_batch(offset)
        return True

    async def run_batch(self, offset: dict[str, Any]) -> None:
        """The work of the tasks, and the record of its end."""
        self.batches.append(await self.read(offset))
        self.done = len(self.offsets)

    async def read(self, offset: dict[str, Any]) -> list[bytes]:
        """All tasks."""
        matches: list[bytes] = []
        request = ScanRequest(LIVE, ReadRange(), ("payload",), 7)
        for split in self.reader.partitions({}, offset):

            async def task(split: Any = split) -> list[bytes]:
                batches = ENGINE.scan.read_picked(self.opened, request, split.lane, split.picks)
                return [row["payload"] async for batch in batches for row in batch.to_pylist()]

            matches += await self._in_driver(task())
        return matches

    async def commit(self, offset: dict[str, Any]) -> None:
        """As Spark calls it, once the next batch is noted."""
        report = BatchOffset.from_json(offset)
        if report.number != self.reader._settled and report.ranges:
            await self._in_driver(self.reader._settle(report))

    async def _in_driver(self, work: Any) -> Any:
        return await self.driver.process.start(work)

    @property
    def had(self) -> Counter[bytes]:
        """All that batches had."""
        return Counter(payload for batch in self.batches for payload in batch)


async def put(queue: Queue, count: int, *, name: str = "m") -> set[bytes]:
    """Messages, some in rows that they share; due when it returns."""
    client = queue.client(f"producer-{name}-{queue.world.now_s()}")
    payloads = [f"{name}-{at}".encode() for at in range(count)]
    for first in range(0, count, 4):
        await client.process.start(queue.put(client, *map(NewMessage, payloads[first : first + 4])))
    await asyncio.sleep(3)
    return set(payloads)


async def live(queue: Queue) -> list[bytes]:
    """Payloads that are not settled."""
    client = queue.client(f"reads-{queue.world.now_s()}")
    return [each.payload for each in await client.process.start(peek(client.host, queue.settings, {}, 1000))]


async def lane_of(queue: Queue, shard: int) -> tuple[Any, Lane]:
    """Its row, and the way to it."""
    client = queue.client(f"lane-{queue.world.now_s()}-{shard}")
    lane = Lane(client.host, queue.settings.tables.lanes, lane_key(queue.settings, 1, shard), queue.settings.lease)
    return await client.process.start(lane.read_state()), lane


async def until_nothing_comes(query: Query) -> None:
    """Until the query waits for something to come."""
    while await query.trigger():
        pass


@pytest.mark.parametrize("bound", [1, 7, 20, 1000])
def test_every_message_is_in_one_batch_and_settled_and_no_batch_has_more_than_its_bound(bound: int) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        expected = await put(queue, 40)
        query = Query(queue, bound)
        await query.start()
        await until_nothing_comes(query)
        assert Counter(expected) == query.had
        assert max(map(len, query.batches)) <= bound
        assert [] == await live(queue)
        for shard in (0, 1):
            state, _ = await lane_of(queue, shard)
            assert (None, None) == (state.reserved, state.lock)

    simulate(scenario, settings=TWO_LANES)


def test_a_batch_is_as_large_as_its_bound_also_where_rows_were_handed_out_in_part() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        for count in (31, 7, 12):
            await client.process.start(
                queue.put(client, *(NewMessage(b"%d-%d" % (count, at)) for at in range(count)))
            )
        await asyncio.sleep(3)
        query = Query(queue, 15)
        await query.start()
        await until_nothing_comes(query)
        assert [15, 15, 15, 5] == [len(batch) for batch in query.batches if batch]

    simulate(scenario, settings=TWO_LANES)


def test_a_position_moves_on_though_nobody_but_the_query_works_the_queue() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        query = Query(queue)
        await query.start()
        lasts = []
        for turn in range(3):
            await put(queue, 16, name=f"turn-{turn}")
            await until_nothing_comes(query)
            lasts.append([(await lane_of(queue, shard))[0].last for shard in (0, 1)])
        assert 3 == len({str(last) for last in lasts})

    simulate(scenario, settings=TWO_LANES)


@pytest.mark.parametrize("seed", range(6))
def test_a_query_that_restarts_in_time_has_the_same_batch_and_nobody_else_had_any_of_it(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        expected = await put(queue, 40)
        query = Query(queue, visibility_us=200 * SECOND)
        await query.start()
        await query.trigger()
        await query.trigger()
        consumer = Consumer(queue, "worker", DeliveryLog())
        consumer.start()
        if seed % 2:
            query.done -= 1  # killed before the batch was noted as done
        await asyncio.sleep(queue.world.rng("down").uniform(0, 20))
        await query.start()
        if seed % 2:
            assert query.batches[-1] == query.batches[-2]
            del query.batches[-1]
        await until_nothing_comes(query)
        await asyncio.sleep(30)
        await until_nothing_comes(query)
        worked = {each.payload for _, each in consumer.delivery_log.deliveries}
        assert set() == worked & set(query.had)
        assert expected == worked | set(query.had)
        assert {1} == set(query.had.values())
        assert [] == await live(queue)
        consumer.leave()

    simulate(scenario, seed, settings=TWO_LANES)


@pytest.mark.parametrize("done", [True, False])
def test_a_query_that_comes_back_after_its_loans_settles_what_nobody_else_has_and_loses_nothing(done: bool) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        expected = await put(queue, 24)
        query = Query(queue, 1000)
        await query.start()
        while not query.batches or not query.batches[-1]:
            await query.trigger()
        query.done -= not done
        await asyncio.sleep(VISIBILITY_US / SECOND + 5)
        consumer = Consumer(queue, "worker", DeliveryLog())
        engine = await consumer.process.start(consumer.open())

        async def hold() -> list[Any]:
            given: list[Any] = []
            while len(given) < 6:
                given += await engine.receive(6 - len(given), wait_us=10 * SECOND, visibility_us=25 * SECOND)
            await engine.settle([Ack(each.receipt) for each in given[:3]])
            return given

        held = await consumer.process.start(hold())
        await query.start()
        await until_nothing_comes(query)
        left = set(await live(queue))
        assert left <= {each.payload for each in held[3:]}
        nobodys = expected - {each.payload for each in held}
        assert {2} == {query.had[payload] for payload in nobodys}, (
            "again in the same batch, or in the first one after it"
        )
        await consumer.process.start(engine.settle([Ack(each.receipt) for each in held[3:]]))
        await consumer.process.start(engine.close())
        await asyncio.sleep(15)
        await until_nothing_comes(query)
        assert expected <= set(query.had) | {each.payload for each in held}
        assert [] == await live(queue)

    simulate(scenario, settings=TWO_LANES)


def test_a_batch_that_takes_longer_than_its_loan_is_settled_and_comes_no_second_time() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        expected = await put(queue, 24)
        query = Query(queue, 1000)
        await query.start()
        await query.trigger()
        await asyncio.sleep(VISIBILITY_US / SECOND + 5)
        await until_nothing_comes(query)
        assert Counter(expected) == query.had
        assert [] == await live(queue)

    simulate(scenario, settings=TWO_LANES)


def test_an_offset_that_a_killed_driver_borrowed_and_did_not_note_runs_out() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        expected = await put(queue, 12)
        query = Query(queue)
        await query.start()
        await query._in_driver(query.reader._next())
        await query.start()
        await until_nothing_comes(query)
        assert set() == set(query.had)
        await asyncio.sleep(VISIBILITY_US / SECOND + 5)
        await until_nothing_comes(query)
        assert Counter(expected) == query.had
        assert [] == await live(queue)

    simulate(scenario, settings=TWO_LANES)
