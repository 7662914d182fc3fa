"""The queue's statements to the store while it works: which ones, how often, and how long each row is kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from headgate.engines.contract import NewMessage
from headgate.engines.timeline.model.layout import DAY_US
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import BatchIf, Delete, Insert, InsertIfAbsent, UpdateIf, partition_of
from tests.simulation.timeline.timeline_puts import SECOND, GatedStore, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, until_all_settled

MESSAGES = 400
TURNS_A_LANE_S = 1.0


async def _worked(queue: Queue) -> tuple[GatedStore, GatedStore, Consumer, float]:
    """Messages are put one after the other for a while, received and settled; what both processes sent."""
    objects = DeliveryLog()
    await lanes_ready(queue)
    consumer = Consumer(queue, "worker", objects)
    consumer.start()
    began_s = queue.world.now_s()
    client = queue.client("producer")
    client.process.start(queue.keep_fresh(client))
    for number in range(MESSAGES):
        await client.process.start(queue.put(client, NewMessage(b"%d" % number)))
        await asyncio.sleep(0.05)
    await until_all_settled(queue, objects, within_s=120)
    assert MESSAGES == len(queue.acknowledged) == len(objects.deliveries)
    return client.store, consumer.store, consumer, queue.world.now_s() - began_s


def _conditional(store: GatedStore) -> list[Any]:
    return [each for each in store.sent if isinstance(each, (InsertIfAbsent, UpdateIf, BatchIf))]


def test_no_put_and_no_receive_waits_for_a_lwt_and_a_lane_has_at_most_one_a_second() -> None:
    async def scenario(queue: Queue) -> None:
        producer, consumer, _, lasted_s = await _worked(queue)
        assert [] == _conditional(producer)
        conditional = _conditional(consumer)
        lanes = Counter(_lane_of(each) for each in conditional)
        assert 3 == len(lanes), "each lane was taken and touched"
        assert max(lanes.values()) <= lasted_s / TURNS_A_LANE_S + 1

    simulate(scenario, settings=WORKED)


def _lane_of(statement: Any) -> tuple[Any, ...]:
    parts = getattr(statement, "statements", (statement,))
    assert {"timeline_lanes"} == {part.shape.table.name for part in parts}
    return partition_of(parts[0])


def test_the_position_follows_what_is_settled_within_seconds_and_travels_with_the_touch() -> None:
    async def scenario(queue: Queue) -> None:
        _, _, consumer, _ = await _worked(queue)
        assert consumer.engine is not None
        now_us = consumer.process.clock.wall_us()
        for dispatcher in consumer.engine.lanes.held.values():
            row = await consumer.process.start(dispatcher.lane.read_state())
            assert row is not None
            assert now_us - time_us_of(row.last) < 4 * SECOND

    simulate(scenario, settings=WORKED)


@pytest.mark.parametrize(("delay_us", "table"), [(0, "work"), (5 * SECOND, "work"), (300 * DAY_US, "later")])
def test_a_row_is_kept_until_its_due_time_and_the_retention_and_never_deleted(delay_us: int, table: str) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        message = NewMessage(b"kept", due_us=client.process.clock.wall_us() + delay_us)
        await client.process.start(queue.put(client, message))
        rows = [each for each in client.store.sent_to(table) if isinstance(each, Insert)]
        assert 1 == len(rows)
        kept_us = (rows[0].ttl_s or 0) * SECOND - (delay_us + queue.settings.retention_us)
        assert 0 <= kept_us <= 3 * SECOND, "the safety lag, and a second of rounding"
        assert [] == [each for each in client.store.sent if isinstance(each, Delete)]

    simulate(scenario, settings=WORKED)
