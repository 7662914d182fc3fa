"""The processors of a batch of pending messages: the user's handler, or a sink."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from headgate.client.queue import Queue
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.decide_batch import BatchDecision, BatchPlan, all_done, decide_outcomes
from headgate_spark.jobs.frames import Frames, HandlerFailed, spark_errors_as
from headgate_spark.jobs.sinks import BatchName, BatchSink, scope_us_of


def name_of(plan: BatchPlan, number: int, attempt: str) -> BatchName:
    """The name of this batch for sinks: all of it but the attempt follows from the plan."""
    return BatchName(number, attempt, scope_us_of(plan.messages, plan.span_us, len(plan.ranges)))


class BatchWork:
    """The processor of a batch. The defaults are for one that keeps nothing back."""

    redoes = False
    """Whether the next run has to finish a started batch."""
    handles = False
    """Whether it passes messages to a handler: then a started batch rests until its reservation is over."""

    def clear(self) -> None:
        """Remove what attempts left that were not committed."""

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        """Process it; returns the outcome of its messages."""
        raise NotImplementedError

    def publish(self, number: int, attempt: str) -> None:
        """It is committed."""


class HandlerWork(BatchWork):
    """The user's function, from a DataFrame of messages to one of outcomes."""

    handles = True

    def __init__(self, frames: Frames, queue: Queue, handler: Callable[[DataFrame], DataFrame]) -> None:
        self._frames = frames
        self._queue = queue
        self._handler = handler

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        """Nothing is settled before all outcomes are known."""
        with spark_errors_as(HandlerFailed):
            reported = self._frames.reported(self._handler(self._frames.picks(plan)))
        return decide_outcomes(plan, spark_engine(self._queue).ids, reported)


class SinkWork(BatchWork):
    """A sink takes a batch whole."""

    def __init__(self, frames: Frames, sink: BatchSink) -> None:
        self._frames = frames
        self._sink = sink
        self.redoes = sink.redoes

    def clear(self) -> None:
        self._sink.clear()

    def publish(self, number: int, attempt: str) -> None:
        self._sink.publish(number, attempt)

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        self._sink.write(self._frames.picks(plan), name_of(plan, number, attempt))
        return all_done(plan)
