"""bench-timeline's contender of the part lanes: a process that holds empty lanes, and receives from them.

The requests of a window are its statements. Its first time is that from the first receive until it held all lanes,
its second one the longest turn of the event loop, in CPU time: a busy machine lengthens no turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from bench.contender import ClientReport, Contender, Job, Ran
from bench.timeline_process import LoopThread, TimelineProcess
from bench.timeline_work import SECOND_US, WORKERS_VISIBILITY_US, Work, work_of
from headgate.errors import Bug

TAKE_WITHIN_S = 90.0
SETTLE_S = 8.0
TICK_S = 0.005
RECEIVE_WAIT_US = 5 * SECOND_US


class HoldingContender(Contender):
    """One process with this many lanes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._thread = LoopThread()
        self._process = TimelineProcess(environment)
        self._thread.run(self._process.open())
        self._receiving: asyncio.Task[None] | None = None
        self._taken_s = 0.0
        self._longest_turn_s = 0.0

    def prepare(self, job: Job) -> int:
        """Take all lanes."""
        work = work_of(job)
        self._thread.run(self._process.open_queue(work))
        self._thread.run(self._take(work))
        return 0

    def run(self, job: Job) -> Ran:
        """Hold them for this long."""
        work = work_of(job)
        before = self._process.statement_count()
        began = time.perf_counter()
        self._longest_turn_s = self._thread.run(self._watch_turns(work.seconds))
        sent = self._process.statement_count() - before
        held = len(self._process.current.lanes.held)
        if held != work.lanes:
            raise Bug("lanes were lost", held=held, of=work.lanes)
        return Ran(time.perf_counter() - began, sent, sent, 0)

    def report(self) -> ClientReport:
        """Both times; nothing was put, so no receipt is checked."""
        self._thread.run(self._release())
        return ClientReport(self._taken_s * 1000, self._longest_turn_s * 1000, 0)

    def close(self) -> None:
        self._thread.run(self._release())
        self._thread.run(self._process.close())
        self._thread.stop()

    async def _take(self, work: Work) -> None:
        began = time.perf_counter()
        self._receiving = asyncio.get_running_loop().create_task(self._receive())
        async with asyncio.timeout(TAKE_WITHIN_S):
            while len(self._process.current.lanes.held) < work.lanes:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0.01)
        self._taken_s = time.perf_counter() - began
        await asyncio.sleep(SETTLE_S)

    async def _receive(self) -> None:
        while True:
            await self._process.current.receive(100, visibility_us=WORKERS_VISIBILITY_US, wait_us=RECEIVE_WAIT_US)

    async def _release(self) -> None:
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.cancel()
        await self._process.close_queue()

    @staticmethod
    async def _watch_turns(seconds: float) -> float:
        """The most CPU time of this thread between two ticks: no turn was longer."""
        until, longest_s = time.perf_counter() + seconds, 0.0
        while time.perf_counter() < until:
            before_s = time.thread_time()
            await asyncio.sleep(TICK_S)
            longest_s = max(longest_s, time.thread_time() - before_s)
        return longest_s


def open_contender(environment: Mapping[str, str]) -> Contender:
    """A process with its connection, without lanes."""
    return HoldingContender(environment)
