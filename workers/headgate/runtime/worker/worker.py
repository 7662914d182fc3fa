"""The worker: receives messages of one queue, has them handled, and settles them. The decisions are in other modules.

It depends on `WorkerQueue` and a `HandlerRunner`, and knows neither how an engine stores nor the meaning of a
payload. The queue owns the lanes; their distribution is a separate protocol (docs/internals/protocols/balance.md).

- At most `concurrency` handlers run, over all lanes; a few more messages are in flight so that no handler waits.
- A lost message is not settled; a message that could not be settled comes again.
- Crash suspects run in other processes (`isolation/child_pool.py`); nothing else waits for them. The queue bounds
their number.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from headgate.engines.contract import Ack, DeadLetterDelivery, Delivery, NackDelivery, Settle, Settled
from headgate.errors import HeadgateError, Unavailable
from headgate.expiry import SECOND_US
from headgate.process.background_tasks import BackgroundTasks, start_task
from headgate.process.pacing import ExponentialPause, TokenBucket
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.decide_retry import Backoff, delay_after
from headgate.runtime.handler.runner import HandlerRunner
from headgate.runtime.policy.decide_health import DrainState, DrainStep
from headgate.runtime.policy.decide_pace import MESSAGES_MAX, Pace, Prefetch
from headgate.runtime.worker.settling import Settler
from headgate.runtime.worker.slots import Slots, SlotTerms
from headgate.runtime.worker.visibility import VisibilityKeeper
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.telemetry.tracing import Spans

log = logging.getLogger("headgate.worker")

WAIT_S = 1.0
"""A receive waits this long for its first message, which bounds the delay before the worker notices that it is to
end."""
UNSETTLED_MAX = 2_000
"""Messages handled and not yet settled; above this number nothing new is received."""
STOP_WITHIN_S = 2.0
"""How long a handler that is cancelled at the end of the grace may take to end."""
SETTLE_WITHIN_S = 5.0
SUSPECTS_MAX = 64
"""Crash suspects in `isolation/child_pool.py` at a time. The engine delivers no more."""
RECEIVE_AGAIN_S = (0.1, 5.0)


@dataclass(frozen=True)
class WorkerTerms:
    concurrency: int = 16
    prefetch: int | None = None
    """Messages in flight beyond those in handlers; None as `policy/decide_pace.py` decides."""
    batch_size: int = 100
    rate_per_s: float | None = None
    rate_is_shared: bool = False
    """Whether the rate is of all workers of the queue together, each of which takes an equal part."""
    timeout_s: float | None = None
    grace_s: float = 30.0
    backoff: Backoff = field(default_factory=Backoff)
    """For a failure without an exception of its handler: it took too long."""


class Worker:
    """One queue, one handler, one process. To be made on a running event loop."""

    def __init__(
        self,
        queue: WorkerQueue,
        performer: HandlerRunner,
        terms: WorkerTerms,
        metrics: WorkerMetrics,
        *,
        suspects: HandlerRunner | None = None,
        spans: Spans | None = None,
        rng: Random | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.queue = queue
        self.terms = terms
        self.metrics = metrics
        self.turned_s = 0.0
        """When the receiving loop last turned, by the event loop's clock."""
        self.is_receiving = False
        self._rng = rng or Random()  # noqa: S311  jitter
        self._ending = DrainState(terms.grace_s)
        self._settler = Settler(queue.settle, self._on_settled)
        self.keeper = VisibilityKeeper(
            queue.settle,
            visibility_s=queue.visibility_us / SECOND_US,
            # It continues in its thread, and occupies its slot; the message is given to the next attempt.
            on_overdue=lambda attempt: self._conclude(attempt, None),
            on_lost=self._on_lost,
            now_s=lambda: now_us() / SECOND_US,
        )
        slot_terms = SlotTerms(queue.name, terms.batch_size, terms.timeout_s, now_us, spans)
        self.suspects = suspects
        self._slots = self._slots_of(performer, slot_terms, terms.concurrency)
        self._suspect_slots = None if suspects is None else self._slots_of(suspects, slot_terms, SUSPECTS_MAX)
        self._prefetch = Prefetch(min(terms.concurrency, MESSAGES_MAX))
        self._concluded = 0
        self._pace = Pace.of(terms.concurrency)
        self._bucket = TokenBucket(terms.rate_per_s) if terms.rate_per_s else None
        self._broken: BaseException | None = None
        self._change = asyncio.Event()
        self._wake = asyncio.Event()

    def _slots_of(self, performer: HandlerRunner, terms: SlotTerms, slots_max: int) -> Slots:
        return Slots(
            performer,
            self.keeper,
            self._conclude,
            self.metrics,
            terms,
            slots_max=slots_max,
            on_broken=self._on_broken,
        )

    # ---- its life

    def end(self) -> bool:
        """Request a shutdown. False after an earlier request: then the requester ends the process."""
        self._ending = self._ending.count_signal(asyncio.get_running_loop().time())
        self._wake.set()
        self._change.set()
        return self._ending.signals == 1

    @property
    def is_ending(self) -> bool:
        return self._ending.signals > 0

    @property
    def in_flight(self) -> int:
        return len(self.keeper) + self._settler.pending

    @property
    def is_slow(self) -> bool:
        """Whether everything fails, so that one message at a time is taken, with pauses."""
        return self._pace.is_slow

    @property
    def stuck(self) -> int:
        return self._slots.stuck

    async def run(self) -> None:
        """Work until a shutdown request, then end cleanly. Raises the error that made it impossible to continue."""
        loop = asyncio.get_running_loop()
        self.turned_s = loop.time()
        beating = BackgroundTasks("visibility of messages in flight", failed=self._on_broken)
        beating.start(self.keeper.keep_hidden())
        try:
            self.is_receiving = True
            await self._feed()
        finally:
            self.is_receiving = False
            if not self.is_ending:
                self.end()
            await self._finish()
            await beating.stop()
            for slots in self._all_slots():
                await slots.close()
        if self._broken is not None:
            raise self._broken

    def _on_broken(self, error: BaseException) -> None:
        """A loop of ours ended by an unexpected error: the worker ends too, and reports it."""
        self._broken = self._broken or error
        self.end()

    def _all_slots(self) -> list[Slots]:
        return [self._slots] if self._suspect_slots is None else [self._slots, self._suspect_slots]

    async def _finish(self) -> None:
        """Running handlers may end within the grace; messages that were not started are returned at once."""
        log.info("worker stopping", extra={"in_flight": self.in_flight, "grace_s": self.terms.grace_s})
        loop = asyncio.get_running_loop()
        self._give_back_waiting()
        for slots in self._all_slots():
            slots.performer.drain()
        leaving = start_task("release of lanes", self._leave())
        while self._ending.step(open_messages=self.in_flight, now_s=loop.time()) is DrainStep.FINISH:
            await self._wait(0.2)
        if len(self.keeper):
            log.warning("handlers did not finish within the grace period", extra={"in_flight": len(self.keeper)})
            await self._stop_handlers()
        until_s = loop.time() + SETTLE_WITHIN_S
        while self._settler.pending and loop.time() < until_s:
            await self._wait(0.1)
        leaving.cancel()

    async def _leave(self) -> None:
        """Lanes need not wait for the last handler; a lane that cannot be handed over now is released at the end."""
        try:
            await self.queue.leave()
        except HeadgateError as error:
            log.warning("lanes are released only at shutdown", extra={"error": str(error)})

    def _give_back_waiting(self) -> None:
        for slots in self._all_slots():
            for attempt in slots.take_back():
                self._conclude(attempt, NackDelivery(attempt.delivery.receipt, charged=False))

    async def _stop_handlers(self) -> None:
        """Cancel the handlers that can be cancelled. The messages of the others stay hidden, and they end with the
        process."""
        running = self.keeper.give_back()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STOP_WITHIN_S
        while loop.time() < until_s and any(each.task is not None and not each.in_thread for each in running):
            await self._wait(0.1)
        for attempt in running:
            self.keeper.let_go(attempt)

    async def _wait(self, at_most_s: float) -> None:
        self._change.clear()
        await _wait_for(self._change, at_most_s)

    # ---- receiving

    async def _feed(self) -> None:
        loop = asyncio.get_running_loop()
        again = ExponentialPause(*RECEIVE_AGAIN_S)
        while not self.is_ending:
            self.turned_s = loop.time()
            rest_s = self._pace.rest_s(self.turned_s)
            if rest_s > 0:
                await self._until_woken(min(rest_s, WAIT_S))
                continue
            free = self._free()
            if free <= 0:
                await self._wait(WAIT_S)
                continue
            if self._bucket is not None and self.terms.rate_is_shared:
                self._bucket.set_rate((self.terms.rate_per_s or 0.0) / self.queue.sharers)
            allowed = free if self._bucket is None else self._bucket.take(free, loop.time())
            if allowed <= 0 and self._bucket is not None:
                await self._until_woken(min(self._bucket.wait_s(), WAIT_S))
                continue
            try:
                given = await self.queue.receive(
                    allowed, visibility_us=self.queue.visibility_us, wait_us=round(WAIT_S * SECOND_US)
                )
            except Unavailable as error:
                if self._bucket is not None:
                    self._bucket.give_back(allowed, 0, loop.time())
                self.metrics.receive_failures.add()
                again_s = again.next_s()
                log.warning("receive failed", extra={"error": str(error), "again_in_s": again_s})
                await self._until_woken(again_s)
                continue
            again.reset()
            if self._bucket is not None:
                self._bucket.give_back(allowed, len(given), loop.time())
            self._accept(given)

    def _free(self) -> int:
        if self._settler.pending >= UNSETTLED_MAX:
            return 0
        suspects_running = 0 if self._suspect_slots is None else self._suspect_slots.in_flight
        beyond = self.terms.prefetch
        if beyond is None:
            beyond = self._prefetch.wanted(self._concluded, asyncio.get_running_loop().time())
        in_flight = len(self.keeper) - suspects_running
        return self._pace.slots_free(self._slots.capacity + beyond - in_flight, in_flight)

    async def _until_woken(self, at_most_s: float) -> None:
        await _wait_for(self._wake, at_most_s)

    def _accept(self, given: Sequence[Delivery]) -> None:
        until_s = asyncio.get_running_loop().time() + self.keeper.visibility_s
        common: list[Attempt] = []
        for delivery in given:
            attempt = Attempt(delivery, until_s)
            self.keeper.take(attempt)
            if delivery.suspect and self._suspect_slots is not None:
                self.metrics.suspects.add()
                self._suspect_slots.add([attempt])
            else:
                common.append(attempt)
        if common:
            self._slots.add(common)
        self.metrics.received.add(len(given))
        if self.is_ending:
            self._give_back_waiting()

    # ---- settling

    def _conclude(self, attempt: Attempt, settle: Settle | None) -> None:
        """The handling of a message ended, or it is given back. A message that was lost, or settled before, is not
        settled."""
        if not self.keeper.let_go(attempt):
            return
        self._concluded += 1
        self._change.set()
        if attempt.lost:
            return
        if settle is None:
            settle = self._settle_of_stopped(attempt)
        if isinstance(settle, Ack):
            if (self._pace.failed or self._pace.longest) and self._pace.went_well():
                log.info("worker recovered", extra={"queue": self.queue.name})
        elif _counts_as_failure(settle) and self._pace.went_wrong(asyncio.get_running_loop().time()):
            log.warning("worker throttled: one message at a time", extra={"queue": self.queue.name})
        self._settler.add(attempt, settle)
        if isinstance(settle, NackDelivery | DeadLetterDelivery) and settle.reason:
            self._log_failure(attempt, settle)

    def _settle_of_stopped(self, attempt: Attempt) -> NackDelivery:
        receipt = attempt.delivery.receipt
        if attempt.overdue:
            delay_us = delay_after(self.terms.backoff, attempt.delivery.attempt, self._rng.random())
            return NackDelivery(receipt, delay_us, f"the handler exceeded its timeout of {self.terms.timeout_s:g} s")
        return NackDelivery(receipt, reason="the worker stopped before the handler finished")

    def _log_failure(self, attempt: Attempt, settle: NackDelivery | DeadLetterDelivery) -> None:
        fields = {
            "queue": self.queue.name,
            "message_id": attempt.delivery.message_id,
            "attempt": attempt.delivery.attempt,
            "reason": settle.reason,
        }
        if isinstance(settle, DeadLetterDelivery) or self._is_last(attempt):
            log.error("message moved to dead-letter queue", extra=fields)
        else:
            log.warning("message failed", extra=fields | {"again_in_s": settle.delay_us / SECOND_US})

    def _is_last(self, attempt: Attempt) -> bool:
        most = self.queue.max_receives
        return most is not None and attempt.delivery.attempt >= most

    def _on_lost(self, attempt: Attempt) -> None:
        self.metrics.lost.add()
        log.warning("message lost while in flight", extra={"message_id": attempt.delivery.message_id})

    def _on_settled(self, attempt: Attempt, settle: Settle, result: Settled) -> None:
        self._change.set()
        if result is not Settled.DONE:
            stale = result is Settled.STALE
            (self.metrics.settle_stale if stale else self.metrics.settle_unknown).add()
            fields = {"queue": self.queue.name, "message_id": attempt.delivery.message_id, "result": result.value}
            log.warning("message not settled; it may be delivered again", extra=fields)
        elif isinstance(settle, Ack):
            self.metrics.acked.add()
        elif isinstance(settle, NackDelivery) and not settle.charged:
            self.metrics.returned.add()
        elif self.queue.max_receives is not None and (
            isinstance(settle, DeadLetterDelivery) or self._is_last(attempt)
        ):
            self.metrics.dead.add()
        else:
            self.metrics.nacked.add()


async def _wait_for(event: asyncio.Event, at_most_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), at_most_s)


def _counts_as_failure(settle: Settle) -> bool:
    """A rejected message states its own fault, and a returned one was not tried: neither slows the worker."""
    return isinstance(settle, NackDelivery) and settle.charged
