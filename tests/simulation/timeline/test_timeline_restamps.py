"""Of the rows of one family one is delivered, however long it is in flight and whatever lands meanwhile.

A family is known as long as one of its rows is above `last`, or in `passed`
(docs/internals/protocols/timeline.md, "Restamped rows").
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from headgate.engines.contract import Ack, Delivery, ExtendDelivery, NewMessage, Settled
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.store.model.positions import is_after
from headgate.store.model.statements import Update
from headgate.store.store import OutcomeUnknown
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, put_many

ONE_LANE = replace(WORKED, generations=(replace(WORKED.generations[0], shards=1),))
KEYED = NewMessage(b"pay", once="order-17")


async def put_without_its_note(client: Client) -> str:
    """The row of a once key is durable, and the note of it is not: the next put of the key finishes it again."""

    async def lose_note(statement: Any) -> None:
        parts = getattr(statement, "statements", (statement,))
        if any(isinstance(each, Update) and each.shape.table.name.endswith("_once") for each in parts):
            raise OutcomeUnknown("lost in this test")

    client.store.gate = lose_note
    (message_id,) = await client.process.start(client.once.put([KEYED]))
    client.store.gate = None
    return message_id


async def keep_in_flight(engine: TimelineQueue, message_id: str, kept: list[Delivery]) -> None:
    """Acknowledge all but one message, and extend that one."""
    while True:
        for each in await engine.receive(20, visibility_us=8 * SECOND, wait_us=SECOND):
            if each.message_id == message_id:
                kept.append(each)
            else:
                await engine.settle([Ack(each.receipt)])
        await engine.settle([ExtendDelivery(each.receipt, 8 * SECOND) for each in kept])


def test_a_message_in_flight_for_65_parts_is_delivered_once_though_its_key_is_put_again() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        first, again = queue.client("first"), queue.client("again")
        for client in (first, again):
            client.process.start(queue.keep_fresh(client))
        message_id = await put_without_its_note(first)
        consumer, kept = Consumer(queue, "worker", DeliveryLog()), list[Delivery]()
        engine = await consumer.process.start(consumer.open())
        consumer.process.start(keep_in_flight(engine, message_id, kept))
        await put_many(queue, "others", 70, every_s=2.0)
        assert [message_id] == await again.process.start(again.once.put([KEYED]))
        await asyncio.sleep(10)
        assert 1 == len(kept)
        assert [Settled.DONE] == await consumer.process.start(engine.settle([Ack(kept[0].receipt)]))

    simulate(scenario, seed=3, settings=replace(ONE_LANE, part_us=2 * SECOND, once_window_us=3600 * SECOND))


def test_a_restamped_row_is_dropped_after_its_original_was_passed_65_parts_ago() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        first, again = queue.client("first"), queue.client("again")
        for client in (first, again):
            client.process.start(queue.keep_fresh(client))
        message_id = await put_without_its_note(first)
        consumer = Consumer(queue, "worker", DeliveryLog())
        consumer.start()
        await put_many(queue, "others", 70, every_s=2.0)
        place = MessagePlace.from_bytes(id_bytes(message_id)).row
        assert all(is_after(lane.last, place.due) for lane in Disks(queue.cluster, queue.settings).lanes())
        assert [message_id] == await again.process.start(again.once.put([KEYED]))
        await asyncio.sleep(10)
        assert 1 == consumer.delivery_log.times(message_id)

    simulate(scenario, seed=3, settings=replace(ONE_LANE, part_us=2 * SECOND, once_window_us=3600 * SECOND))
