"""Copies whose place was fixed in a generation that ended before they were written, and dead letters that were begun
by an owner that died: both are finished by the next owner, and nothing of them is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headgate.engines.contract import DeadLetterDelivery, Delivery, NackDelivery, NewMessage, Settle
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.repair.repair import Repairer
from headgate.store.model.positions import first_at
from headgate.store.model.statements import Insert
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    WORKED,
    Catalogue,
    Consumer,
    DeliveryLog,
    check_delivered,
    lanes_ready,
    until_retired,
)

TWO_LANES = replace(WORKED, generations=(GenerationSettings(1, 2),))


async def receive_one(consumer: Consumer) -> Delivery:
    """The first message that comes."""
    engine = await consumer.open()
    (result,) = await engine.receive(1, wait_us=20 * SECOND)
    return result


async def die_before_the_copy(consumer: Consumer, settle: Callable[[Delivery], Settle]) -> int:
    """Receive one message, fail it, and die when its copy is about to be written: its place is on record by then. The
    shard of that place."""
    shards: list[int] = []

    async def gate(statement: Any) -> None:
        part = getattr(statement, "statements", (statement,))[0]
        if isinstance(part, Insert) and part.shape.table.name == "timeline_work":
            shards.append(dict(zip(part.shape.names, part.values, strict=True))["shard"])
            consumer.process.kill()
            await asyncio.sleep(0)

    async def work() -> None:
        result = await receive_one(consumer)
        consumer.store.gate = gate
        assert consumer.engine is not None
        await consumer.engine.settle([settle(result)])

    dead = asyncio.Event()
    consumer.process.when_state_changes(dead.set)
    consumer.process.start(work())
    await dead.wait()
    return shards[0]


async def retire_by_hand(queue: Queue, shard: int) -> None:
    """As an owner of that lane that has nothing left in it."""
    client = queue.client(f"owner of {shard} at {queue.world.now_s()}")
    settings = queue.settings
    lane = Lane(client.host, settings.tables.lanes, lane_key(settings, 1, shard), settings.lease)
    row = await client.process.start(lane.read_state())
    assert row is not None
    lease_term = await client.process.start(lane.take(row))
    assert lease_term is not None
    assert await client.process.start(lane.retire(lease_term, last=first_at(client.process.clock.wall_us())))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delay_s", [15, 90])
@pytest.mark.parametrize("is_retired", [False, True])
def test_a_retry_that_was_begun_before_a_change_comes_after_it(seed: int, delay_s: int, is_retired: bool) -> None:
    """The place of its copy lies in a lane of the old generation that has read beyond it, or not, or is retired: by
    the seed in its own lane or in the other. A row that no reader reaches is left to repair, or restamped at once."""

    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"fails once")))
        (message_id,) = queue.acknowledged
        lane = MessagePlace.from_bytes(id_bytes(message_id)).row.shard
        shard = await die_before_the_copy(Consumer(queue, "dying", DeliveryLog()), retry_in(delay_s))
        Catalogue(queue).end_now(3)
        await asyncio.sleep(20)
        if is_retired:
            await retire_by_hand(queue, 1 - lane)
        Consumer(queue, "worker", objects).start()
        if not is_retired or shard == lane:
            repair = queue.client("repair")
            repair.process.start(keep_repairing(queue, repair))
        await until_retired(queue, 1, within_s=150)
        await asyncio.sleep(160)
        check_delivered(queue, objects)
        assert [2] == [each.attempt for _, each in objects.deliveries]

    simulate(scenario, seed, settings=TWO_LANES)


async def keep_repairing(queue: Queue, client: Client) -> None:
    """As the cron job does."""
    while True:
        await asyncio.sleep(30)
        client.producer.settings_changed(queue.settings, read_us=client.process.clock.wall_us())
        await Repairer(client.host, queue.settings, client.producer.sender).run()


def retry_in(delay_s: int) -> Callable[[Delivery], Settle]:
    """A failure that is tried again so much later."""
    return lambda result: NackDelivery(result.receipt, delay_us=delay_s * SECOND)


@pytest.mark.parametrize("seed", range(2))
def test_a_dead_letter_that_was_begun_comes_to_its_queue_and_not_to_the_living(seed: int) -> None:
    """Its place is one of the other queue, which has other shards than this."""
    dead = replace(WORKED, queue=UUID(int=9), name="emails-dead", generations=(GenerationSettings(1, 7),))
    settings = replace(WORKED, max_receives=2, dead_letter="emails-dead")

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        dead_letters = Queue(queue.world, queue.cluster, dead)
        maker = dead_letters.client("lane maker")
        await maker.process.start(make_lanes(maker.host, dead, dead.generations[0]))
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"poison")))
        (message_id,) = queue.acknowledged
        dying = Consumer(queue, "dying", DeliveryLog(), dead=dead)
        await die_before_the_copy(dying, lambda result: DeadLetterDelivery(result.receipt, reason="no such person"))
        objects, removed = DeliveryLog(), DeliveryLog()
        Consumer(queue, "worker", objects, dead=dead).start()
        Consumer(dead_letters, "digger", removed).start()
        await asyncio.sleep(45)
        assert [] == objects.deliveries
        assert [message_id] == [each.message_id for _, each in removed.deliveries]
        assert "emails" == removed.deliveries[0][1].attributes["headgate.dead.queue"]

    simulate(scenario, seed, settings=settings)
