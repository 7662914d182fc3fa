"""Another number of shards under load: every message of the old generation is handed out there or moves on, once and
in time, the order of groups holds, and the old lanes are retired (rule R6; attacks A8, A15, C2, D6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.engines.contract import Ack, NackDelivery, NewMessage, Settled
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.store.catalogue.decide_generation import decide_next
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    WORKED,
    Catalogue,
    Consumer,
    DeliveryLog,
    check_delivered,
    lanes_ready,
    until_all_settled,
    until_retired,
)

STALE_S = 55
"""How seldom producers read the catalogue here: nearly as seldom as they may."""


async def read_seldom(queue: Queue, client: Client, every_s: float = STALE_S) -> None:
    """Know of the catalogue what was true up to this long ago."""
    while True:
        await asyncio.sleep(every_s)
        client.producer.settings_changed(queue.settings, read_us=client.process.clock.wall_us())


async def put_for(queue: Queue, name: str, seconds: float, *, every_s: float = 0.5, ahead_s: float = 0.0) -> None:
    """A producer that puts one message after the other, and every third for up to `ahead_s` later."""
    rng = queue.world.rng(f"puts of {name}")
    client = queue.client(name, ahead_us=rng.randint(-200_000, 200_000))
    client.process.start(read_seldom(queue, client))
    until_s = queue.world.now_s() + seconds
    number = 0
    while queue.world.now_s() < until_s:
        due_us = None
        if ahead_s and number % 3 == 0:
            due_us = client.process.clock.wall_us() + int(rng.uniform(1, ahead_s) * SECOND)
        client.process.start(queue.put(client, NewMessage(f"{name}-{number}".encode(), due_us=due_us)))
        number += 1
        await asyncio.sleep(every_s)
    await client.process.start(client.producer.close())


@pytest.mark.parametrize("seed", range(2))
def test_attack_A8_shards_3_to_6_to_2_under_load_lose_nothing_and_retire_the_old_lanes(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        for number in range(2):
            Consumer(queue, f"worker-{number}", objects).start(work_s=0.05)
        putting = [
            asyncio.get_running_loop().create_task(put_for(queue, f"producer-{number}", 200, ahead_s=230))
            for number in range(2)
        ]
        await asyncio.sleep(5)
        await catalogue.reshard(6)
        await asyncio.sleep(15)
        await catalogue.reshard(2)
        await asyncio.gather(*putting)
        await until_retired(queue, 1, within_s=60)
        await until_retired(queue, 2, within_s=60)
        await until_all_settled(queue, objects, within_s=500)
        check_delivered(queue, objects)

    simulate(scenario, seed, settings=WORKED)


def test_attack_A8_nothing_of_the_old_generation_is_given_up_while_a_producer_may_still_write_it() -> None:
    """The announcement lands long after the time from which the next generation counts; a producer read the
    catalogue just before, and keeps to that for as long as it may."""

    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        Consumer(queue, "worker", objects).start()
        stale = queue.client("stale", ahead_us=-245_000)
        generation = decide_next(catalogue.generations, 5, now_us=catalogue.now_us, skew_us=queue.settings.skew_us)
        await asyncio.sleep(80)
        stale.producer.settings_changed(queue.settings, read_us=stale.process.clock.wall_us())
        catalogue.set_generations(replace(catalogue.generations, next=generation))
        announced_s = queue.world.now_s()
        await asyncio.sleep(1)
        catalogue.make_sure()
        while queue.world.now_s() < announced_s + 70:
            stale.process.start(queue.put(stale, NewMessage(f"at {queue.world.now_s()}".encode())))
            await asyncio.sleep(1)
        assert {1} == {MessagePlace.from_bytes(id_bytes(each)).row.generation for each in queue.acknowledged}
        assert 50 < len(queue.acknowledged) < 62
        assert 0 < len(queue.failed)
        await until_retired(queue, 1, within_s=60)
        await until_all_settled(queue, objects, within_s=100)
        check_delivered(queue, objects)

    simulate(scenario, settings=WORKED)


def test_attack_A8_a_change_that_nobody_made_sure_of_is_waited_for_and_lanes_of_both_are_worked() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        Consumer(queue, "worker", objects).start()
        catalogue.announce(4)
        putting = put_for(queue, "producer", 200, every_s=2)
        observer = queue.client("observer")
        await putting
        lane = Lane(observer.host, queue.settings.tables.lanes, lane_key(queue.settings, 1, 0), queue.settings.lease)
        still_held = await observer.process.start(lane.read_state())
        assert still_held is not None
        assert not still_held.is_retired
        assert {1, 2} == {MessagePlace.from_bytes(id_bytes(each)).row.generation for each in queue.acknowledged}
        await asyncio.sleep(10)
        assert set(queue.acknowledged) == set(objects.acked)
        catalogue.make_sure()
        await until_retired(queue, 1, within_s=120)
        check_delivered(queue, objects)

    simulate(scenario, settings=WORKED)


# ---- groups


async def _put_group(queue: Queue, name: str, seconds: float, values: list[bytes], *, ahead_s: float = 0.0) -> None:
    """One group from one producer: each message when the one before is acknowledged, due at once, or all of them
    so much later. What was acknowledged, in order."""
    client = queue.client(name)
    client.process.start(read_seldom(queue, client))
    until_s = queue.world.now_s() + seconds
    number = 0
    while queue.world.now_s() < until_s:
        due_us = client.process.clock.wall_us() + int(ahead_s * SECOND) if ahead_s else None
        message = NewMessage(f"{name} {number:04}".encode(), due_us=due_us, group=name)
        if await client.process.start(queue.put(client, message)) is not None:
            values.append(message.payload)
        number += 1
        await asyncio.sleep(1.5)


def _work_groups(
    queue: Queue, name: str, objects: DeliveryLog, order: list[bytes], *, fails: float = 0.0
) -> Consumer:
    """A worker that fails now and then, and notes in which order what had a group was settled."""
    consumer = Consumer(queue, name, objects)
    rng = queue.world.rng(f"fails of {name}")

    async def work() -> None:
        engine = await consumer.open()
        while True:
            for each in await engine.receive(5, wait_us=SECOND):
                objects.deliveries.append((name, each))
                fail = rng.random() < fails
                settle = NackDelivery(each.receipt, delay_us=2 * SECOND) if fail else Ack(each.receipt)
                objects.tried |= set() if fail else {each.message_id}
                (answer,) = await engine.settle([settle])
                if not fail and answer is Settled.DONE:
                    objects.acked[each.message_id] += 1
                    order.append(each.payload)

    consumer.process.start(work())
    return consumer


@pytest.mark.parametrize("seed", range(2))
def test_attack_C2_groups_stay_in_order_over_a_reshard(seed: int) -> None:
    """Backlog, failures that are tried again, and messages for later, all of groups; the workers come late."""

    async def scenario(queue: Queue) -> None:
        objects, order = DeliveryLog(), list[bytes]()
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        values: dict[str, list[bytes]] = {name: [] for name in ("at once", "also at once", "later", "much later")}
        ahead = {"at once": 0.0, "also at once": 0.0, "later": 30.0, "much later": 120.0}
        begin = asyncio.get_running_loop().create_task
        putting = [begin(_put_group(queue, name, 110, values[name], ahead_s=ahead[name])) for name in values]
        await asyncio.sleep(2)
        resharding = begin(catalogue.reshard(5))
        await asyncio.sleep(55)
        _work_groups(queue, "one", objects, order, fails=0.1)
        _work_groups(queue, "two", objects, order, fails=0.1)
        await asyncio.gather(resharding, *putting)
        await until_retired(queue, 1, within_s=200)
        await until_all_settled(queue, objects, within_s=400)
        check_delivered(queue, objects)
        for name, payloads in values.items():
            assert payloads == [each for each in order if each.rsplit(b" ", 1)[0] == name.encode()]
        assert {1, 2} == {MessagePlace.from_bytes(id_bytes(each)).row.generation for each in queue.acknowledged}

    simulate(scenario, seed, settings=WORKED)


@pytest.mark.parametrize("seed", range(2))
def test_attack_C2_groups_stay_in_order_while_owners_are_killed_in_the_change(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects, order = DeliveryLog(), list[bytes]()
        rng = queue.world.rng("kills")
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        values: dict[str, list[bytes]] = {"at once": [], "later": []}
        begin = asyncio.get_running_loop().create_task
        putting = [
            begin(_put_group(queue, name, 100, values[name], ahead_s=ahead_s))
            for name, ahead_s in (("at once", 0.0), ("later", 40.0))
        ]
        resharding = begin(catalogue.reshard(4))
        await asyncio.sleep(58)
        for turn in range(4):
            worker = _work_groups(queue, f"worker-{turn}", objects, order)
            await asyncio.sleep(rng.uniform(4, 14))
            worker.process.kill()
        _work_groups(queue, "last", objects, order)
        await asyncio.gather(resharding, *putting)
        await until_retired(queue, 1, within_s=200)
        await until_all_settled(queue, objects, within_s=400)
        check_delivered(queue, objects)
        for name, payloads in values.items():
            mine = [each for each in order if each.rsplit(b" ", 1)[0] == name.encode()]
            assert sorted(mine) == mine
            assert set(payloads) >= set(mine)

    simulate(scenario, seed, settings=WORKED)
