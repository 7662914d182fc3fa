"""Of the rows of one family one is delivered, however long it is in flight and whatever lands meanwhile.

A family is known as long as one of its rows is above `last`, or in `passed`
(docs/internals/protocols/timeline.md, "Restamped rows").
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from headgate.engines.contract import Ack, Delivery, ExtendDelivery, NewMessage, Settled
from headgate.engines.lanes.log.settle_log import Record
from headgate.engines.lanes.log.settle_log_format import RowFacts
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.read.source import TimelineSource
from headgate.expiry import Promise
from headgate.process.live import Live
from headgate.store.model.positions import is_after, time_us_of
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


def source_of(client: Client, epoch: int) -> TimelineSource:
    """The lane in the next lease term."""
    lease_term = LeaseTerm(client.host.uuid(), epoch, Promise.until(0, sent_us=0), None, 0, 0)
    sender = client.producer.sender
    return TimelineSource(client.host, sender, Live(None), generation=1, shard=0, lease_term=lease_term)


async def wait_until_us(client: Client, time_us: int) -> None:
    await asyncio.sleep((time_us - client.process.clock.wall_us()) / SECOND)


def test_a_restamped_row_is_dropped_though_its_settled_original_expired_before_it_was_passed() -> None:
    """The settle log names the original, no read finds it, and the position moves on before the restamped row is due
    (seed 567)."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        message_id = await put_without_its_note(client)
        due_us = time_us_of(MessagePlace.from_bytes(id_bytes(message_id)).row.due)
        settler, passer, reader = (source_of(client, epoch) for epoch in (1, 2, 3))

        await wait_until_us(client, due_us + SECOND)
        begin = settler.order_at(due_us - SECOND)
        (row,) = (await settler.read(begin, bytes_max=1_000_000)).rows
        settled: Record[Any] = Record(1)
        await settler.write_record(settled.add([(row, RowFacts(settled=1))]))

        expires_us = due_us + queue.settings.retention_us
        await wait_until_us(client, expires_us - SECOND)
        assert [message_id] == await client.process.start(client.once.put([KEYED]))
        await wait_until_us(client, expires_us + SECOND)  # a time to live is in whole seconds
        facts = await passer.known(begin, settler.order_at(expires_us))
        piece = await passer.read(begin, bytes_max=1_000_000)
        assert [row.key] == list(facts)
        await passer.write_passed(piece.rows)

        await wait_until_us(client, expires_us + 5 * SECOND)
        assert {} == await reader.known(piece.reached, reader.order_at(expires_us))
        (restamped,) = (await reader.read(piece.reached, bytes_max=1_000_000)).rows
        assert 1 == restamped.settled

    short = replace(ONE_LANE, retention_us=10 * SECOND, safety_lag_us=3 * SECOND)
    simulate(scenario, settings=short)
