"""What stands for the server of `memory://`: all queues of one address, their clock and their timers.

The clock is an argument, and waiting is asyncio's, so hours pass at once on an event loop with virtual time. Nothing
runs in the background: the first call after a time does what is due by then. Several event loops of one process
may use it (those of the blocking SDK run in threads of their own), so each step holds a lock.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from uuid import UUID

from headgate.engines.memory.lane import MemoryLane
from headgate.engines.memory.settings import SECOND_US, STALE_MIN, MemorySettings

WAIT_S_MIN, WAIT_S_MAX = 0.005, 1.0


class MemoryServer:
    """Queues, by the ids of their catalogue entries."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._clock_us = now_us
        self._now_us = 0
        self._lanes: dict[UUID, MemoryLane] = {}
        self.timers: list[tuple[int, int, MemoryLane, str]] = []
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def lane(self, settings: MemorySettings) -> MemoryLane:
        """The queue with these settings, which are in force from now on. Call it in a step."""
        lane = self._lanes.get(settings.queue)
        if lane is None:
            lane = self._lanes[settings.queue] = MemoryLane(settings, self._set_timer, self._numbers)
        lane.change(settings)
        return lane

    def now_us(self) -> int:
        """Never backwards."""
        self._now_us = max(self._now_us, self._clock_us())
        return self._now_us

    @contextmanager
    def step(self, *, changes: bool = True) -> Iterator[int]:
        """The time, and exclusive access to all queues, in which everything has happened that is due by now."""
        with self._lock:
            now_us = self.now_us()
            changes = self._run_timers(now_us) or changes
            yield now_us
        if changes:
            self._wake_receivers()

    # ---- timers

    def _set_timer(self, lane: MemoryLane, message_id: str, at_us: int) -> None:
        heapq.heappush(self.timers, (at_us, next(self._numbers), lane, message_id))

    def _run_timers(self, now_us: int) -> bool:
        """Whether there was any. A message has one valid timer; the others are dropped when their time comes, or when
        they are the most."""
        live = sum(len(lane.messages) for lane in self._lanes.values())
        if len(self.timers) > 2 * live + STALE_MIN:
            self.timers = [each for each in self.timers if each[2].is_timer_valid(each[3], each[0])]
            heapq.heapify(self.timers)
        ran = False
        while self.timers and (self.timers[0][0] <= now_us or not self._is_next_valid()):
            at_us, _, lane, message_id = heapq.heappop(self.timers)
            if lane.is_timer_valid(message_id, at_us):
                lane.wake(message_id, now_us)
                ran = True
        return ran

    def _is_next_valid(self) -> bool:
        at_us, _, lane, message_id = self.timers[0]
        return lane.is_timer_valid(message_id, at_us)

    # ---- receivers that wait

    @contextmanager
    def receiver(self) -> Iterator[asyncio.Event]:
        """An event that is set by each change, for a receiver on this event loop."""
        changed = asyncio.Event()
        self._waiting[changed] = asyncio.get_running_loop()
        try:
            yield changed
        finally:
            del self._waiting[changed]

    async def wait(self, changed: asyncio.Event, within_s: float) -> None:
        """Until it is set, or the next timer is due; no longer than that."""
        if self.timers:
            within_s = min(within_s, max((self.timers[0][0] - self._now_us) / SECOND_US, WAIT_S_MIN))
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within_s, WAIT_S_MAX)):
                await changed.wait()

    def _wake_receivers(self) -> None:
        for changed, loop in list(self._waiting.items()):
            with suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(changed.set)
