"""How far a lane reads ahead: by what is unsettled, never by what is settled, and within one bound for all lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from headgate.engines.contract import Ack, Delivery, ExtendDelivery, NewMessage, Settled
from headgate.engines.lanes.delivery.read_budget import ReadBudget
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.settings import GenerationSettings
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

MIB = 1024 * 1024
ONE_LANE = replace(WORKED, generations=(GenerationSettings(1, 1),), part_us=60 * SECOND, visibility_us=8 * SECOND)


async def producer_of(queue: Queue) -> Client:
    """A process that puts."""
    client = queue.client("producer")
    client.process.start(queue.keep_fresh(client))
    return client


async def put_steadily(queue: Queue, client: Client, *, per_s: int, size: int) -> None:
    """Put payloads that do not compress, five times per second, until the world ends."""
    while True:
        messages = [NewMessage(client.process.rng.randbytes(size)) for _ in range(per_s // 5)]
        await queue.put(client, *messages)
        await asyncio.sleep(0.2)


class Handlers:
    """Handles what comes, some of it slowly: slow ones are extended until they end."""

    def __init__(self, consumer: Consumer, is_slow: Callable[[int], bool], slow_s: float) -> None:
        self.consumer = consumer
        self.done = 0
        self._is_slow = is_slow
        self._slow_s = slow_s
        self._received = 0
        self._in_flight: dict[str, Delivery] = {}

    async def run(self) -> None:
        """Until the world ends."""
        engine = await self.consumer.open()
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._extend(engine))]
        while True:
            fast = []
            for delivery in await engine.receive(100, wait_us=SECOND):
                self._received += 1
                if self._is_slow(self._received):
                    tasks.append(loop.create_task(self._handle_slowly(engine, delivery)))
                else:
                    fast.append(delivery)
            await self._ack(engine, fast)

    async def _extend(self, engine: TimelineQueue) -> None:
        while True:
            await asyncio.sleep(3)
            await engine.settle([ExtendDelivery(each.receipt, 8 * SECOND) for each in self._in_flight.values()])

    async def _handle_slowly(self, engine: TimelineQueue, delivery: Delivery) -> None:
        self._in_flight[delivery.message_id] = delivery
        await asyncio.sleep(self._slow_s)
        del self._in_flight[delivery.message_id]
        await self._ack(engine, [delivery])

    async def _ack(self, engine: TimelineQueue, deliveries: list[Delivery]) -> None:
        if deliveries:
            settled = await engine.settle([Ack(each.receipt) for each in deliveries])
            self.done += settled.count(Settled.DONE)


@pytest.mark.parametrize(
    ("per_s", "size", "one_in"), [(100, 10_000, 100), (1_000, 200, 100)], ids=["large messages", "many messages"]
)
def test_a_slow_message_does_not_stop_its_lane(per_s: int, size: int, one_in: int) -> None:
    """One handler in a hundred takes a minute: all others are handled at the rate at which messages are put."""

    async def scenario(queue: Queue) -> Handlers:
        await lanes_ready(queue)
        client = await producer_of(queue)
        handlers = Handlers(Consumer(queue, "consumer", DeliveryLog()), lambda number: number % one_in == 5, 60)
        handlers.consumer.process.start(handlers.run())
        await asyncio.sleep(5)
        client.process.start(put_steadily(queue, client, per_s=per_s, size=size))
        await asyncio.sleep(40)
        return handlers

    handlers = simulate(scenario, settings=ONE_LANE)
    assert handlers.done >= 0.95 * per_s * 40


def test_what_is_settled_takes_no_memory_while_a_message_before_it_is_in_flight() -> None:
    async def scenario(queue: Queue) -> tuple[int, int]:
        await lanes_ready(queue)
        client = await producer_of(queue)
        consumer = Consumer(queue, "consumer", DeliveryLog())
        handlers = Handlers(consumer, lambda number: number == 1, 600)
        consumer.process.start(handlers.run())
        await asyncio.sleep(5)
        client.process.start(put_steadily(queue, client, per_s=100, size=10_000))
        await asyncio.sleep(30)
        assert consumer.engine is not None
        (lane,) = consumer.engine.lanes.held.values()
        assert lane.delivery_state.lowest_unsettled is not None
        assert lane.delivery_state.holes > 100
        return lane.delivery_state.bytes_held, consumer.host.read_budget.held_bytes

    held_bytes, budget_bytes = simulate(scenario, settings=ONE_LANE)
    assert held_bytes == budget_bytes
    assert held_bytes < 500_000


LARGE = 12
"""Lanes, each with a backlog of messages of 1 MiB."""


@pytest.fixture(scope="module")
def large() -> dict[str, list[int]]:
    """The memory and the reads of a process that starts with a backlog of large messages."""
    settings = replace(WORKED, generations=(GenerationSettings(1, LARGE),), part_us=3600 * SECOND)
    entries: dict[str, list[int]] = {"held": [], "limits": [], "lanes": [], "bound": []}

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = await producer_of(queue)
        one = client.process.rng.randbytes(MIB - 64)
        for _ in range(10 * LARGE):
            await client.process.start(queue.put(client, NewMessage(one)))
        await asyncio.sleep(3)
        consumer = Consumer(queue, "consumer", DeliveryLog())
        object.__setattr__(consumer.host, "read_budget", ReadBudget(20 * MIB))

        async def work() -> None:
            engine = await consumer.open()
            for _ in range(20):
                await engine.receive(1, wait_us=SECOND)
                await asyncio.sleep(0.2)
                delivery_state = [lane.delivery_state for lane in engine.lanes.held.values()]
                entries["held"].append(sum(each.bytes_held for each in delivery_state))
            entries["lanes"] = [each.unsettled for each in delivery_state]

        await consumer.process.start(work())
        reads = consumer.store.sent_to("work")
        entries["limits"] = [statement.limit for statement in reads if "run" in statement.shape.columns]
        entries["bound"] = [consumer.host.read_budget.bytes_max]

    simulate(scenario, settings=settings)
    return entries


def test_lanes_of_large_messages_hold_no_more_than_one_bound_together(large: dict[str, list[int]]) -> None:
    (bound,) = large["bound"]
    assert max(large["held"]) <= bound + LARGE * 2 * MIB
    assert max(large["held"]) > bound / 2


def test_each_lane_has_something_to_hand_out_though_others_have_taken_the_bound(large: dict[str, list[int]]) -> None:
    assert LARGE == len(large["lanes"])
    assert min(large["lanes"]) >= 1


def test_the_first_read_of_a_lane_brings_one_row(large: dict[str, list[int]]) -> None:
    assert [1] * LARGE == large["limits"][:LARGE]
    assert max(large["limits"]) == 1, "each row is as large as a read may be"
