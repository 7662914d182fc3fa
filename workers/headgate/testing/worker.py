"""A worker in the environment: the real runtime in a simulated process, which a test can crash and restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from headgate.engines.contract import DeadLetterDelivery, Delivery, NackDelivery, Settle
from headgate.process.background_tasks import start_task
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.handlers import Handler
from headgate.runtime.handler.runner import HandlerRunner, PythonPerformer
from headgate.runtime.isolation.child_pool import ChildPool, PoolTerms, Suspect
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
        self._runners: list[_Runner | _Children] = []

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
            children = _Children(
                self._environment,
                lambda: _Runner(self._environment, self._performer(process), queue.name),
                process,
            )
            suspects = ChildPool(
                children.make_child, PoolTerms(self._terms.timeout_s, self._terms.backoff), rng=process.rng
            )
            self._runners = [runner, children]
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
            settles = await self._performer.perform(attempts)
        finally:
            for place, record in enumerate(records):
                self._open.pop(id(record), None)
                if record.outcome is AttemptOutcome.RUNNING:
                    settle = settles[place] if settles else None
                    record.outcome, record.reason = _outcome_of(settle)
        return settles

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


class _Children:
    """The processes that run crash suspects of a worker."""

    def __init__(self, environment: Environment, make_runner: Callable[[], _Runner], parent: VirtualProcess) -> None:
        self._environment = environment
        self._make_runner = make_runner
        self._parent = parent
        self._children: list[_Child] = []
        self._started = 0

    def make_child(self) -> _Child:
        child = _Child(self._make_runner(), self._start_process)
        self._children.append(child)
        return child

    def _start_process(self) -> VirtualProcess:
        self._started += 1
        return self._environment.start_process(f"{self._parent.name}/child-{self._started}")

    def kill(self) -> None:
        """A child does not outlive its parent."""
        for child in self._children:
            child.kill()


class _Child:
    """A `ChildRunner` in virtual time."""

    pid = None

    def __init__(self, runner: _Runner, start_process: Callable[[], VirtualProcess]) -> None:
        self.ran = 0
        self.is_killed = False
        self._runner = runner
        self._start_process = start_process
        self._process: VirtualProcess | None = None
        self._running: dict[asyncio.Task[Sequence[Settle]], Suspect] = {}

    async def run(self, members: Sequence[Suspect]) -> str | None:
        process = self._process
        if process is None or process.is_dead:
            process = self._process = self._start_process()
            self.ran, self.is_killed = 0, False
        died = asyncio.Event()
        process.when_state_changes(died.set)
        death = start_task("death of a child", died.wait())
        try:
            for member in members:
                if not member.is_settled and not process.is_dead:
                    self.ran += 1
                    member.begin()
                    self._running[process.start(self._runner.perform([_copy(member.attempt)]))] = member
            while self._running:
                done, _ = await asyncio.wait([death, *self._running], return_when=asyncio.FIRST_COMPLETED)
                for task in [each for each in self._running if each in done]:
                    self._running.pop(task).end(None if task.cancelled() else task.result()[0])
                if death in done:
                    self._runner.kill()
                    return "its process was killed by SIGKILL"
        finally:
            death.cancel()
            for member in self._running.values():
                member.stopped.set()
            self._running = {}
        return None

    def cancel(self, member: Suspect) -> None:
        for task in [task for task, each in self._running.items() if each is member]:
            task.cancel()

    def kill(self) -> None:
        self.is_killed = True
        self._runner.kill()
        if self._process is not None:
            self._process.kill()

    async def end(self) -> None:
        self.kill()


def _copy(attempt: Attempt) -> Attempt:
    return Attempt(attempt.delivery, attempt.until_s, attempt.context)


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
