"""bench-timeline's contender: a timeline queue through its engine, as an application would use it.

Callers are tasks that await `put`; receivers await `receive` and then `settle` with an acknowledgement each. Of many
callers one in sixteen is timed. LWTs are counted: a put sends none, and a lane one a second.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Mapping, Sequence

from bench.contender import Contender, Job, Ran, Told, percentile
from bench.timeline_process import LoopThread, TimelineProcess
from bench.timeline_work import LANES, PAYLOADS, SECOND_US, TIMED_ONE_IN, Do, Work, work_of
from penstock.engines.contract import Ack, Delivery, Message, Settled
from penstock.engines.timeline.engine import TimelineQueue
from penstock.engines.timeline.layout import Place, id_bytes
from penstock.errors import Bug, PenstockError
from penstock.store.statements import Select
from penstock.store.types import Value

RECEIVE_WAIT_US = 1 * SECOND_US
RECEIPTS_MAX = 20
KEPT_IDS_MAX = 2_000
TOUCHES_A_LANE_S = 1.0


class TimelineContender(Contender):
    """One process, producer or consumer."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._thread = LoopThread()
        self._process = TimelineProcess(environment)
        self._thread.run(self._process.open())
        self._run = Run(self._process)

    def prepare(self, job: Job) -> int:
        """Open the queue of the run that follows."""
        self._thread.run(self._process.open_queue(work_of(job)))
        return 0

    def run(self, job: Job) -> Ran:
        """One window."""
        self._run = Run(self._process)
        return self._thread.run(self._run.do(work_of(job)))

    def tell(self) -> Told:
        """Percentiles, receipts checked, the queue given back."""
        told = self._thread.run(self._run.tell())
        self._thread.run(self._process.close_queue())
        return told

    def close(self) -> None:
        self._thread.run(self._process.close())
        self._thread.stop()


class Run:
    """One run, and what is known of it afterwards."""

    def __init__(self, process: TimelineProcess) -> None:
        self._process = process
        self._on = True
        self._rows = 0
        self._requests = 0
        self._failed = 0
        self._first_error = ""
        self._begun = 0
        self._latencies_s: list[float] = []
        self._ids: list[str] = []
        self._payload = itertools.cycle(PAYLOADS)
        self._lwts = 0
        self._wall_s = 0.0
        self._work: Work | None = None

    @property
    def _queue(self) -> TimelineQueue:
        if self._process.queue is None:
            raise Bug("a run without a queue")
        return self._process.queue

    async def do(self, work: Work) -> Ran:
        """Do it, and stop the clock when the last has ended."""
        self._work = work
        lwts = self._process.lwt_count()
        callers = {Do.PUT: self._put, Do.CONSUME: self._consume, Do.PACE: self._pace}[work.do]
        ends = asyncio.get_running_loop().call_later(work.seconds, self._time_is_up)
        began = time.perf_counter()
        await callers(work)
        self._wall_s = time.perf_counter() - began
        ends.cancel()
        self._lwts = self._process.lwt_count() - lwts
        if self._failed and not self._rows:
            raise Bug("nothing was done", first_error=self._first_error)
        rows = 0 if work.do is not Do.CONSUME and work.messages_max < 2**40 else self._rows
        return Ran(self._wall_s, rows, self._requests, self._failed)

    def _time_is_up(self) -> None:
        self._on = False

    # ---- putting

    async def _put(self, work: Work) -> None:
        one = self._put_singly if work.batch == 1 else self._put_batches
        await asyncio.gather(*(one(work, number % TIMED_ONE_IN == 0) for number in range(work.callers)))

    async def _put_singly(self, work: Work, timed: bool) -> None:
        put, payload, delay_us = self._queue.put, self._payload, work.delay_us
        each = work.messages_max // work.callers
        done = 0
        while self._on and done < each:
            sent = time.perf_counter() if timed else 0.0
            due_us = None if not delay_us else self._process.clock.now_us() + delay_us
            try:
                ids = await put([Message(next(payload), due_us)])
            except PenstockError as error:
                self._fail(error)
                continue
            done += 1
            if timed:
                self._timed(sent, ids)
        self._rows += done
        self._requests += done

    async def _put_batches(self, work: Work, timed: bool) -> None:
        put, payload, delay_us = self._queue.put, self._payload, work.delay_us
        each = work.messages_max // work.callers
        done = 0
        while self._on and done < each:
            sent = time.perf_counter()
            due_us = None if not delay_us else self._process.clock.now_us() + delay_us
            try:
                ids = await put([Message(each, due_us) for each in itertools.islice(payload, work.batch)])
            except PenstockError as error:
                self._fail(error)
                continue
            done += len(ids)
            self._requests += 1
            self._timed(sent, ids)
        self._rows += done

    def _timed(self, sent: float, ids: Sequence[str]) -> None:
        self._latencies_s.append(time.perf_counter() - sent)
        if len(self._ids) < KEPT_IDS_MAX:
            self._ids += ids

    def _fail(self, error: PenstockError) -> None:
        self._failed += 1
        self._first_error = self._first_error or repr(error)

    async def _pace(self, work: Work) -> None:
        """Put singly, at even distances; what comes late is put at once, so the rate is kept."""
        began = time.perf_counter()
        waiting: set[asyncio.Task[None]] = set()
        for number in range(min(work.messages_max, int(work.rate * work.seconds))):
            left_s = began + number / work.rate - time.perf_counter()
            if left_s > 0:
                await asyncio.sleep(left_s)
            task = asyncio.get_running_loop().create_task(self._put_one(work))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        if waiting:
            await asyncio.wait(waiting)

    async def _put_one(self, work: Work) -> None:
        due_us = None if not work.delay_us else self._process.clock.now_us() + work.delay_us
        sent = time.perf_counter()
        try:
            ids = await self._queue.put([Message(next(self._payload), due_us)])
        except PenstockError as error:
            self._fail(error)
            return
        self._rows += 1
        self._requests += 1
        self._timed(sent, ids)

    # ---- receiving

    async def _consume(self, work: Work) -> None:
        await asyncio.gather(*(self._receive_and_ack(work) for _ in range(work.callers)))

    async def _receive_and_ack(self, work: Work) -> None:
        queue, now_us = self._queue, self._process.clock.now_us
        while self._on and self._rows < work.messages_max:
            given = await queue.receive(work.batch, wait_us=RECEIVE_WAIT_US)
            if not given:
                continue
            now = now_us()
            self._late(given, now)
            settled = await queue.settle([Ack(each.receipt) for each in given])
            done = settled.count(Settled.DONE)
            self._rows += done
            self._requests += 1
            self._failed += done < len(given)

    def _late(self, given: Sequence[Delivery], now_us: int) -> None:
        """How long after its due moment each came; of many, one in sixteen."""
        step = TIMED_ONE_IN if len(given) > TIMED_ONE_IN else 1
        self._latencies_s += [(now_us - each.due_us) / SECOND_US for each in given[::step]]

    # ---- afterwards

    async def tell(self) -> Told:
        """What can be found out without a hurry."""
        work = self._work
        if work is None:
            raise Bug("nothing was run")
        self._check_lwts(work)
        checked = await self._check_ids()
        if work.do is not Do.CONSUME and work.messages_max < 2**40:
            return Told(0.0, 0.0, checked)
        return Told(percentile(self._latencies_s, 0.50) * 1000, percentile(self._latencies_s, 0.99) * 1000, checked)

    def _check_lwts(self, work: Work) -> None:
        allowed = 0 if work.do is not Do.CONSUME else LANES * (2 + int(self._wall_s / TOUCHES_A_LANE_S))
        if self._lwts > allowed:
            raise Bug("more lightweight transactions than were promised", sent=self._lwts, allowed=allowed)

    async def _check_ids(self) -> int:
        """A sample of what was acknowledged is looked for at its place."""
        sample = random.sample(self._ids, min(RECEIPTS_MAX, len(self._ids)))
        settings = self._queue.settings
        for message_id in sample:
            row = Place.from_bytes(id_bytes(message_id)).row
            key: dict[str, Value] = {
                "queue": settings.queue,
                "generation": row.generation,
                "part": row.part(settings.part_us),
                "sub": row.sub,
                "shard": row.shard,
                "due": row.due,
            }
            table = settings.tables.later if row.lies_later else settings.tables.work
            rows = await self._process.store.read(Select(table, key, ("run",)))
            if not rows or rows[0].run is None:
                raise Bug("what was acknowledged is not there", message_id=message_id)
        return len(sample)


def open_contender(environment: Mapping[str, str]) -> TimelineContender:
    """Connected."""
    return TimelineContender(environment)
