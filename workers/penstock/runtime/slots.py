"""Slots: tasks that each take what waits, have it handled, and take the next. As many as may run at the same time.

They live as long as the worker, so a message costs no task of its own. Cancelling a handler cancels its slot; the
slot goes on with the next message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.engines.contract import Delivery
from penstock.runtime.context import Context
from penstock.runtime.decide_retry import Verdict
from penstock.runtime.flight import Flight
from penstock.runtime.hands import Hands
from penstock.runtime.performing import Performer
from penstock.runtime.worker_metrics import WorkerMetrics
from penstock.telemetry.logs import log_fields
from penstock.telemetry.spans import Spans
from penstock.telemetry.tracing import current_trace, read_trace

log = logging.getLogger("penstock.worker")

Conclude = Callable[[Flight, Verdict | None], None]
"""Told how the handling of a message ended; None where its handler was stopped."""


@dataclass(frozen=True)
class SlotTerms:
    """What holds for all slots of a worker."""

    queue: str
    batch_size: int
    timeout_s: float | None
    now_us: Callable[[], int]
    spans: Spans | None = None


class Slots:
    """Those of one performer."""

    def __init__(
        self,
        performer: Performer,
        hands: Hands,
        conclude: Conclude,
        metrics: WorkerMetrics,
        terms: SlotTerms,
        *,
        slots_max: int,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.performer = performer
        self._hands = hands
        self._conclude = conclude
        self._metrics = metrics
        self._terms = terms
        self._slots_max = slots_max
        self._on_broken = on_broken
        self._batch_size = terms.batch_size if performer.batch else 1
        self._waiting: deque[Flight] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._running: dict[asyncio.Task[None], list[Flight]] = {}
        self._closing = False

    @property
    def stuck(self) -> int:
        """Slots whose handler was told to stop because it took too long, and goes on."""
        return sum(all(flight.overdue for flight in flights) for flights in self._running.values())

    @property
    def capacity(self) -> int:
        """How many messages can be handled at the same time."""
        return self._slots_max * self._batch_size

    def add(self, flights: Sequence[Flight]) -> None:
        """Have these handled."""
        self._waiting.extend(flights)
        needed = -(-len(self._waiting) // self._batch_size)
        while needed > 0 and self._idle:
            parked = self._idle.popleft()
            if not parked.done():
                parked.set_result(None)
                needed -= 1
        loop = asyncio.get_running_loop()
        while needed > 0 and len(self._tasks) < self._slots_max:
            slot = loop.create_task(self._run())
            slot.add_done_callback(self._slot_ended)
            self._tasks.append(slot)
            needed -= 1

    def _slot_ended(self, slot: asyncio.Task[None]) -> None:
        """A slot ends only by being closed; anything else is a bug, and must not go unseen."""
        error = None if slot.cancelled() else slot.exception()
        if error is not None:
            self._on_broken(error)

    def take_back(self) -> list[Flight]:
        """What was not begun; nothing waits any more."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    async def close(self) -> None:
        """End all slots, whatever they do."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self.performer.close()

    # ---- one slot

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine that runs as a task
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                parked = loop.create_future()
                self._idle.append(parked)
                await parked
                continue
            flights = [self._waiting.popleft() for _ in range(min(self._batch_size, len(self._waiting)))]
            flights = [flight for flight in flights if not self._is_gone(flight)]
            if flights:
                await self._handle(flights, task, loop)

    def _is_gone(self, flight: Flight) -> bool:
        """Lost while it waited."""
        if flight.is_stopped:
            self._conclude(flight, None)
        return flight.is_stopped

    async def _handle(self, flights: list[Flight], task: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
        self._running[task] = flights
        begun_s = loop.time()
        now_us = self._terms.now_us()
        for flight in flights:
            flight.task, flight.batch, flight.can_stop = task, flights, self.performer.can_stop
            if self._terms.timeout_s is not None:
                flight.deadline_s = begun_s + self._terms.timeout_s
            trace = read_trace(flight.delivery.attributes) if flight.delivery.attributes else None
            flight.context = Context(flight.delivery, self._terms.queue, self._hands.of(flight), trace=trace)
            self._metrics.lag.observe(max(0, now_us - flight.delivery.due_us) / 1_000_000)
        verdicts: Sequence[Verdict | None] = [None] * len(flights)
        try:
            verdicts = await self._within_context(flights)
            while task.cancelling():
                task.uncancel()
        except asyncio.CancelledError:
            if self._closing or not any(flight.is_stopped for flight in flights):
                raise
            task.uncancel()
        finally:
            del self._running[task]
            self._metrics.handled.observe(loop.time() - begun_s)
            for flight, verdict in zip(flights, verdicts, strict=True):
                flight.task = None
                self._conclude(flight, verdict)

    async def _within_context(self, flights: list[Flight]) -> Sequence[Verdict]:
        """The handler's own log lines, and what it puts, tell which message it is about."""
        delivery = flights[0].delivery
        context = flights[0].context
        trace = context.trace if context is not None and len(flights) == 1 else None
        fields = log_fields.set(_fields(delivery, trace.trace_id if trace else None, self._terms.queue, len(flights)))
        traced = current_trace.set(trace)
        try:
            if self._terms.spans is not None:
                with self._terms.spans.processing(self._terms.queue, [each.delivery for each in flights]):
                    return await self.performer.perform(flights)
            return await self.performer.perform(flights)
        finally:
            current_trace.reset(traced)
            log_fields.reset(fields)


def _fields(delivery: Delivery, trace_id: str | None, queue: str, count: int) -> dict[str, object]:
    if count > 1:
        return {"queue": queue, "messages": count, "first_message_id": delivery.message_id}
    fields: dict[str, object] = {"queue": queue, "message_id": delivery.message_id, "attempt": delivery.attempt}
    if trace_id is not None:
        fields["trace_id"] = trace_id
    return fields
