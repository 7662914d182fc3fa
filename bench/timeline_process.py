"""A process that works on timeline queues: a loop in a thread of its own, a store, a clock, and the current queue.

The loop runs between the runs too, as in a real process: the clock turns, leases are renewed. Knowledge of the
catalogue is renewed every few seconds, as by a read of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from bench.timeline_work import Work, settings_of
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.errors import Bug, Unavailable
from headgate.process.event_loop import new_loop
from headgate.store.model.statements import BatchIf, Decision, InsertIfAbsent, Select, UpdateIf, Write
from headgate.store.store import AttemptAnswer
from tests.kit.process import connected

T = TypeVar("T")

REPORT_EVERY_S = 10.0


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TimelineProcess:
    """Store, clock and the current queue of one process. All its methods run in its loop."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._stack = AsyncExitStack()
        self._teller: asyncio.Task[None] | None = None
        self._queue: TimelineQueue | None = None
        self._lwts = 0
        self._statements = 0

    @property
    def current(self) -> TimelineQueue:
        """The queue that is open."""
        if self._queue is None:
            raise Bug("a run without a queue")
        return self._queue

    async def open(self) -> None:
        """Connect."""
        real = await self._stack.enter_async_context(connected(self._environment, name="bench"))
        self.store, self.clock, self.host = real.store, real.clock, real.host
        attempt = self.store.attempt

        async def counted(statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
            self._statements += 1
            self._lwts += isinstance(statement, InsertIfAbsent | UpdateIf | BatchIf)
            return await attempt(statement, within_s)

        self.store.attempt = counted  # type: ignore[method-assign]

    async def open_queue(self, work: Work) -> TimelineQueue:
        """The queue of a run, with its lanes created; the one before is closed, unless it is the same."""
        settings = settings_of(work)
        if self._queue is not None and self._queue.settings.queue == settings.queue:
            return self._queue
        await self.close_queue()
        self._queue = TimelineQueue(self.host, settings, read_us=self.clock.require())
        await make_lanes(self.host, settings, settings.generations[0])
        self._teller = asyncio.get_running_loop().create_task(self._collect_report(self._queue))
        return self._queue

    async def close_queue(self) -> None:
        """Write pending messages, release the lanes."""
        queue, self._queue = self._queue, None
        if self._teller is not None:
            self._teller.cancel()
            self._teller = None
        if queue is not None:
            await queue.close()

    async def close(self) -> None:
        """Let go of everything."""
        await self.close_queue()
        await self._stack.aclose()

    def lwt_count(self) -> int:
        """How many lightweight transactions this process has sent."""
        return self._lwts

    def statement_count(self) -> int:
        """How many statements this process has sent."""
        return self._statements

    async def _collect_report(self, queue: TimelineQueue) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            with suppress(Unavailable):  # the clock after a pause of the machine: later
                queue.settings_changed(queue.settings, read_us=self.clock.require())
