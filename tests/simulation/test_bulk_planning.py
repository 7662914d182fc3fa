"""What a drain asks before it borrows does not grow with what was settled before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.engines.contract import Message
from penstock.engines.timeline.settings import Generation
from penstock_spark.lanes.contract import Budget
from penstock_spark.lanes.timeline import TimelineLending
from tests.simulation.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline_workers import WORKED, Consumer, Seen, lanes_ready

TWO_LANES = replace(WORKED, generations=(Generation(1, 2),), visibility_us=30 * SECOND, max_receives=100)
ALL = Budget(messages_max=100_000, bytes_max=1 << 30, rows_max=100_000)


def requests_of_a_first_batch(parts: int) -> int:
    """How many requests it takes to find the first batch where so many parts were put and settled before, and one
    message waits."""

    async def scenario(queue: Queue) -> int:
        await lanes_ready(queue)
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        consumer = Consumer(queue, "worker", Seen())
        consumer.start()
        for _ in range(parts):
            await client.process.start(queue.put(client, Message(b"history"), Message(b"as well")))
            await asyncio.sleep(queue.settings.part_us / SECOND)
        await asyncio.sleep(30)
        consumer.leave()
        await asyncio.sleep(5)
        await client.process.start(queue.put(client, Message(b"waits")))
        await asyncio.sleep(3)
        looker = queue.client("looker")
        assert 1 == await looker.process.start(_first_batch(looker, queue))
        return len(looker.store.sent)

    return simulate(scenario, settings=TWO_LANES)


async def _first_batch(looker: Client, queue: Queue) -> int:
    engine = SimpleNamespace(
        host=looker.host, settings=queue.settings, producer=SimpleNamespace(sender=looker.producer.sender)
    )
    opened: Any = SimpleNamespace(engine=engine)
    lanes = await TimelineLending(opened, UUID(int=7)).lanes(from_us=None, until_us=looker.host.now_us())
    seen = [await lane.preview(ALL) for lane in lanes]
    return sum(preview.messages for preview in seen if preview is not None)


def test_what_finding_the_first_batch_of_a_drain_asks_does_not_grow_with_history() -> None:
    assert requests_of_a_first_batch(2) == requests_of_a_first_batch(40)
