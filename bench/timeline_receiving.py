"""The receiving side of bench-timeline's contender: receivers that await `receive`, then settle each with an
acknowledgement of its own; and the reader of a lane by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.timeline_process import TimelineProcess
from bench.timeline_run import Run
from bench.timeline_work import LANES, SECOND_US, TIMED_ONE_IN, Do, Work, stamp_of
from headgate.engines.contract import Ack, Delivery, Settled
from headgate.engines.timeline.read.source import TimelineSource
from headgate.errors import Bug, Unavailable

RECEIVE_WAIT_US = SECOND_US
SLICE_BYTES = 256 * 1024
HOLD_LANES_S = 30.0
LATENCIES_MAX = 65_536
"""More are not kept: the memory of the process is measured as well. No window has as many."""


class Receiving(Run):
    """One run of a consumer."""

    def __init__(self, process: TimelineProcess) -> None:
        super().__init__(process)
        self._given = 0

    async def work(self, work: Work) -> None:
        if work.do is Do.SLICES:
            await self._read_slices(work)
        else:
            await asyncio.gather(*(self._receive_and_ack(work) for _ in range(work.callers)))

    async def _receive_and_ack(self, work: Work) -> None:
        queue, clock = self.queue, self.process.clock
        while self.on and self.rows < work.messages_max:
            asked = time.perf_counter()
            try:
                given = await queue.receive(work.batch, visibility_us=work.visibility_us, wait_us=RECEIVE_WAIT_US)
                if not given:
                    continue
                if work.do is Do.DRAIN:
                    self.latencies_s.append(time.perf_counter() - asked)
                else:
                    self._late(given, clock.now_us(), work)
                if work.slow_one_in:
                    given = self._handled(given, work.slow_one_in)
                settled = await queue.settle([Ack(each.receipt) for each in given])
            except Unavailable as error:  # the clock after a pause of the machine; then they come again
                self.fail(error)
                continue
            done = settled.count(Settled.DONE)
            self.rows += done
            self.requests += 1
            self.failed += done < len(given)

    def _late(self, given: Sequence[Delivery], now_us: int, work: Work) -> None:
        """The lateness of each after its due time; of many, one in sixteen. A stamped one contains the time of its
        put call, so waiting for a flush counts as late, too."""
        if len(self.latencies_s) >= LATENCIES_MAX:
            return
        step = TIMED_ONE_IN if len(given) > TIMED_ONE_IN else 1
        for each in given[::step]:
            due_us = stamp_of(each.payload) + work.delay_us if work.rate else each.due_us
            self.latencies_s.append((now_us - due_us) / SECOND_US)

    def _handled(self, given: Sequence[Delivery], slow_one_in: int) -> list[Delivery]:
        """Those whose handlers have returned. The others run for longer than the window lasts, and are settled by
        nobody here."""
        numbers = range(self._given + 1, self._given + len(given) + 1)
        self._given += len(given)
        return [each for number, each in zip(numbers, given, strict=True) if number % slow_one_in]

    async def _read_slices(self, work: Work) -> None:
        """From the position of each lane in turn, one slice at a time."""
        await self._hold_all_lanes()
        for _ in range(work.batch):
            for dispatcher in list(self.queue.lanes.held.values()):
                source = dispatcher.source
                if not isinstance(source, TimelineSource):
                    raise Bug("a lane of a timeline queue has another source", source=type(source).__name__)
                began = time.perf_counter()
                result = await source.reading.read(dispatcher.position.last, bytes_max=SLICE_BYTES)
                self.latencies_s.append(time.perf_counter() - began)
                self.rows += sum(row.count for row in result.rows)
                self.requests += 1

    async def _hold_all_lanes(self) -> None:
        until = time.monotonic() + HOLD_LANES_S
        self.queue.lanes.want(LANES)
        while len(self.queue.lanes.held) < LANES:
            if time.monotonic() > until:
                raise Bug("the lanes could not be acquired", held=len(self.queue.lanes.held))
            await asyncio.sleep(0.05)
