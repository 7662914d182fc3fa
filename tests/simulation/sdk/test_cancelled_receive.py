"""A receive that is cancelled keeps nothing: what it had taken is ready again, and the attempt does not count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.engines.contract import Delivery, NewMessage
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.store.clock.clock import ClockNotTrusted
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

COUNT = 8
AFTER_S = (0.0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006)
"""When a receive is cancelled: before, while and after each of its steps."""


async def ready(queue: Queue) -> tuple[Consumer, TimelineQueue]:
    """A consumer whose lanes have read ahead `COUNT` messages, and nothing in flight."""
    await lanes_ready(queue)
    producer = queue.client("producer")
    producer.process.start(queue.keep_fresh(producer))
    consumer = Consumer(queue, "consumer", DeliveryLog())
    engine = await consumer.open()
    await engine.receive(1, wait_us=3 * SECOND)
    for number in range(COUNT):
        await queue.put(producer, NewMessage(b"%d" % number))
    await asyncio.sleep(4)
    return consumer, engine


async def receive_all(engine: TimelineQueue) -> list[Delivery]:
    """Everything that can be received within a second."""
    matches: list[Delivery] = []
    while more := await engine.receive(100, wait_us=SECOND):
        matches += more
    return matches


@pytest.mark.parametrize("visibility_s", [5, 30], ids=["not recorded", "recorded"])
@pytest.mark.parametrize("after_s", AFTER_S)
def test_a_cancelled_receive_gives_back_what_it_took_uncharged(visibility_s: int, after_s: float) -> None:
    async def scenario(queue: Queue) -> tuple[int, list[Delivery]]:
        consumer = Consumer(queue, "asks", DeliveryLog())

        async def work() -> tuple[int, list[Delivery]]:
            _, engine = await ready(queue)
            task = asyncio.get_running_loop().create_task(engine.receive(COUNT, wait_us=SECOND))
            await asyncio.sleep(after_s)
            kept = task.result() if task.done() else []
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            in_flight = sum(each.delivery_state.in_flight for each in engine.lanes.held.values())
            assert len(kept) == in_flight
            return len(kept), await receive_all(engine)

        return await consumer.process.start(work())

    settings = replace(WORKED, generations=(GenerationSettings(1, 2),), part_us=60 * SECOND)
    kept, actual = simulate(scenario, settings=replace(settings, visibility_us=visibility_s * SECOND))
    assert COUNT == kept + len(actual)
    assert {1} == {each.attempt for each in actual} or not actual


def test_a_receive_that_ends_with_a_clock_in_doubt_gives_back_what_it_took_uncharged() -> None:
    async def scenario(queue: Queue) -> list[Delivery]:
        process = queue.world.process("asks")
        in_doubt: list[bool] = []

        async def work() -> list[Delivery]:
            consumer, engine = await ready(queue)
            real = consumer.host.now_us

            def now_us() -> int:
                if in_doubt or any(lane.delivery_state.in_flight for lane in engine.lanes.held.values()):
                    in_doubt.append(True)
                    raise ClockNotTrusted("in doubt")
                return real()

            object.__setattr__(consumer.host, "now_us", now_us)
            with pytest.raises(ClockNotTrusted):
                await engine.receive(COUNT, wait_us=SECOND)
            object.__setattr__(consumer.host, "now_us", real)
            return await receive_all(engine)

        return await process.start(work())

    result = simulate(
        scenario, settings=replace(WORKED, generations=(GenerationSettings(1, 2),), part_us=60 * SECOND)
    )
    assert COUNT == len(result)
    assert {1} == {each.attempt for each in result}
