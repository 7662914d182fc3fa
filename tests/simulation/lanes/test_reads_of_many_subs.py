"""Parts with many subs: each row is read once, in order, and what a process asks for at a time is bounded."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.contract import Ack, NewMessage
from headgate.engines.timeline.model import partitions
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    WORKED,
    Consumer,
    DeliveryLog,
    check_delivered,
    lanes_ready,
    until_all_settled,
)

MIB = 1024 * 1024
LANES = 12
TWO_LANES = replace(WORKED, generations=(GenerationSettings(1, 2),), part_us=20 * SECOND)


def reads_of_content(consumer: Consumer) -> list[Any]:
    """The reads that bring messages, and not keys alone."""
    return [each for each in consumer.store.sent_to("work") if "run" in each.shape.columns]


@pytest.mark.parametrize("seed", range(6))
def test_all_is_delivered_in_order_over_many_subs_and_takeovers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several producers open a sub after a few rows, each at another time."""
    monkeypatch.setattr(partitions, "SUB_BYTES_MAX", 3_000)

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        objects = DeliveryLog()

        async def put_some(name: str) -> None:
            client = queue.client(name)
            client.process.start(queue.keep_fresh(client))
            rng = client.process.rng
            for number in range(60):
                group = f"{name}-{number % 2}" if number % 3 == 0 else None
                payload = b"%d " % number + rng.randbytes(rng.choice((20, 300, 900)))
                await client.process.start(queue.put(client, NewMessage(payload, group=group)))
                await asyncio.sleep(rng.random() * 0.3)

        putting = [asyncio.ensure_future(put_some(f"producer-{each}")) for each in range(3)]
        await asyncio.sleep(queue.world.rng("start").uniform(0, 15))
        for number in range(3):
            consumer = Consumer(queue, f"consumer-{number}", objects)
            consumer.start()
            await asyncio.sleep(8)
            if number < 2:
                consumer.process.kill()
        await asyncio.gather(*putting)
        await until_all_settled(queue, objects, within_s=180)
        check_delivered(queue, objects)
        assert in_order(objects, consumer.process.name), "groups keep their order"

    simulate(scenario, seed, settings=TWO_LANES)


def in_order(objects: DeliveryLog, name: str) -> bool:
    """Whether what one process received first of each group came in the order in which it was put."""
    latest: dict[str, int] = {}
    for process, each in objects.deliveries:
        if process == name and each.group is not None and each.attempt == 1:
            number = int(each.payload.split()[0])
            if number < latest.setdefault(each.group, number):
                return False
            latest[each.group] = number
    return True


def test_each_row_is_read_once_however_many_subs_its_part_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "SUB_BYTES_MAX", MIB)
    rows = 80

    async def scenario(queue: Queue) -> tuple[int, Sequence[Any]]:
        await lanes_ready(queue)
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        for _ in range(rows):
            await client.process.start(queue.put(client, NewMessage(client.process.rng.randbytes(100_000))))
        await asyncio.sleep(3)
        consumer = Consumer(queue, "consumer", DeliveryLog())
        consumer.start()
        await asyncio.sleep(30)
        assert rows == sum(consumer.delivery_log.acked.values())
        subs = {MessagePlace.from_bytes(id_bytes(each)).row.sub for each in queue.acknowledged}
        return len(subs), reads_of_content(consumer)

    subs, reads = simulate(scenario, settings=replace(TWO_LANES, part_us=3600 * SECOND))
    assert subs >= 8
    assert rows <= sum(read.limit for read in reads) <= rows * 1.1


def test_twelve_lanes_of_large_messages_start_in_three_hundred_megabytes() -> None:
    """12 MiB of backlog in each lane, in parts of several subs, and a consumer that settles nothing."""

    async def scenario(queue: Queue) -> tuple[int, int]:
        await lanes_ready(queue)
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        one = client.process.rng.randbytes(MIB - 64)
        for _ in range(12 * LANES):
            await client.process.start(queue.put(client, NewMessage(one)))
        await asyncio.sleep(3)
        consumer = Consumer(queue, "consumer", DeliveryLog())
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()

        async def work() -> int:
            engine = await consumer.open()
            received = 0
            for _ in range(10):
                received += len(await engine.receive(100, wait_us=SECOND))
            return received

        received = await consumer.process.start(work())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return received, peak - before

    settings = replace(WORKED, generations=(GenerationSettings(1, LANES),), part_us=3600 * SECOND)
    received, peak = simulate(scenario, settings=settings)
    assert received >= LANES
    assert peak < 300_000_000


def test_consumers_of_large_messages_get_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "SUB_BYTES_MAX", 4 * MIB)

    async def scenario(queue: Queue) -> int:
        await lanes_ready(queue)
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        for number in range(30):
            await client.process.start(queue.put(client, NewMessage(bytes([number]) * (MIB - 64))))
        consumer = Consumer(queue, "consumer", DeliveryLog())

        async def work() -> int:
            engine = await consumer.open()
            done = 0
            while done < 30:
                got = await engine.receive(100, wait_us=SECOND)
                await engine.settle([Ack(each.receipt) for each in got])
                done += len(got)
            return done

        return await consumer.process.start(work())

    assert 30 == simulate(scenario, settings=replace(TWO_LANES, part_us=3600 * SECOND))
