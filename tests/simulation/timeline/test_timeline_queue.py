"""A timeline queue whole: producers, owners of lanes, and what kills, stops and delays them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest

from headgate.engines.contract import Ack, NackDelivery, NewMessage, Settled
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.errors import Unavailable
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    WORKED,
    Consumer,
    DeliveryLog,
    check_delivered,
    lanes_ready,
    put_many,
    until_all_settled,
)


def test_what_is_put_is_delivered_once_and_settled() -> None:
    async def scenario(queue: Queue) -> DeliveryLog:
        objects = DeliveryLog()
        await lanes_ready(queue)
        Consumer(queue, "worker", objects).start()
        await put_many(queue, "producer", 60)
        await until_all_settled(queue, objects, within_s=120)
        check_delivered(queue, objects)
        assert 60 == len(objects.deliveries)
        return objects

    simulate(scenario, settings=WORKED)


@pytest.mark.parametrize("seed", range(6))
def test_owners_killed_in_turn_lose_nothing_and_settle_nothing_twice(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        putting = asyncio.get_running_loop().create_task(put_many(queue, "producer", 120, every_s=0.3))
        rng = queue.world.rng("kills")
        for turn in range(3):
            worker = Consumer(queue, f"worker-{turn}", objects)
            worker.start(work_s=0.3)
            await asyncio.sleep(rng.uniform(8, 14))
            worker.process.kill()
        Consumer(queue, "last", objects).start()
        await putting
        await until_all_settled(queue, objects, within_s=120)
        check_delivered(queue, objects)

    simulate(scenario, seed, settings=WORKED)


@pytest.mark.parametrize("seed", range(6))
def test_an_owner_paused_past_its_lease_delivers_and_settles_nothing_when_it_continues(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        paused, other = Consumer(queue, "paused", objects), Consumer(queue, "other", objects)
        paused.start(work_s=0.2)
        putting = asyncio.get_running_loop().create_task(put_many(queue, "producer", 150, every_s=0.2))
        await asyncio.sleep(6 + queue.world.rng("when").uniform(0, 3))
        other.start(work_s=0.2)
        paused.process.pause(for_s=20)
        await putting
        await until_all_settled(queue, objects, within_s=120)
        check_delivered(queue, objects)

    simulate(scenario, seed, settings=WORKED)


@pytest.mark.parametrize("seed", range(4))
def test_replicas_that_stop_in_turn_lose_nothing(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        Consumer(queue, "one", objects, lanes_max=2).start(work_s=0.1)
        Consumer(queue, "two", objects).start(work_s=0.1)
        putting = asyncio.get_running_loop().create_task(put_many(queue, "producer", 150, every_s=0.2))
        names = sorted(queue.cluster.nodes)
        for name in names:
            await asyncio.sleep(4)
            queue.cluster.stop(name, for_s=5)
        await putting
        await until_all_settled(queue, objects, within_s=180)
        check_delivered(queue, objects)

    simulate(scenario, seed, settings=WORKED)


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_queue_with_its_reason() -> None:
    dead = replace(WORKED, queue=UUID(int=9), name="emails-dead", dead_letter=None)
    settings = replace(WORKED, max_receives=2, dead_letter="emails-dead")

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        objects = DeliveryLog()
        consumer = Consumer(queue, "worker", objects, dead=dead)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"poison")))
        (message_id,) = queue.acknowledged

        async def fail_twice() -> list[Settled]:
            engine = await consumer.open()
            answers = []
            for _ in range(2):
                result = await engine.receive(5, wait_us=30 * SECOND)
                assert [message_id] == [each.message_id for each in result]
                answers += await engine.settle([NackDelivery(result[0].receipt, reason="it does not like me")])
            await asyncio.sleep(5)
            assert [] == await engine.receive(5, wait_us=10 * SECOND)
            await engine.close()
            return answers

        assert [Settled.DONE, Settled.DONE] == await consumer.process.start(fail_twice())
        dead_letters = Queue(queue.world, queue.cluster, dead)
        await _make_lanes_as(dead_letters, "lane maker")
        digger = Consumer(dead_letters, "digger", DeliveryLog())

        async def dig() -> None:
            engine = await digger.open()
            (result,) = await engine.receive(5, wait_us=30 * SECOND)
            assert (message_id, b"poison", 1) == (result.message_id, result.payload, result.attempt)
            assert "it does not like me" == result.attributes["headgate.dead.reason"]
            assert [Settled.DONE] == await engine.settle([Ack(result.receipt)])

        await digger.process.start(dig())

    simulate(scenario, settings=settings)


async def _make_lanes_as(queue: Queue, name: str) -> None:
    client = queue.client(name)
    await client.process.start(make_lanes(client.host, queue.settings, queue.settings.generations[0]))


def test_a_purge_settles_what_was_there_and_nothing_put_after_it() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        objects = DeliveryLog()
        await put_many(queue, "before", 20)
        consumer = Consumer(queue, "worker", objects)

        async def purge_and_receive() -> list[bytes]:
            engine = await consumer.open()
            held = await engine.receive(3, wait_us=20 * SECOND)
            assert held
            await engine.purge()
            stale = await engine.settle([Ack(each.receipt) for each in held])
            assert {Settled.STALE} == set(stale)
            await asyncio.sleep(2)
            await engine.put([NewMessage(b"after")])
            matches: list[bytes] = []
            for _ in range(10):
                given = await engine.receive(10, wait_us=SECOND)
                matches += [each.payload for each in given]
                await engine.settle([Ack(each.receipt) for each in given])
            return matches

        assert [b"after"] == await consumer.process.start(purge_and_receive())

    simulate(scenario, settings=WORKED)


def test_messages_of_a_group_come_one_after_the_other_also_over_a_nack() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 8, group="g")
        consumer = Consumer(queue, "worker", DeliveryLog())

        async def work() -> list[bytes]:
            engine = await consumer.open()
            order: list[bytes] = []
            failed = False
            while len(order) < 8:
                result = await engine.receive(10, wait_us=10 * SECOND)
                assert len(result) <= 1
                for each in result:
                    if each.payload == b"producer-3" and not failed:
                        failed = True
                        await engine.settle([NackDelivery(each.receipt, delay_us=3 * SECOND)])
                    else:
                        order.append(each.payload)
                        await engine.settle([Ack(each.receipt)])
            return order

        assert [f"producer-{number}".encode() for number in range(8)] == await consumer.process.start(work())

    simulate(scenario, settings=WORKED)


@pytest.mark.parametrize("seed", range(3))
def test_attack_D2_only_the_message_that_kills_its_process_is_charged(seed: int) -> None:
    dead = replace(WORKED, queue=UUID(int=9), name="emails-dead")
    settings = replace(WORKED, max_receives=3, dead_letter="emails-dead")

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        objects = DeliveryLog()
        await put_many(queue, "producer", 10)
        client = queue.client("poisoner")
        await client.process.start(queue.put(client, NewMessage(b"poison")))
        poison = next(each for each, payload in queue.acknowledged.items() if payload == b"poison")
        del queue.acknowledged[poison]
        for turn in range(6):
            worker = Consumer(queue, f"worker-{turn}", objects, dead=dead)

            async def work(worker: Consumer = worker) -> None:
                engine = await worker.open()
                while True:
                    for each in await engine.receive(2, wait_us=SECOND):
                        objects.deliveries.append((worker.process.name, each))
                        await asyncio.sleep(0.05)
                        if each.payload == b"poison":
                            worker.process.kill()
                            await asyncio.sleep(1)
                        objects.tried.add(each.message_id)
                        worker.note([each], await engine.settle([Ack(each.receipt)]))

            worker.process.start(work())
            await asyncio.sleep(40)
            if worker.process.state.value != "dead":
                break
        await until_all_settled(queue, objects, within_s=60)
        check_delivered(queue, objects)
        assert 2 <= objects.times(poison) <= 4
        assert max(each.attempt for _, each in objects.deliveries if each.message_id != poison) <= 3

    simulate(scenario, seed, settings=settings)


async def asks_again_at_once(ask: Callable[[], Awaitable[object]]) -> int:
    """How often in vain until something came of it, by a program that has no pause of its own."""
    for in_vain in range(10_000):
        with suppress(Unavailable):
            if await ask():
                return in_vain
    return 10_000


@pytest.mark.parametrize("what", ["receive", "put", "put one that is due later", "put several"])
def test_a_process_that_asks_again_at_once_while_the_clock_is_in_doubt_keeps_nobody_from_fixing_it(what: str) -> None:
    async def scenario(queue: Queue) -> int:
        await lanes_ready(queue)
        consumer = Consumer(queue, "impatient", DeliveryLog())
        doubtful = [False]

        def now_us() -> int:
            if doubtful[0]:
                raise Unavailable("Clock is not trusted")
            return consumer.process.clock.wall_us()

        consumer.host = replace(consumer.host, now_us=now_us)
        engine = await consumer.process.start(consumer.open())

        async def heal() -> None:
            await asyncio.sleep(2)
            doubtful[0] = False

        while not engine.lanes.held:
            await consumer.process.start(engine.receive(1, wait_us=SECOND))
        await put_many(queue, "producer", 1)
        doubtful[0] = True
        later_us = consumer.process.clock.wall_us() + 60 * SECOND
        asks = {
            "receive": lambda: engine.receive(1, wait_us=SECOND // 10),
            "put": lambda: engine.put([NewMessage(b"a")]),
            "put one that is due later": lambda: engine.put([NewMessage(b"a", due_us=later_us)]),
            "put several": lambda: engine.put([NewMessage(b"a", group="g"), NewMessage(b"b", group="g")]),
        }
        fixing = consumer.process.start(heal())
        in_vain = await consumer.process.start(asks_again_at_once(asks[what]))
        await fixing
        return in_vain

    assert 1 <= simulate(scenario, settings=WORKED) < 100
