"""Slots: tasks that each take a waiting message, have it handled, and take the next. The number of slots is the
maximum concurrency.

They live as long as the worker, so a message costs no task of its own. Cancelling a handler cancels its slot, and the
slot continues with the next message. A slot whose handler left a context variable behind is replaced, so that
messages cannot affect each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass

from headgate.engines.contract import DeadLetterDelivery, Delivery, NackDelivery, Settle
from headgate.process.background_tasks import BackgroundTasks
from headgate.runtime.handler.context import Attempt, Context
from headgate.runtime.handler.runner import HandlerRunner
from headgate.runtime.worker.visibility import VisibilityKeeper
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.telemetry.logs import log_fields
from headgate.telemetry.tracing import Spans, TraceContext, current_trace, read_trace

log = logging.getLogger("headgate.worker")

Conclude = Callable[[Attempt, Settle | None], None]
"""Called with how a message is settled; None where its handler was stopped."""


@dataclass(frozen=True)
class SlotTerms:
    queue: str
    batch_size: int
    timeout_s: float | None
    now_us: Callable[[], int]
    spans: Spans | None = None


class Slots:
    def __init__(
        self,
        performer: HandlerRunner,
        keeper: VisibilityKeeper,
        conclude: Conclude,
        metrics: WorkerMetrics,
        terms: SlotTerms,
        *,
        slots_max: int,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.performer = performer
        self._keeper = keeper
        self._conclude = conclude
        self._metrics = metrics
        self._terms = terms
        self._slots_max = slots_max
        self._batch_size = terms.batch_size if performer.batch else 1
        self._waiting: deque[Attempt] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks = BackgroundTasks("worker slot", failed=on_broken)
        """A slot ends only by being closed or replaced; anything else is a bug, and must not go unseen."""
        self._context = copy_context()
        self._running: dict[asyncio.Task[None], list[Attempt]] = {}
        self._closing = False

    @property
    def stuck(self) -> int:
        """Slots whose handler was asked to stop because it took too long, and still runs."""
        return sum(all(attempt.overdue for attempt in attempts) for attempts in self._running.values())

    @property
    def capacity(self) -> int:
        return self._slots_max * self._batch_size

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + sum(map(len, self._running.values()))

    def add(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        needed = -(-len(self._waiting) // self._batch_size)
        while needed > 0 and self._idle:
            parked = self._idle.popleft()
            if not parked.done():
                parked.set_result(None)
                needed -= 1
        while needed > 0 and len(self._tasks) < self._slots_max:
            self._begin()
            needed -= 1

    def take_back(self) -> list[Attempt]:
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    async def close(self) -> None:
        self._closing = True
        await self._tasks.stop(within_s=1.0)
        await self.performer.close()

    # ---- one slot

    def _begin(self) -> None:
        self._tasks.start(self._run(), context=self._context.copy())

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine that runs as a task
        loop = asyncio.get_running_loop()
        waiting, batch_size = self._waiting, self._batch_size
        log_fields.set({})
        current_trace.set(None)
        variables = len(copy_context())
        while len(copy_context()) == variables:
            if not waiting:
                if self._closing:  # its handler refused to be cancelled, and ends only now
                    return
                parked = loop.create_future()
                self._idle.append(parked)
                await parked
                continue
            attempts = [waiting.popleft()]
            if batch_size > 1:
                attempts += [waiting.popleft() for _ in range(min(batch_size - 1, len(waiting)))]
            if any([attempt.is_stopped for attempt in attempts]):  # noqa: C419  half the time
                attempts = self._still_ours(attempts)
            if attempts:
                await self._handle(attempts, task, loop)
            attempts = []  # a slot that waits for its next message holds none
        # The handler left a context variable behind, which the next message must not see.
        self._begin()

    def _still_ours(self, attempts: list[Attempt]) -> list[Attempt]:
        for attempt in attempts:
            if attempt.is_stopped:
                self._conclude(attempt, None)
        return [attempt for attempt in attempts if not attempt.is_stopped]

    async def _handle(
        self, attempts: list[Attempt], task: asyncio.Task[None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._running[task] = attempts
        begun_s = loop.time()
        now_us = self._terms.now_us()
        for attempt in attempts:
            self._take_up(attempt, attempts, task)
            self._metrics.lag.observe(max(0, now_us - attempt.delivery.due_us) / 1_000_000)
        settles: Sequence[Settle | None] = [None] * len(attempts)
        self._set_log_context(attempts)
        try:
            if self._terms.spans is not None:
                settles = await self._traced(attempts, self._terms.spans)
            else:
                settles = await self.performer.perform(attempts)
            while task.cancelling():
                task.uncancel()
        except asyncio.CancelledError:
            if self._closing or not any(attempt.is_stopped for attempt in attempts):
                raise
            task.uncancel()
        finally:
            del self._running[task]
            self._metrics.handled.observe(loop.time() - begun_s)
            for attempt, settle in zip(attempts, settles, strict=True):
                attempt.end()
                self._conclude(attempt, settle)

    def _take_up(self, attempt: Attempt, batch: Sequence[Attempt], task: asyncio.Task[None]) -> None:
        """From now on its handler may read it, and be stopped."""
        performer, terms, delivery = self.performer, self._terms, attempt.delivery
        attempt.task, attempt.batch = task, batch
        if terms.timeout_s is not None:
            self._keeper.limit(attempt, terms.timeout_s)
        if delivery.attributes:
            attempt.trace = read_trace(delivery.attributes)
        if performer.wants_context:
            attempt.context = Context(delivery, terms.queue, self._keeper.of(attempt), trace=attempt.trace)

    def _set_log_context(self, attempts: Sequence[Attempt]) -> None:
        """Its log lines, and the messages that it puts, carry the id of its message."""
        first = attempts[0]
        trace = first.trace if len(attempts) == 1 else None
        log_fields.set(_fields(first.delivery, trace, self._terms.queue, len(attempts)))
        current_trace.set(trace)

    async def _traced(self, attempts: Sequence[Attempt], spans: Spans) -> Sequence[Settle]:
        with spans.processing(self._terms.queue, [each.delivery for each in attempts]) as span:
            settles = await self.performer.perform(attempts)
            failed = [each.reason for each in settles if isinstance(each, NackDelivery | DeadLetterDelivery)]
            if failed:
                span.failed(failed[0].partition("\n")[0])
            return settles


def _fields(delivery: Delivery, trace: TraceContext | None, queue: str, count: int) -> dict[str, object]:
    if count > 1:
        return {"queue": queue, "messages": count, "first_message_id": delivery.message_id}
    fields: dict[str, object] = {"queue": queue, "message_id": delivery.message_id, "attempt": delivery.attempt}
    if trace is not None:
        fields["trace_id"] = trace.trace_id
    return fields
