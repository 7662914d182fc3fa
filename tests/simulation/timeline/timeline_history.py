"""A queue with history: parts that were put and settled, and one message that waits behind them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate.engines.contract import NewMessage
from headgate.engines.timeline.model.settings import GenerationSettings
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

TWO_LANES = replace(WORKED, generations=(GenerationSettings(1, 2),), visibility_us=30 * SECOND, max_receives=100)


async def one_waits_behind(queue: Queue, parts: int) -> Client:
    """Make this number of parts of history, and put the message; the reader of the queue from then on."""
    await lanes_ready(queue)
    client = queue.client("producer")
    client.process.start(queue.keep_fresh(client))
    consumer = Consumer(queue, "worker", DeliveryLog())
    consumer.start()
    for _ in range(parts):
        await client.process.start(queue.put(client, NewMessage(b"history"), NewMessage(b"as well")))
        await asyncio.sleep(queue.settings.part_us / SECOND)
    await asyncio.sleep(30)
    consumer.leave()
    await asyncio.sleep(5)
    await client.process.start(queue.put(client, NewMessage(b"waits")))
    await asyncio.sleep(3)
    return queue.client("looker")
