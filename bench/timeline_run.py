"""One run of a client process of bench-timeline: the work, and its cost."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from bench.timeline_process import TimelineProcess
from bench.timeline_work import Work
from headgate.engines.timeline.engine import TimelineQueue


class Run(ABC):
    """Counts of a run. It ends by itself, or soon after its time."""

    def __init__(self, process: TimelineProcess) -> None:
        self.process = process
        self.on = True
        self.rows = 0
        self.requests = 0
        self.failed = 0
        self.first_error = ""
        self.latencies_s: list[float] = []
        self.ids: list[str] = []
        self.wall_s = 0.0

    @property
    def queue(self) -> TimelineQueue:
        """The queue that was opened for it."""
        return self.process.current

    async def do(self, work: Work) -> None:
        """Do it, and stop the clock when the last has ended."""
        ends = asyncio.get_running_loop().call_later(work.seconds, self._time_is_up)
        began = time.perf_counter()
        await self.work(work)
        self.wall_s = time.perf_counter() - began
        ends.cancel()

    @abstractmethod
    async def work(self, work: Work) -> None:
        """Its kind."""

    def fail(self, error: BaseException) -> None:
        """A call ended in an error."""
        self.failed += 1
        self.first_error = self.first_error or repr(error)

    def _time_is_up(self) -> None:
        self.on = False
