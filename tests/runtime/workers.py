"""Workers on a queue in memory, in virtual time: what the tests of the runtime share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.runtime.handlers import understand
from penstock.runtime.performing import Performer, PythonPerformer
from penstock.runtime.worker import Worker, WorkerTerms
from penstock.runtime.worker_metrics import WorkerMetrics
from penstock.telemetry.metrics import Registry
from penstock.testing.memory_queue import MemoryQueue
from penstock.testing.world import World


@dataclass
class Bench:
    """One worker under test."""

    queue: MemoryQueue
    worker: Worker
    metrics: WorkerMetrics
    registry: Registry = field(repr=False)


def bench_of(
    handler: Callable[..., Any] | None,
    *,
    queue: MemoryQueue | None = None,
    terms: WorkerTerms | None = None,
    performer: Performer | None = None,
    suspects: Performer | None = None,
) -> Bench:
    """A worker for a handler; to be called on the event loop."""
    queue = queue or MemoryQueue()
    registry = Registry()
    metrics = WorkerMetrics(registry, queue.name)
    terms = terms or WorkerTerms()
    if performer is None:
        assert handler is not None
        performer = PythonPerformer(understand(handler, "tests:handler"), threads=terms.concurrency, chance=Random(1))
    worker = Worker(queue, performer, terms, metrics, suspects=suspects, chance=Random(1), now_us=queue.now_us)
    return Bench(queue, worker, metrics, registry)


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on a loop on which an hour passes at once."""

    async def run() -> None:
        await scenario()

    with World() as world:
        world.run(run())
