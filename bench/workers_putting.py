"""The putting side of bench-workers: an application with the SDK, a thousand callers that put one message each."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping

import headgate
from bench.contender import ClientReport, Contender, Job, Ran, percentile
from bench.timeline_process import LoopThread
from bench.timeline_work import PAYLOADS, TIMED_ONE_IN
from bench.workers_work import Work, work_of
from headgate.client.connection import Headgate
from headgate.client.queue import Queue
from headgate.errors import Bug, HeadgateError


class PuttingContender(Contender):
    """One process with one connection. Its work counts at the handler, so it reports no rows."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._thread = LoopThread()
        self._environment = environment
        self._connection: Headgate | None = None
        self._queue: Queue | None = None
        self._putting: _Putting | None = None

    def prepare(self, job: Job) -> int:
        """Open the queue of the run that follows."""
        self._thread.run(self._open(work_of(job).queue))
        return 0

    def run(self, job: Job) -> Ran:
        """One window."""
        if self._queue is None:
            raise Bug("a run without a queue")
        self._putting = putting = _Putting(self._queue, work_of(job))
        wall_s = self._thread.run(putting.run())
        if putting.done < putting.work.messages:
            raise Bug(
                "some messages were not put",
                done=putting.done,
                first_error=putting.first_error or "time limit reached",
            )
        return Ran(wall_s, 0, putting.done, putting.failed)

    def report(self) -> ClientReport:
        """There are no later results: the worker's side counts the messages."""
        return ClientReport(0.0, percentile(self._putting.latencies_s, 0.99) * 1000 if self._putting else 0.0, 0)

    def close(self) -> None:
        if self._connection is not None:
            self._thread.run(self._connection.close())
        self._thread.stop()

    async def _open(self, queue: str) -> None:
        if self._connection is None:
            self._connection = headgate.connect(self._environment)
            await self._connection.open()
        self._queue = await self._connection.queue(queue)


class _Putting:
    """One run."""

    def __init__(self, queue: Queue, work: Work) -> None:
        self.work = work
        self.done = 0
        self.failed = 0
        self.first_error = ""
        self.latencies_s: list[float] = []
        self._queue = queue
        self._payload = itertools.cycle(PAYLOADS)
        self._until_s = 0.0

    async def run(self) -> float:
        """All callers; how long that took."""
        began_s = time.perf_counter()
        self._until_s = began_s + self.work.seconds
        await asyncio.gather(*(self._call(number % TIMED_ONE_IN == 0) for number in range(self.work.callers)))
        return time.perf_counter() - began_s

    async def _call(self, timed: bool) -> None:
        put, payload = self._queue.put, self._payload
        wanted, done = self.work.messages // self.work.callers, 0
        while done < wanted:
            sent_s = time.perf_counter() if timed else 0.0
            try:
                await put(next(payload))
            except HeadgateError as error:
                self.failed += 1
                self.first_error = self.first_error or repr(error)
                if time.perf_counter() > self._until_s:
                    return
                continue
            done += 1
            if timed:
                self.latencies_s.append(time.perf_counter() - sent_s)
        self.done += done


def open_contender(environment: Mapping[str, str]) -> PuttingContender:
    """Not connected yet: the queues are created first."""
    return PuttingContender(environment)
