"""The worker runtime on the timeline engine, simulated: fair among lanes, and suspects beside the others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from headgate.engines.contract import Delivery, NewMessage, Settle, Settled
from headgate.engines.crash_suspects import GROUP_MAX
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.runtime.handler.context import Context
from headgate.runtime.handler.handlers import understand
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import LeaseStatus
from headgate.store.clock.clock import ClockFigures
from headgate.telemetry.metrics import Registry
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

WIDE = replace(WORKED, generations=(GenerationSettings(1, 96),), visibility_us=8 * SECOND)


class Port:
    """A timeline queue of the simulation, as a worker sees it."""

    name = "shop/emails"
    visibility_us = 8 * SECOND
    max_receives: int | None = None

    def __init__(self, engine: TimelineQueue) -> None:
        self.engine = engine

    async def receive(self, limit: int, *, visibility_us: int, wait_us: int) -> list[Delivery]:
        """From its lanes."""
        return await self.engine.receive(limit, visibility_us=visibility_us, wait_us=wait_us)

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Each for itself."""
        return await self.engine.settle(settles)

    def leases(self) -> Sequence[LeaseStatus]:
        """Nobody asks."""
        return []

    def clock(self) -> ClockFigures | None:
        """Nobody asks."""
        return None

    async def leave(self) -> None:
        """Hand over."""
        await self.engine.lanes.leave()

    async def close(self) -> None:
        """Give back."""
        await self.engine.close()


def worker_of(engine: TimelineQueue, handler: Callable[..., Any], terms: WorkerTerms, **more: Any) -> Worker:
    """A worker in the process of an engine."""
    performer = PythonPerformer(understand(handler, "tests:handler"), threads=1, rng=Random(1))
    host = engine.host
    metrics = WorkerMetrics(Registry(), Port.name)
    return Worker(Port(engine), performer, terms, metrics, rng=Random(1), now_us=host.now_us, **more)


async def put_all(queue: Queue, payloads: Sequence[bytes], *, flush: int) -> None:
    """By a process of its own; each flush goes to another lane."""
    client = queue.client("producer")
    for start in range(0, len(payloads), flush):
        messages = [NewMessage(each) for each in payloads[start : start + flush]]
        await client.process.start(queue.put(client, *messages))


async def until(holds: Callable[[], bool], *, within_s: float = 120.0) -> None:
    """Wait until something holds."""
    for _ in range(round(within_s / 0.1)):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come to hold")


def test_with_96_lanes_on_one_worker_no_lane_waits_more_than_a_second_while_others_are_served() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_all(queue, [b"x"] * 3_840, flush=40)
        consumer = Consumer(queue, "worker", DeliveryLog())
        begun: dict[str, list[float]] = defaultdict(list)
        handled: list[str] = []
        whole = asyncio.Event()

        async def work(payload: bytes, context: Context) -> None:
            begun[lane_of(context.delivery)].append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.02)
            handled.append(context.message_id)
            if len(handled) >= len(queue.acknowledged):
                whole.set()

        async def run() -> None:
            engine = await consumer.open()
            engine.lanes.want(96)
            await until(lambda: len(engine.lanes.held) == 96)
            await asyncio.sleep(5)  # every lane has read ahead: from here on each has something to give
            worker = worker_of(engine, work, WorkerTerms(concurrency=16))
            running = asyncio.get_running_loop().create_task(worker.run())
            async with asyncio.timeout(120):
                await whole.wait()
            worker.end()
            await running
            await engine.close()

        await consumer.process.start(run())
        assert len(handled) == len(set(handled)) == len(queue.acknowledged)
        assert 96 == len(begun)
        first = min(times[0] for times in begun.values())
        waits = [
            later - earlier
            for times in begun.values()
            for earlier, later in zip([first, *times], times, strict=False)
        ]
        assert max(waits) < 1.0, f"a lane waited {max(waits):.2f} s"
        assert max(map(max, begun.values())) - first > 4, "it was over too soon to show anything"

    simulate(scenario, settings=WIDE)


def lane_of(delivery: Delivery) -> str:
    """Generation and shard, as a message's first place names them."""
    place = MessagePlace.from_bytes(id_bytes(delivery.message_id))
    return f"{place.row.generation}/{place.row.shard}"


def test_suspects_run_apart_in_groups_and_the_others_do_not_wait() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_all(queue, [b"fails" if number % 20 == 7 else b"x" for number in range(60)], flush=20)
        killed = Consumer(queue, "killed", DeliveryLog())
        killed.start(work_s=1_000, batch=20)
        await asyncio.sleep(8)
        assert killed.delivery_log.deliveries
        killed.process.kill()
        consumer = Consumer(queue, "worker", DeliveryLog())
        distances: list[tuple[float, bool]] = []
        common: list[float] = []
        settled: list[str] = []
        ended: list[float] = []

        async def slowly(payload: bytes, context: Context) -> None:
            assert consumer.engine is not None
            held = consumer.engine.lanes.held.values()
            given = sum(each.delivery_state.suspects_in_flight.total() for each in held)
            fit = given <= GROUP_MAX
            distances.append((asyncio.get_running_loop().time(), fit))
            await asyncio.sleep(5)
            ended.append(asyncio.get_running_loop().time())
            if payload == b"fails" and context.attempt <= 2:
                raise ValueError("once more")
            settled.append(context.message_id)

        async def work(payload: bytes, context: Context) -> None:
            assert not context.delivery.suspect
            if payload == b"fails":  # it failed as a suspect, so it is none any more
                settled.append(context.message_id)
                return
            common.append(asyncio.get_running_loop().time())

        async def run() -> None:
            engine = await consumer.open()
            child = PythonPerformer(understand(slowly, "tests:slowly"), threads=1, rng=Random(1))
            worker = worker_of(engine, work, WorkerTerms(), suspects=child)
            running = asyncio.get_running_loop().create_task(worker.run())
            client = queue.client("later")
            async with asyncio.timeout(300):
                await until(lambda: len(distances) >= 2)
                await client.process.start(queue.put(client, *[NewMessage(b"y")] * 50))
                await until(lambda: len(settled) + len(common) >= 110)
            worker.end()
            await running
            await engine.close()

        await consumer.process.start(run())
        assert len(distances) >= 20 and len(common) >= 50
        assert all(fit for _, fit in distances), "more were in flight than allowed"
        assert max(common) < max(ended) - 2, "the others waited for the suspects"

    simulate(scenario, settings=replace(WORKED, visibility_us=8 * SECOND))
