"""bench-counters' contender: a counter through the SDK. After each run a fresh handle reads the counter, which has to
include every acknowledged increment.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.contender import ClientReport, Contender, Job, Ran, percentile
from bench.counters_sdk import connected, opened
from bench.counters_work import OLD_US, SLICE_KEY, SLICE_ROWS, CounterWork, Do, settings_of
from bench.timeline_process import LoopThread, TimelineProcess
from headgate.client.counter import Counter
from headgate.counters.collect.collector import Collector, PassReport
from headgate.counters.counter import CounterHandle
from headgate.engines.context import Host
from headgate.errors import Bug
from headgate.store.cassandra.node_queries import CassandraHintWindows
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.statements import Select
from headgate.store.store import AttemptAnswer, OutcomeUnknown

TIMED_EVERY = 50
"""One of this many updates of a caller is timed: timing costs as much as a part of the update."""


class CountersContender(Contender):
    """One process with a counter."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._thread = LoopThread()
        self._process = TimelineProcess(environment)
        self._thread.run(self._process.open())
        self._connection = self._thread.run(connected(self._process))
        self._handle: CounterHandle | None = None
        self._work: CounterWork | None = None
        self._latencies_s: list[float] = []
        self._acknowledged = 0
        self._report = PassReport()
        self._peak_mb = 0.0
        self._names: list[str] = []
        self._is_over = False

    def prepare(self, job: Job) -> int:
        """The counter to read or collect."""
        return self._thread.run(self._prepare(CounterWork.of(job)))

    def run(self, job: Job) -> Ran:
        """One window."""
        return self._thread.run(self._run(CounterWork.of(job)))

    def report(self) -> ClientReport:
        """Percentiles; the count is the value that a fresh handle reads. `receipts_checked` is the error of the
        counts, and of a collection the peak of its additional memory, in KB."""
        return self._thread.run(self._collect_report())

    def close(self) -> None:
        """Let go of everything."""
        self._thread.run(self._connection.close())
        self._thread.run(self._process.close())
        self._thread.stop()

    # ---- data to read or collect

    async def _prepare(self, work: CounterWork) -> int:
        settings = settings_of(work.counter)
        if work.do is Do.READ:
            for _ in range(SLICE_ROWS):
                await CounterHandle(self._process.host, settings).add(SLICE_KEY, 1)
            return SLICE_ROWS
        if work.do is Do.COLLECT:
            for ago_us in OLD_US:
                old = CounterHandle(self._host_of(ago_us), settings)
                for first in range(0, work.keys, 10_000):
                    keys = range(first, min(first + 10_000, work.keys))
                    await asyncio.gather(*(old.add(f"k{number}", 1) for number in keys))
            return 2 * work.keys
        return 0

    def _host_of(self, ago_us: int) -> Host:
        now_us = self._process.clock.require
        return replace(self._process.host, now_us=lambda: now_us() - ago_us)

    # ---- the run

    async def _run(self, work: CounterWork) -> Ran:
        self._work = work
        self._latencies_s, self._acknowledged = [], 0
        self._names = [f"k{number}" for number in range(work.keys)]
        host = self._process.host
        if work.ambiguous:
            host = replace(host, store=Ambiguous(self._process.store, work.ambiguous))
        self._handle = CounterHandle(host, settings_of(work.counter))
        counter = opened(self._connection, self._handle)
        began_s = time.perf_counter()
        if work.do is Do.COLLECT:
            rows = await self._collect(work)
        else:
            self._is_over = False
            asyncio.get_running_loop().call_later(work.seconds, self._end)
            one = self._count if work.do is Do.COUNT else self._read
            await asyncio.gather(*(one(counter, work) for _ in range(work.in_flight)))
            rows = self._acknowledged
        return Ran(time.perf_counter() - began_s, rows, rows, 0)

    def _end(self) -> None:
        self._is_over = True

    async def _count(self, counter: Counter, work: CounterWork) -> None:
        """A caller: one update after the other."""
        names, count = self._names, work.keys
        rng = random.Random(random.getrandbits(64)).random
        add, clock = counter.add, time.perf_counter
        most = -(-work.updates_max // work.in_flight)
        done = 0
        while done < most and not self._is_over:
            if done % TIMED_EVERY:
                await add(names[int(rng() * count)], 1)
            else:
                began_s = clock()
                await add(names[int(rng() * count)], 1)
                self._latencies_s.append(clock() - began_s)
            done += 1
        self._acknowledged += done

    async def _read(self, counter: Counter, work: CounterWork) -> None:
        done = 0
        while not self._is_over:
            began_s = time.perf_counter()
            if await counter.value(SLICE_KEY) != SLICE_ROWS:
                raise Bug("a value differs from the count")
            self._latencies_s.append(time.perf_counter() - began_s)
            done += 1
        self._acknowledged += done

    async def _collect(self, work: CounterWork) -> int:
        before_mb = _memory_mb("VmRSS")
        _reset_peak()
        hints = CassandraHintWindows(self._process.store)
        handle = self._current
        self._report = await Collector(self._process.host, handle.live, handle.kind, hints).run()
        self._peak_mb = _memory_mb("VmHWM") - before_mb
        if not self._report.full or self._report.collected != 2 * work.keys:
            raise Bug("a pass did not collect everything", report=self._report)
        return work.keys

    # ---- after it

    @property
    def _current(self) -> CounterHandle:
        if self._handle is None:
            raise Bug("the run did nothing")
        return self._handle

    async def _collect_report(self) -> ClientReport:
        work, timed = self._work, self._latencies_s or [0.0]
        if work is None:
            raise Bug("the run did nothing")
        checked = 0
        if work.do is Do.COUNT:
            await self._current.close()
            fresh = CounterHandle(self._process.host, settings_of(work.counter))
            counted = sum([state async for _, state in fresh.scan()])
            checked = abs(counted - self._acknowledged)
            if checked:
                raise Bug("a counter is wrong", error=checked, acknowledged=self._acknowledged)
        elif work.do is Do.COLLECT:
            checked = max(1, round(self._peak_mb * 1024))
        return ClientReport(percentile(timed, 0.50) * 1000, percentile(timed, 0.99) * 1000, checked)


class Ambiguous(CassandraStore):
    """A store that loses the answers of some writes, and of half of these the requests as well."""

    def __init__(self, store: CassandraStore, share: float) -> None:
        self.__dict__.update(store.__dict__)
        self._share = share
        self._rng = random.Random(uuid.uuid4().int)

    async def attempt(self, statement: object, within_s: float) -> AttemptAnswer:
        """Sent, or not, and answered, or not."""
        drawn = 1.0 if isinstance(statement, Select) else self._rng.random()
        if drawn < self._share / 2:
            raise OutcomeUnknown("the request was lost")
        answer = await super().attempt(statement, within_s)  # type: ignore[arg-type]
        if drawn < self._share:
            raise OutcomeUnknown("the answer was lost")
        return answer


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _memory_mb(which: str) -> float:
    """Of this process: VmRSS is now, VmHWM the most since it was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1024
    raise Bug("the system does not report memory", which=which)


def open_contender(environment: Mapping[str, str]) -> CountersContender:
    """Connected."""
    return CountersContender(environment)
