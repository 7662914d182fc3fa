"""A worker in the environment: the real runtime in a simulated process, which a test can crash and restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from headgate.engines.contract import DeadLetterDelivery, Delivery, NackDelivery, Settle
from headgate.process.background_tasks import start_task
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.decide_retry import delay_after
from headgate.runtime.handler.handlers import Handler
from headgate.runtime.handler.runner import HandlerRunner, PythonPerformer
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.telemetry.metrics import Registry
from headgate.testing.virtual_world import VirtualProcess

if TYPE_CHECKING:
    from headgate.testing.environment import Environment


class AttemptOutcome(Enum):
    """How one call of a handler ended."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """The message is retried, or moves to the dead-letter queue after `maxReceives` attempts."""
    REJECTED = "rejected"
    """The message moves to the dead-letter queue at once."""
    STOPPED = "stopped"
    """The handler took too long, or its worker was stopped."""
    CRASHED = "crashed"
    """The handler's process was killed."""


@dataclass(slots=True)
class HandlerAttempt:
    """One delivery of a message to a handler."""

    queue: str
    message_id: str
    payload: bytes
    number: int
    """1 for the first delivery."""
    at: datetime
    outcome: AttemptOutcome = AttemptOutcome.RUNNING
    reason: str = ""

    def json(self) -> Any:
        """The payload, decoded from JSON."""
        return json.loads(self.payload)


class EnvironmentWorker:
    """A worker process. `Environment.worker` starts it."""

    def __init__(
        self,
        environment: Environment,
        name: str,
        queue: str,
        handler: Handler,
        terms: WorkerTerms,
        visibility_us: int | None,
    ) -> None:
        self.queue = queue
        self._environment = environment
        self._name = name
        self._handler = handler
        self._terms = terms
        self._visibility_us = visibility_us
        self._process: VirtualProcess | None = None
        self._running: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self._opened = asyncio.Event()
        self._runners: list[_Runner] = []

    @property
    def is_running(self) -> bool:
        """Whether its process was started, and neither stopped nor killed."""
        return self._process is not None and not self._process.is_dead

    def is_process(self, process: VirtualProcess) -> bool:
        return process is self._process

    @property
    def in_flight(self) -> int:
        """Messages that it received and has not settled."""
        return 0 if self._worker is None or not self.is_running else self._worker.in_flight

    def start(self) -> None:
        self._opened = asyncio.Event()
        self._process = self._environment.start_process(self._name)
        self._running = self._process.start(self._run(self._process))
        self._running.add_done_callback(lambda _: self._opened.set())

    async def stop(self) -> None:
        """SIGTERM: handlers may finish within the grace, and lanes are released."""
        await self._opened.wait()
        if self._worker is not None and self._running is not None:
            self._worker.end()
            await self._running
        self.kill()

    def kill(self) -> None:
        """Kill -9: nothing of it runs any more."""
        if self._process is not None:
            self._process.kill()
        for runner in self._runners:
            runner.kill()
        self._worker = None
        self._runners = []

    async def _run(self, process: VirtualProcess) -> None:
        async with self._environment.connection_of(process) as connection:
            queue = await connection.queue(self.queue)
            runner = _Runner(self._environment, self._performer(process), queue.name)
            suspects = _ChildRunner(self._environment, self._performer(process), queue.name, process, self._terms)
            self._runners = [runner, suspects]
            self._worker = Worker(
                WorkerQueue(connection, queue, visibility_us=self._visibility_us),
                runner,
                self._terms,
                WorkerMetrics(Registry(), queue.name),
                suspects=suspects,
                rng=process.rng,
                now_us=connection.now_us,
            )
            self._opened.set()
            await self._worker.run()

    def _performer(self, process: VirtualProcess) -> PythonPerformer:
        return PythonPerformer(self._handler, threads=self._terms.concurrency, rng=process.rng)


class _Runner:
    """Calls the handler, and records each call."""

    def __init__(self, environment: Environment, performer: HandlerRunner, queue: str) -> None:
        self.batch = performer.batch
        self.wants_context = performer.wants_context
        self._environment = environment
        self._performer = performer
        self._queue = queue
        self._open: dict[int, HandlerAttempt] = {}

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        """Handle these."""
        records = [self._record(attempt.delivery) for attempt in attempts]
        settles: Sequence[Settle] = ()
        try:
            settles = await self._handle(attempts)
        finally:
            for place, record in enumerate(records):
                self._open.pop(id(record), None)
                if record.outcome is AttemptOutcome.RUNNING:
                    settle = settles[place] if settles else None
                    record.outcome, record.reason = _outcome_of(settle)
        return settles

    async def _handle(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        return await self._performer.perform(attempts)

    def _record(self, delivery: Delivery) -> HandlerAttempt:
        record = HandlerAttempt(
            self._queue, delivery.message_id, delivery.payload, delivery.attempt, self._environment.now()
        )
        self._open[id(record)] = record
        self._environment.attempted.append(record)
        return record

    def kill(self) -> None:
        """The calls that run never end."""
        for record in self._open.values():
            record.outcome = AttemptOutcome.CRASHED
        self._open = {}

    def drain(self) -> None:
        self._performer.drain()

    async def close(self) -> None:
        await self._performer.close()


class _ChildRunner(_Runner):
    """As a worker runs crash suspects: each in a child process, whose death is charged to its message alone."""

    batch = False

    def __init__(
        self,
        environment: Environment,
        performer: HandlerRunner,
        queue: str,
        parent: VirtualProcess,
        terms: WorkerTerms,
    ) -> None:
        super().__init__(environment, performer, queue)
        self.batch = False
        self._parent = parent
        self._terms = terms
        self._children: set[VirtualProcess] = set()
        self._started = 0

    async def _handle(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        self._started += 1
        child = self._environment.start_process(f"{self._parent.name}/child-{self._started}")
        self._children.add(child)
        died = asyncio.Event()
        child.when_state_changes(died.set)
        death = start_task("death of a child", died.wait())
        copies = [Attempt(each.delivery, each.until_s, each.context) for each in attempts]
        handling = child.start(self._performer.perform(copies))
        try:
            await asyncio.wait([handling, death], return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                return handling.result()
            self.kill()
            delay_us = delay_after(self._terms.backoff, attempts[0].delivery.attempt, self._parent.rng.random())
            receipt = attempts[0].delivery.receipt
            return [NackDelivery(receipt, delay_us, "its process was killed by SIGKILL")]
        finally:
            death.cancel()
            handling.cancel()
            self._children.discard(child)

    def kill(self) -> None:
        """A child does not outlive its parent."""
        super().kill()
        for child in self._children:
            child.kill()


def _outcome_of(settle: Settle | None) -> tuple[AttemptOutcome, str]:
    match settle:
        case None:
            return AttemptOutcome.STOPPED, ""
        case NackDelivery():
            return AttemptOutcome.FAILED, settle.reason
        case DeadLetterDelivery():
            return AttemptOutcome.REJECTED, settle.reason
        case _:
            return AttemptOutcome.DONE, ""
