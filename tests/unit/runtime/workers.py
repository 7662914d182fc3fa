"""Workers on a queue in memory, in virtual time: what the tests of the runtime share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headgate.runtime.handler.handlers import understand
from headgate.runtime.handler.runner import HandlerRunner, PythonPerformer
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.telemetry.metrics import Registry
from headgate.telemetry.tracing import Spans
from tests.kit.simulated_world import World
from tests.kit.worker_queue import FaultyQueue


@dataclass
class Bench:
    """One worker under test."""

    queue: FaultyQueue
    worker: Worker
    metrics: WorkerMetrics
    registry: Registry = field(repr=False)


def bench_of(
    handler: Callable[..., Any] | None,
    *,
    queue: FaultyQueue | None = None,
    terms: WorkerTerms | None = None,
    performer: HandlerRunner | None = None,
    suspects: HandlerRunner | None = None,
    spans: Spans | None = None,
) -> Bench:
    """A worker for a handler; to be called on the event loop."""
    queue = queue or FaultyQueue()
    registry = Registry()
    metrics = WorkerMetrics(registry, queue.name)
    terms = terms or WorkerTerms()
    if performer is None:
        assert handler is not None
        performer = PythonPerformer(understand(handler, "tests:handler"), threads=terms.concurrency, rng=Random(1))
    worker = Worker(
        queue, performer, terms, metrics, suspects=suspects, spans=spans, rng=Random(1), now_us=queue.now_us
    )
    return Bench(queue, worker, metrics, registry)


async def until(bench: Bench, holds: object) -> None:
    """Wait until something holds of the queue."""
    assert callable(holds)
    async with asyncio.timeout(3_600):
        while not holds():
            await bench.queue.next_event()


async def worked(bench: Bench, *, until_live: int = 0) -> None:
    """Run the worker until this number is not settled, then end it."""
    running = asyncio.get_running_loop().create_task(bench.worker.run())
    await until(bench, lambda: bench.queue.live == until_live or running.done())
    bench.worker.end()
    await running


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on a loop on which an hour passes at once."""

    async def run() -> None:
        await scenario()

    with World() as world:
        world.run(run())
