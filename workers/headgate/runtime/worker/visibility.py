"""The messages in flight in a worker: kept hidden while their handlers run, and released when they are lost.

Each beat checks all of them once and extends in one call those near half of their visibility. A handler that takes
too long, or whose message is lost, is cancelled where possible and notified otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headgate.engines.contract import ExtendDelivery, Settle, Settled
from headgate.errors import HeadgateError
from headgate.expiry import SECOND_US
from headgate.runtime.handler.context import Attempt
from headgate.runtime.policy.decide_visibility import beat_every_s, decide_beats

log = logging.getLogger("headgate.worker")


class VisibilityKeeper:
    def __init__(
        self,
        settle: Callable[[Sequence[Settle]], Awaitable[list[Settled]]],
        *,
        visibility_s: float,
        on_overdue: Callable[[Attempt], None],
        on_lost: Callable[[Attempt], None],
        now_s: Callable[[], float],
    ) -> None:
        """`on_overdue` is called for a handler that takes too long and cannot be cancelled."""
        self.visibility_s = visibility_s
        self._on_overdue = on_overdue
        self._on_lost = on_lost
        self._settle = settle
        self._now_s = now_s
        self._attempts: dict[int, Attempt] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._attempts)

    def all(self) -> list[Attempt]:
        return list(self._attempts.values())

    def take(self, attempt: Attempt) -> None:
        self._attempts[id(attempt)] = attempt

    def let_go(self, attempt: Attempt) -> bool:
        """It is no longer in flight. False if it was released before."""
        return self._attempts.pop(id(attempt), None) is not None

    # ---- keeping them hidden

    async def keep_hidden(self) -> None:
        every_s = beat_every_s(self.visibility_s)
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.beat()
            except HeadgateError as error:
                log.warning("messages in flight could not be extended", extra={"error": str(error)})

    async def beat(self) -> None:
        attempts = self.all()
        now_s = self._loop.time()
        beats = decide_beats(attempts, now_s=now_s, visibility_s=self.visibility_s)
        for place in beats.overdue:
            attempts[place].overdue = True
            self.stop(attempts[place])
            if attempts[place].in_thread:
                self._on_overdue(attempts[place])
        for place in beats.lost:
            self._lose(attempts[place])
        extended = [attempts[place] for place in beats.extend]
        if extended:
            await self._extend(extended, self.visibility_s)

    async def extend(self, attempt: Attempt, seconds: float) -> bool:
        """Give its handler this much time from now, and hide the message at least as long."""
        if attempt.is_stopped or id(attempt) not in self._attempts:
            return False
        if attempt.deadline_s < math.inf:
            self.limit(attempt, seconds)
        await self._extend([attempt], max(seconds, self.visibility_s))
        return not attempt.lost

    async def _extend(self, attempts: list[Attempt], seconds: float) -> None:
        sent_s = self._loop.time()
        visibility_us = round(seconds * SECOND_US)
        results = await self._settle(
            [ExtendDelivery(attempt.delivery.receipt, visibility_us) for attempt in attempts]
        )
        for attempt, result in zip(attempts, results, strict=True):
            if result is Settled.DONE:
                attempt.until_s = max(attempt.until_s, sent_s + seconds)
            elif result is Settled.STALE and id(attempt) in self._attempts:
                self._lose(attempt)

    # ---- letting go

    def _lose(self, attempt: Attempt) -> None:
        attempt.lost = True
        self.stop(attempt)
        self._on_lost(attempt)

    def give_back(self) -> list[Attempt]:
        attempts = self.all()
        for attempt in attempts:
            attempt.given_back = True
        for attempt in attempts:
            self.stop(attempt)
        return attempts

    def limit(self, attempt: Attempt, seconds: float) -> None:
        attempt.deadline_s = self._loop.time() + seconds

    def stop(self, attempt: Attempt) -> None:
        """Cancel its handler, or notify it. The other handlers of its batch continue."""
        if attempt.context is not None:
            attempt.context.mark_lost()
        task = attempt.task
        if task is not None and not attempt.in_thread and all(each.is_stopped for each in attempt.batch):
            task.cancel()

    # ---- requests of a context

    def of(self, attempt: Attempt) -> AttemptControl:
        return AttemptControl(self, attempt, self._loop, self._now_s)


@dataclass(slots=True)
class AttemptControl:
    _keeper: VisibilityKeeper
    _attempt: Attempt
    _loop: asyncio.AbstractEventLoop
    _now_s: Callable[[], float]

    async def extend(self, seconds: float) -> bool:
        return await self._keeper.extend(self._attempt, seconds)

    def extend_blocking(self, seconds: float) -> bool:
        return asyncio.run_coroutine_threadsafe(self.extend(seconds), self._loop).result()

    def deadline_s(self) -> float | None:
        at_s = self._attempt.deadline_s
        return None if at_s == math.inf else self._now_s() + at_s - self._loop.time()

    def limit(self, seconds: float) -> None:
        self._keeper.limit(self._attempt, seconds)
