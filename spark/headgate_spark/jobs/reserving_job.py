"""Jobs that take the backlog: drain, move, redrive. One batch after the other, each by the same steps:

    reserve ranges -> fix the batch -> record it (planned) -> process it -> record the outcome (committed)
        -> dead letters -> settle -> release -> record the end (idle)

docs/internals/protocols/spark.md, "A batch", argues why a driver that is killed between two of these loses nothing,
and which steps may run twice. This file is the driver's loop; a `BatchSink` processes a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import functions as f

from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.engines.lanes.reservation_by_job import RangeTaken, ReservationNotGranted, ReservationOver
from headgate.errors import HeadgateError, OperationRefused, Unavailable
from headgate.store.catalogue.bulk_log import BulkLog, BulkRow, JobTakenOver, Stage
from headgate.store.clock.clock import ClockNotTrusted
from headgate_spark.engines.contract import Budget, LaneReservations, RangePlan, ReservableLane
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.decide_batch import (
    BatchDecision,
    BatchPlan,
    decide_outcomes,
    masked,
    pause_s,
    without_dead,
)
from headgate_spark.jobs.frames import Frames, PredicateFailed, spark_errors_as
from headgate_spark.jobs.plan_bytes import (
    Committed,
    decode_committed,
    decode_plan,
    encode_committed,
    encode_plan,
)
from headgate_spark.jobs.request import JobRequest
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.jobs.sinks import BatchSink, QueueSink, name_of
from headgate_spark.process.worker_connection import WorkerConnection

T = TypeVar("T")

LANE_BYTES_MAX = 64 * 1024 * 1024
LANE_ROWS_MAX = 50_000
REDO_LEFT_US = 20_000_000
"""The time that has to be left of a reservation for its batch to be resumed."""
RESTS = "rests"
"""The key in the row for the lanes that a killed handler may still use, and until when."""
REST_US = 3_000_000
"""How long a lane is skipped of which another job has a range."""
TRUSTED_WITHIN_S = 30.0
"""How long a run waits for its clock; then it ends with the reason."""
SETTLE_TRIES = 20
SETTLE_PAUSE_S = 1.0
PACED_S = 5.0
"""With a rate, a batch takes about this time."""


class WindowOver(OperationRefused):
    """The batch that was started cannot be finished without doubling messages: it is older than onceWindow."""


class RangeNotSettled(Unavailable):
    """The result of a batch could not be settled; the next run resumes self."""


@dataclass
class ReservingJob:
    """One run, on the resources that run.py opens."""

    request: JobRequest
    connection: WorkerConnection
    queue: Queue
    lending: LaneReservations
    log: BulkLog
    frames: Frames
    sink: BatchSink
    dead: QueueSink | None
    progress: JobProgress
    where: str | None
    from_us: int | None
    until_us: int
    _rests: dict[str, int] = field(init=False, default_factory=dict)
    """Lanes that are left alone, and until when."""
    _held: dict[str, RangePlan] = field(init=False, default_factory=dict)
    """The reserved ranges outside any batch that the next run would finish."""

    def run(self) -> None:
        """Finish a batch that was started, then drain the snapshot. Any end releases the held ranges."""
        try:
            self._run()
        except JobTakenOver:
            raise  # the reserved ranges are the other run's by now
        except BaseException:
            self._give_back(BatchPlan(tuple(self._held.values())))
            raise

    def _run(self) -> None:
        row = self.connection.run(self.log.take())
        row = self._resumed(row)
        lanes = list(self.connection.run(self.lending.lanes(from_us=self.from_us, until_us=self.until_us)))
        began_s, taken = time.monotonic(), 0
        while lanes:
            batch_s = time.monotonic()
            plan, lanes = self._reserve_batch(lanes)
            if not plan.messages:
                if lanes:
                    time.sleep(1.0)
                continue
            row, decided = self._batch(row, plan)
            self.progress.batch(*decided.counts, time.monotonic() - batch_s)
            taken += plan.messages
            time.sleep(pause_s(taken, self.request.rate, time.monotonic() - began_s))

    # ---- reserving

    def _reserve_batch(self, lanes: Sequence[ReservableLane]) -> tuple[BatchPlan, list[ReservableLane]]:
        """The next batch, and the lanes that may have more."""
        wanted = self.request.batch_messages
        if self.request.rate is not None:
            wanted = min(wanted, max(1, int(self.request.rate * PACED_S)))
        budget = Budget(max(1, wanted // len(lanes)), LANE_BYTES_MAX, LANE_ROWS_MAX)
        deadline_us = self.connection.headgate.now_us() + round(self.request.reservation_s * 1_000_000)
        reservations = self.connection.run(_all([partial(self._next, lane, budget, deadline_us) for lane in lanes]))
        left = [lane for lane, (more, _) in zip(lanes, reservations, strict=True) if more]
        ranges = tuple(one for _, one in reservations if one is not None)
        return self._chosen(BatchPlan(ranges, self.connection.headgate.now_us())), left

    async def _next(self, lane: ReservableLane, budget: Budget, deadline_us: int) -> tuple[bool, RangePlan | None]:
        """Whether the lane may have more, and the range reserved of self. A lane that another job processes comes
        later, and so does one that this process cannot promise now, because it was paused or its clock needs a new
        comparison."""
        clock = self.connection.headgate.process_context.clock
        now_us = await clock.until_trusted(TRUSTED_WITHIN_S, self.queue.engine.settings.skew_us)
        if self._rests.get(lane.name, 0) > now_us:
            return True, None
        before = lane.cursor
        try:
            preview = await lane.preview(budget)
            if preview is None:
                return False, None
            plan = await lane.reserve(preview, deadline_us)
        except (RangeTaken, ReservationNotGranted, ReservationOver, ClockNotTrusted):
            lane.cursor = before
            self._rests[lane.name] = now_us + REST_US
            return True, None
        if not plan.picks:
            await lane.give_back(plan)
            return True, None
        self._held[lane.name] = plan
        return True, plan

    def _chosen(self, plan: BatchPlan) -> BatchPlan:
        """Those for which the predicate is true; it is evaluated once, so that a batch is the same at every
        attempt."""
        if self.where is None or not plan.messages:
            return plan
        named = self.frames.picks(plan).where(self.where)
        with spark_errors_as(PredicateFailed, where=self.request.where or ""):
            reported = self.frames.reported(named.select("id", f.lit("done").alias("outcome")))
        chosen = decide_outcomes(plan, spark_engine(self.queue).ids, reported)
        kept = masked(plan, chosen.done)
        empty = [one for one, less in zip(plan.ranges, kept.ranges, strict=True) if not less.picks]
        self._give_back(BatchPlan(tuple(empty)))
        return BatchPlan(tuple(one for one in kept.ranges if one.picks), plan.planned_us)

    # ---- a batch

    def _batch(self, row: BulkRow, plan: BatchPlan) -> tuple[BulkRow, BatchDecision]:
        row = self.connection.run(self.log.plan(row, encode_plan(plan)))
        if self.sink.redoes:
            self._held.clear()
        return self._worked(row, plan)

    def _worked(self, row: BulkRow, plan: BatchPlan) -> tuple[BulkRow, BatchDecision]:
        attempt = f"{row.number}-{row.driver}"
        try:
            decided = self.sink.do(self.frames, plan, name_of(plan, row.number, attempt))
        except BaseException:
            self._drop(row)
            raise
        if self.dead is None and decided.dead:
            decided = without_dead(decided)
        settled = {
            spot: decided.done.get(spot, 0) | decided.dead.get(spot, 0) for spot in {*decided.done, *decided.dead}
        }
        committed = Committed(masked(plan, settled), masked(plan, decided.dead), decided.reasons, attempt)
        row = self.connection.run(self.log.commit(row, encode_committed(committed)))
        self._held.clear()
        return self._finished(row, committed), decided

    def _drop(self, row: BulkRow) -> None:
        """It failed: the consumers get it again at once; if parts may be in a sink already, the next run finishes
        self."""
        if self.sink.redoes:
            return
        try:
            self.connection.run(self.log.finish(row, row.memo))
        except HeadgateError:
            return  # the next run finds it planned, and drops it

    def _finished(self, row: BulkRow, committed: Committed) -> BulkRow:
        self.sink.publish(row.number, committed.attempt)
        if committed.dead.messages and self.dead is not None:
            dead = self.frames.picks(committed.dead)
            reasons = self.frames.reasons(dict(committed.reasons))
            self.dead.write(dead.join(reasons, "id", "left"), name_of(committed.dead, row.number, committed.attempt))
        for one in committed.settled.ranges:
            self._settle(one)
        self._give_back(committed.settled)
        row = self.connection.run(self.log.finish(row, row.memo))
        self._pass_over(committed.settled)
        return row

    def _pass_over(self, plan: BatchPlan) -> None:
        """Otherwise each batch would read lanes without an owner from the same position again. A failure of this step
        does no harm."""
        try:
            self.connection.run(_all_over(self.lending, [one.lane for one in plan.ranges]))
        except Unavailable:
            return

    def _settle(self, plan: RangePlan) -> None:
        """Within the reservation; where that is over, the messages that are still live, by a reservation of its
        own."""
        if not plan.picks:
            return
        for _ in range(SETTLE_TRIES):
            now_us = self.connection.headgate.now_us()
            try:
                if now_us < plan.deadline_us:
                    lane = self.connection.run(self.lending.lane(plan.lane))
                    how = self.connection.run(lane.settle(plan, plan.masks))
                else:
                    deadline_us = now_us + round(self.request.reservation_s * 1_000_000)
                    how = self.connection.run(self.lending.settle_again(plan, plan.masks, deadline_us))
            except (RangeTaken, ReservationNotGranted, ReservationOver, ClockNotTrusted):
                how = Settled.UNKNOWN
            if how is Settled.DONE:
                return
            time.sleep(SETTLE_PAUSE_S)
        raise RangeNotSettled(lane=plan.lane, messages=plan.messages, remedy="run the job again")

    def _give_back(self, plan: BatchPlan) -> None:
        """A range that is not released ends at its deadline."""
        for one in plan.ranges:
            self._held.pop(one.lane, None)
            try:
                lane = self.connection.run(self.lending.lane(one.lane))
                self.connection.run(lane.give_back(one))
            except Unavailable:
                continue

    # ---- resuming an earlier run

    def _resumed(self, row: BulkRow) -> BulkRow:
        if row.stage is Stage.COMMITTED:
            return self._finished_of_earlier(row)
        self.sink.clear()
        now_us = self.connection.headgate.now_us()
        self._rests = {lane: until_us for lane, until_us in row.memo.get(RESTS, {}).items() if until_us > now_us}
        if row.stage is Stage.IDLE:
            return row
        plan = decode_plan(row.plan)
        if self.sink.redoes:
            self._require_window(plan, now_us)
            return self._worked(row, plan)[0]
        if self.sink.handles and not self.request.resume_at_once:
            self._rests |= {one.lane: one.deadline_us for one in plan.ranges}
        elif plan.deadline_us - now_us > REDO_LEFT_US and not self.sink.handles:
            return self._worked(row, plan)[0]
        return self.connection.run(self.log.finish(row, {**row.memo, RESTS: self._rests}))

    def _finished_of_earlier(self, row: BulkRow) -> BulkRow:
        committed = decode_committed(row.plan)
        row = self._finished(row, committed)
        self.sink.clear()
        counts = (committed.settled.messages - committed.dead.messages, committed.dead.messages, 0)
        self.progress.batch(*counts, 0.0)
        return row

    def _require_window(self, plan: BatchPlan, now_us: int) -> None:
        window_us = self.queue.engine.settings.once_window_us
        if now_us - plan.planned_us >= window_us:
            raise WindowOver(
                begun_us=plan.planned_us,
                window_s=window_us // 1_000_000,
                remedy="run `headgate bulk forget` to drop that batch; its messages may then be put twice",
            )


async def _all(works: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """All of them; the first error when all have ended, so that the reserved ranges are known."""
    ended = await asyncio.gather(*(work() for work in works), return_exceptions=True)
    results: list[T] = []
    for one in ended:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


async def _all_over(lending: LaneReservations, lanes: Sequence[str]) -> None:
    await asyncio.gather(*[(await lending.lane(name)).pass_over() for name in lanes])
