"""Bulk jobs in the simulated world: the driver's own loop, with sinks and handlers in memory in the place of Spark's.

A driver waits for each of its calls; each lets the world run until it is answered. It can be made to die before
any of them: then it asks for nothing more, and its process is killed. What tasks would do its own process does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.errors import HeadgateError
from headgate.store.catalogue.bulk_log import BulkLog
from headgate_spark.engines.contract import LIVE, HistorySplit, ReadRange, ScanRequest
from headgate_spark.engines.timeline.entry import ENGINE
from headgate_spark.engines.timeline.lanes import TimelineLending
from headgate_spark.jobs import reserving_job
from headgate_spark.jobs.decide_batch import BatchPlan, Reported
from headgate_spark.jobs.history import HistoryJob
from headgate_spark.jobs.request import JobRequest
from headgate_spark.jobs.reserving_job import ReservingJob
from headgate_spark.jobs.sinks import BatchName, BatchSink, HandlerSink
from headgate_spark.jobs.tasks import Puts, put_of
from headgate_spark.schemas import OF_JOBS
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import KEYSPACE, Program, Shop

T = TypeVar("T")

JOB = UUID(int=11)
PUT_AT_ONCE = 7
AS_TASKS = ScanRequest(LIVE, ReadRange(), OF_JOBS, 0)
"""How tasks read what was borrowed."""
Row = dict[str, Any]


class Killed(BaseException):
    """The driver is dead."""


class Driver:
    """The process of a driver, whose calls wait: in the place of a `WorkerConnection`."""

    def __init__(self, world: World, program: Program, *, dies_before: int | None = None) -> None:
        self.world = world
        self.program = program
        self.headgate = program.connection
        self.calls = 0
        self._dies_before = dies_before
        self.run(program.connection.open())
        self.calls = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, unless it is dead."""
        self.calls += 1
        if self._dies_before is not None and self.calls >= self._dies_before:
            work.close()
            with suppress(HeadgateError):
                self.program.process.kill()
            raise Killed
        return self.world.run(self._in_process(work))

    async def _in_process(self, work: Coroutine[Any, Any, T]) -> T:
        return await self.program.process.start(work)


class Messages(list[Row]):
    """In the place of a DataFrame."""

    def count(self, *_: object) -> int:  # type: ignore[override]
        """How many."""
        return len(self)

    def join(self, reasons: Mapping[str, str], on: str, how: str) -> Messages:
        """With the reasons."""
        assert (on, how) == ("id", "left")
        return Messages([{**row, "reason": reasons.get(row["id"])} for row in self])


class MemoryFrames:
    """In the place of `Frames`: what tasks would read is read by the driver's process."""

    def __init__(self, job_driver: Driver, queue: Queue) -> None:
        self._local = job_driver
        self._queue = queue

    def picks(self, plan: BatchPlan) -> Messages:
        """The messages of a batch."""
        return self._local.run(self._read(plan))

    async def _read(self, plan: BatchPlan) -> Messages:
        result = Messages()
        for one in plan.ranges:
            async for batch in ENGINE.scan.read_picked(self._queue, AS_TASKS, one.lane, one.picks):
                result += batch.to_pylist()
        return result

    def reported(self, outcomes: Sequence[tuple[str, str, str]]) -> list[Reported]:
        """Outcomes as the driver gets them."""
        message = []
        for id_, outcome, reason in outcomes:
            row, index = ENGINE.ids.split(id_)
            message.append(Reported(row, outcome, 1 << index, reason))
        return message

    def reasons(self, reasons: Mapping[bytes, str]) -> dict[str, str]:
        """By id, as texts."""
        return {ENGINE.ids.text_of(id_): reason for id_, reason in reasons.items()}


async def read_history(queue: Queue, splits: Sequence[HistorySplit]) -> Messages:
    """The messages that tasks would read from these splits."""
    result = Messages()
    for split in splits:
        async for batch in ENGINE.scan.read_history(queue, split, OF_JOBS):
            result += batch.to_pylist()
    return result


class MemoryFiles(BatchSink):
    """Files that outlive drivers: aside, and seen."""

    redoes = False

    def __init__(self) -> None:
        self.aside: dict[str, list[str]] = {}
        self.received: dict[int, list[str]] = {}
        self.job_driver: Driver | None = None

    def write(self, messages: Any, batch: BatchName) -> int:
        """Aside; the driver may die when half of it is written."""
        ids = [row["id"] for row in messages]
        self.aside[batch.attempt] = ids[: len(ids) // 2]
        self._may_die()
        self.aside[batch.attempt] = ids
        return len(ids)

    def publish(self, number: int, attempt: str) -> None:
        """Moved, if it lies aside."""
        self._may_die()
        if attempt in self.aside:
            self.received[number] = self.aside.pop(attempt)

    def clear(self) -> None:
        """Deletes everything that was not committed."""
        self.aside.clear()

    def _may_die(self) -> None:
        assert self.job_driver is not None
        self.job_driver.run(_nothing())

    @property
    def ids(self) -> list[str]:
        """The ids that a reader of the folder finds."""
        return [id_ for ids in self.received.values() for id_ in ids]


class MemoryPuts(BatchSink):
    """A queue, by the keys of `Puts`; the driver may die between any few of them."""

    redoes = True

    def __init__(self, job_driver: Driver, puts: Puts) -> None:
        self._local = job_driver
        self._puts = puts
        self._target = job_driver.run(job_driver.headgate.queue(str(puts.target)))

    def write(self, messages: Any, batch: BatchName) -> int:
        """Some at a time."""
        puts = replace(self._puts, number=batch.number, scope_us=batch.scope_us)
        rows: list[Put] = [put_of(puts, row) for row in messages]
        for first in range(0, len(rows), PUT_AT_ONCE):
            self._local.run(self._target.put_many(rows[first : first + PUT_AT_ONCE]))
        return len(rows)

    def publish(self, number: int, attempt: str) -> None:
        """It is seen."""

    def clear(self) -> None:
        """Nothing lies aside."""


async def _nothing() -> None:
    """A call at which a driver may die."""


@dataclass
class Counts:
    """In the place of `Progress`."""

    batches: list[tuple[int, int, int]] = field(default_factory=list)

    def batch(self, done: int, dead: int, returned: int, _took_s: float) -> None:
        """One more."""
        self.batches.append((done, dead, returned))


class WorldTime:
    """The module `time`, in the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        """The world's."""
        return self._world.now_s()

    def sleep(self, seconds: float) -> None:
        """The world runs."""
        self._world.run(self._world.sleep(seconds))


def job_of(
    job_driver: Driver,
    make_sink: Callable[[Driver, Queue], BatchSink],
    monkeypatch: pytest.MonkeyPatch,
    **request: Any,
) -> tuple[ReservingJob, Counts]:
    """A run on `shop/emails`, ready to begin."""
    monkeypatch.setattr(reserving_job, "time", WorldTime(job_driver.world))
    queue = job_driver.run(job_driver.headgate.queue("shop/emails"))
    frames = MemoryFrames(job_driver, queue)
    counts = Counts()
    wanted = JobRequest("shop/emails", "job", "drain", batch_messages=25, **request)
    dead = MemoryPuts(job_driver, Puts({}, "timeline", "shop/dead", JOB.hex, 0, 0, dead_of="shop/emails"))
    context = job_driver.headgate.process_context
    log = BulkLog(context.store_in(KEYSPACE), JOB, context.new_uuid)
    stands_on: dict[str, Any] = {
        "request": wanted,
        "connection": job_driver,
        "queue": queue,
        "lending": TimelineLending(queue, JOB),
        "log": log,
        "frames": frames,
        "sink": make_sink(job_driver, queue),
        "dead": dead,
        "progress": counts,
        "where": None,
        "from_us": None,
        "until_us": job_driver.headgate.now_us(),
    }
    return ReservingJob(**stands_on), counts


def history_job(
    job_driver: Driver, make_sink: Callable[[Driver], MemoryFiles | MemoryPuts], *, goes_on: bool
) -> tuple[HistoryJob, Counts]:
    """A replay, or an export, of all that `shop/emails` keeps."""
    queue = job_driver.run(job_driver.headgate.queue("shop/emails"))
    context = job_driver.headgate.process_context
    counts = Counts()
    sink = make_sink(job_driver)
    stands_on: dict[str, Any] = {
        "connection": job_driver,
        "log": BulkLog(context.store_in(KEYSPACE), JOB, context.new_uuid),
        "sink": sink,
        "progress": counts,
        "splits": lambda begin_us, end_us: list(job_driver.run(ENGINE.scan.history(queue, begin_us, end_us))),
        "messages": lambda splits: job_driver.run(read_history(queue, splits)),
        "from_us": 0,
        "until_us": job_driver.headgate.now_us(),
        "goes_on": goes_on,
    }
    return HistoryJob(**stands_on), counts


def files_work(files: MemoryFiles) -> Callable[[Driver, Queue], BatchSink]:
    """Into these files."""

    def make(job_driver: Driver, _queue: Queue) -> BatchSink:
        files.job_driver = job_driver
        return files

    return make


def queue_work(target: str) -> Callable[[Driver, Queue], BatchSink]:
    """Into this queue."""
    return lambda job_driver, _queue: MemoryPuts(job_driver, Puts({}, "timeline", target, JOB.hex, 0, 0))


def handler_work(
    handler: Callable[[Messages], list[tuple[str, str, str]]],
) -> Callable[[Driver, Queue], BatchSink]:
    """Through this handler."""
    return lambda _driver, queue: HandlerSink(queue, cast("Any", handler))


def driver(shop: Shop, name: str, *, dies_before: int | None = None) -> Driver:
    """One in a process of its own."""
    return Driver(shop.world, shop.program(name), dies_before=dies_before)
