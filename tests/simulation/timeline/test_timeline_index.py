"""The index as the lanes of a process share it: few reads where there is nothing, and no answer older than its
request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate.engines.contract import NewMessage
from headgate.engines.timeline.model.layout import day_of
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.process.live import Live
from headgate.store.model.statements import Insert, Select
from tests.simulation.timeline.timeline_puts import SECOND, GatedStore, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

TWELVE = replace(WORKED, part_us=60 * SECOND, generations=(GenerationSettings(1, 12),))
WATCHED_S = 20.0
POLL_S = 0.8
"""Of the lag, which is a second."""


def _reads(store: GatedStore, table: str) -> int:
    return sum(isinstance(each, Select) for each in store.sent_to(table))


def test_twelve_empty_lanes_cost_one_read_together_whenever_they_check() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        consumer = Consumer(queue, "worker", DeliveryLog())
        consumer.start()
        await asyncio.sleep(5)
        assert consumer.engine is not None
        assert 12 == len(consumer.engine.lanes.held)
        before = _reads(consumer.store, "parts")
        await asyncio.sleep(WATCHED_S)
        checks = WATCHED_S / POLL_S
        at_the_end_of_a_part = 2 * 12
        assert checks * 0.9 <= _reads(consumer.store, "parts") - before <= checks + at_the_end_of_a_part
        assert 0 == _reads(consumer.store, "work")

    simulate(scenario, settings=TWELVE)


def test_a_row_that_comes_at_the_end_of_a_part_between_two_polls_is_news() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        index = PartIndex(client.host, Live(queue.settings), 1)
        part_us = queue.settings.part_us
        part = client.host.now_us() // part_us + 2

        async def poll_at(at_us: int) -> bool:
            await asyncio.sleep((at_us - client.host.now_us()) / SECOND)
            return await client.process.start(index.find_arrivals(1_000))

        assert not await poll_at((part + 1) * part_us - 500_000)
        assert (part + 1) * part_us - 500_000 <= (index.quiet_until_us(part) or 0) < (part + 1) * part_us
        row = {"queue": queue.settings.queue, "generation": 1, "day": day_of(part, part_us), "part": part, "sub": 0}
        insert = Insert(queue.settings.tables.parts, row, timestamp_us=client.host.now_us(), ttl_s=600)
        await client.process.start(client.store.write(insert))
        assert await poll_at((part + 1) * part_us + 300_000)
        assert index.quiet_until_us(part) is None

    simulate(scenario, settings=TWELVE)


def test_after_a_long_pause_between_two_polls_nothing_is_known_of_the_time_between() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("reader")
        index = PartIndex(client.host, Live(queue.settings), 1)
        assert not await client.process.start(index.find_arrivals(0))
        part = client.host.now_us() // queue.settings.part_us
        await asyncio.sleep(20 * queue.settings.part_us / SECOND)
        assert not await client.process.start(index.find_arrivals(0))
        assert index.quiet_until_us(part) is None
        assert index.quiet_until_us(part + 20) is not None

    simulate(scenario, settings=TWELVE)


def test_a_process_that_asks_for_a_part_in_the_same_turn_shares_a_read() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("reader")
        index = PartIndex(client.host, Live(queue.settings), 1)
        part = client.host.now_us() // queue.settings.part_us
        result = await client.process.start(_all_of(index, part))
        assert [(), (), ()] == result
        assert 1 == _reads(client.store, "parts")

    simulate(scenario, settings=TWELVE)


async def _all_of(index: PartIndex, part: int) -> list[tuple[int, ...]]:
    return list(await asyncio.gather(index.subs(part), index.subs(part), index.subs(part)))


def test_attack_A13_a_read_of_the_index_that_has_begun_is_joined_by_nobody() -> None:
    async def scenario(queue: Queue) -> None:
        reader, producer = queue.client("reader"), queue.client("producer")
        index = PartIndex(reader.host, Live(queue.settings), 1)
        part = (reader.host.now_us() + 2 * SECOND) // queue.settings.part_us
        reader.store.answers_late_s = 1.0
        early = reader.process.start(index.subs(part))
        await asyncio.sleep(0.3)
        assert await producer.process.start(queue.put(producer, NewMessage(b"first of its part")))
        late = reader.process.start(index.subs(part))
        assert ((), (0,)) == (await early, await late)
        assert 2 == _reads(reader.store, "parts")
        assert (0,) == index.known_subs(part)

    simulate(scenario, settings=TWELVE)
