"""The planning side of bench-spark: a driver's work before its first task, repeated."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from uuid import UUID

from bench.contender import ClientReport, Contender, Job, Ran, Tally
from bench.spark_planning_work import NAMESPACE, PART_S, PUT_A_PART, WAITING, Planning, What, planning_of
from bench.timeline_work import PAYLOADS
from headgate.client.queue import Queue
from headgate.errors import Bug
from headgate_spark.engines.contract import LIVE, Budget, LaneReservations, ReadRange, ScanRequest
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.request import BATCH_MESSAGES
from headgate_spark.jobs.reserving_job import LANE_BYTES_MAX, LANE_ROWS_MAX
from headgate_spark.options import MESSAGES_PER_SPLIT
from headgate_spark.process.worker_connection import WorkerConnection

DUE_S = 1.5
QUIET_S = 3.0
"""Without a message for this time, all are settled."""
REQUEST = ScanRequest(LIVE, ReadRange(), ("payload",), MESSAGES_PER_SPLIT)
BUDGET = Budget(BATCH_MESSAGES, LANE_BYTES_MAX, LANE_ROWS_MAX)
JOB = UUID(int=1)


class PlanningContender(Contender):
    """One driver's process, without Spark."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._local = WorkerConnection(dict(environment))
        self._tally: Tally | None = None

    def prepare(self, job: Job) -> int:
        """History, one part after the other, all settled; or the backlog."""
        planning = planning_of(job)
        queue = self._queue(planning)
        if planning.history_parts:
            return self._local.run(_history(queue, planning.history_parts))
        self._local.run(queue.put_many(list(itertools.islice(itertools.cycle(PAYLOADS), WAITING))))
        time.sleep(DUE_S)
        self._local.run(_check(queue))
        return WAITING

    def run(self, job: Job) -> Ran:
        """Plan repeatedly until time is up; each plan covers the whole backlog."""
        planning = planning_of(job)
        self._tally = self._local.run(_plans(self._queue(planning), planning))
        return self._tally.end()

    def report(self) -> ClientReport:
        """The content of a plan was checked when its messages were put."""
        if self._tally is None:
            raise Bug("nothing was planned")
        return self._tally.summarize(self._tally.rows)

    def close(self) -> None:
        self._local.close()

    def _queue(self, planning: Planning) -> Queue:
        return self._local.queue(f"{NAMESPACE}/{planning.queue}")


async def _history(queue: Queue, parts: int) -> int:
    for _ in range(parts):
        began_s = time.perf_counter()
        await queue.put_many(list(itertools.islice(itertools.cycle(PAYLOADS), PUT_A_PART)))
        await asyncio.sleep(max(0.0, PART_S - (time.perf_counter() - began_s)))
    settled = 0
    while given := await queue.receive(1_000, wait=QUIET_S):
        await queue.ack(given)
        settled += len(given)
    await queue.engine.leave()
    if settled != parts * PUT_A_PART:
        raise Bug("part of the history was not settled", queue=queue.name, settled=settled)
    return settled


async def _plans(queue: Queue, planning: Planning) -> Tally:
    tally = Tally(planning.seconds, requests_max=10**9)
    while tally.may_begin():
        sent_s = time.perf_counter()
        planned = await (_splits(queue) if planning.what is What.READ else _batch(queue))
        tally.done(sent_s, 1)
        if not planned:
            raise Bug("the plan is empty", queue=queue.name, what=planning.what.value)
    return tally


async def _splits(queue: Queue) -> int:
    return len(await spark_engine(queue).scan.plan(queue, REQUEST))


async def _batch(queue: Queue) -> int:
    """The search of a drain for its first batch, up to the reservation."""
    lending: LaneReservations = spark_engine(queue).reservations(queue, JOB)
    lanes = await lending.lanes(from_us=None, until_us=queue.now_us())
    observed = await asyncio.gather(*(lane.preview(BUDGET) for lane in lanes))
    return sum(preview.messages for preview in observed if preview is not None)


async def _check(queue: Queue) -> None:
    """Both plans cover the backlog, and nothing that was settled."""
    read = 0
    for split in await spark_engine(queue).scan.plan(queue, REQUEST):
        async for rows in spark_engine(queue).scan.read(queue, REQUEST, split):
            read += rows.num_rows
    batch = await _batch(queue)
    if (read, batch) != (WAITING, WAITING):
        raise Bug("the plan differs from the backlog", queue=queue.name, read=read, batch=batch)


def open_contender(environment: Mapping[str, str]) -> Contender:
    """For the client process."""
    return PlanningContender(environment)
