"""The messages in flight in a worker: kept hidden while their handlers run, and released when they are lost.

Each beat checks all of them once and extends in one call those near half of their visibility. A handler that takes
too long, or whose message is lost, is cancelled where possible and notified otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from headgate.engines.contract import Extend, Settle, Settled
from headgate.errors import HeadgateError
from headgate.runtime.decide_beats import beat_every_s, decide_beats
from headgate.runtime.flight import Flight

log = logging.getLogger("headgate.worker")

SECOND_US = 1_000_000


class Hands:
    """Of one worker."""

    def __init__(
        self,
        settle: Callable[[Sequence[Settle]], Awaitable[list[Settled]]],
        *,
        visibility_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.visibility_s = visibility_s
        self.on_overdue: Callable[[Flight], None] | None = None
        """Called for a handler that takes too long and cannot be cancelled."""
        self.on_lost: Callable[[Flight], None] | None = None
        self._settle = settle
        self._now_s = now_s
        self._flights: dict[int, Flight] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._flights)

    def all(self) -> list[Flight]:
        """The messages in flight now."""
        return list(self._flights.values())

    def take(self, flight: Flight) -> None:
        """It is in flight from now on."""
        self._flights[id(flight)] = flight

    def let_go(self, flight: Flight) -> bool:
        """It is no longer in flight. False if it was released before."""
        return self._flights.pop(id(flight), None) is not None

    # ---- keeping them hidden

    async def keep_hidden(self) -> None:
        """Until cancelled."""
        every_s = beat_every_s(self.visibility_s)
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.beat()
            except HeadgateError as error:
                log.warning("messages in flight could not be extended", extra={"error": str(error)})

    async def beat(self) -> None:
        """One check of all of them."""
        flights = self.all()
        now_s = self._loop.time()
        beats = decide_beats(flights, now_s=now_s, visibility_s=self.visibility_s)
        for place in beats.overdue:
            flights[place].overdue = True
            self.stop(flights[place])
            if not flights[place].can_stop and self.on_overdue is not None:
                self.on_overdue(flights[place])
        for place in beats.lost:
            self._lose(flights[place])
        extended = [flights[place] for place in beats.extend]
        if extended:
            await self._extend(extended, self.visibility_s)

    async def extend(self, flight: Flight, seconds: float) -> bool:
        """Give its handler this much time from now, and hide the message at least as long."""
        if flight.is_stopped or id(flight) not in self._flights:
            return False
        if flight.deadline_s < math.inf:
            flight.deadline_s = self._loop.time() + seconds
        await self._extend([flight], max(seconds, self.visibility_s))
        return not flight.lost

    async def _extend(self, flights: list[Flight], seconds: float) -> None:
        sent_s = self._loop.time()
        visibility_us = round(seconds * SECOND_US)
        results = await self._settle([Extend(flight.delivery.receipt, visibility_us) for flight in flights])
        for flight, result in zip(flights, results, strict=True):
            if result is Settled.DONE:
                flight.until_s = max(flight.until_s, sent_s + seconds)
            elif result is Settled.STALE and id(flight) in self._flights:
                self._lose(flight)

    # ---- letting go

    def _lose(self, flight: Flight) -> None:
        flight.lost = True
        self.stop(flight)
        if self.on_lost is not None:
            self.on_lost(flight)

    def stop(self, flight: Flight) -> None:
        """Cancel its handler, or notify it. The other handlers of its batch continue."""
        if flight.context is not None:
            flight.context.tell_lost()
        task = flight.task
        if task is not None and flight.can_stop and all(each.is_stopped for each in flight.batch):
            task.cancel()

    # ---- requests of a context

    def of(self, flight: Flight) -> HandsOfOne:
        """The interface of the context of this message."""
        return HandsOfOne(self, flight, self._loop)

    def time_of_day_s(self, at_s: float) -> float:
        """A time of the event loop's clock, in seconds since 1970."""
        return self._now_s() + at_s - self._loop.time()


class HandsOfOne:
    """The interface to the messages in flight for the context of one message."""

    __slots__ = ("_flight", "_hands", "_loop")

    def __init__(self, hands: Hands, flight: Flight, loop: asyncio.AbstractEventLoop) -> None:
        self._hands = hands
        self._flight = flight
        self._loop = loop

    async def extend(self, seconds: float) -> bool:
        """On the event loop."""
        return await self._hands.extend(self._flight, seconds)

    def extend_blocking(self, seconds: float) -> bool:
        """From a thread."""
        return asyncio.run_coroutine_threadsafe(self.extend(seconds), self._loop).result()

    def deadline_s(self) -> float | None:
        """When its handler has to be done, in seconds since 1970."""
        at_s = self._flight.deadline_s
        return None if at_s == math.inf else self._hands.time_of_day_s(at_s)
