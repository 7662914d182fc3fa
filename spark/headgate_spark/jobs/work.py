"""The processors of a batch of pending messages: the user's handler, or a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame

from headgate.client.queue import Queue
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.decide_batch import BatchDecision, BatchPlan, all_done, decide_outcomes
from headgate_spark.jobs.frames import Frames, HandlerFailed, spark_errors_as
from headgate_spark.jobs.sinks import BatchName, BatchSink, scope_us_of


def name_of(plan: BatchPlan, number: int, attempt: str) -> BatchName:
    """The name of this batch for sinks: all of it but the attempt follows from the plan."""
    return BatchName(number, attempt, scope_us_of(plan.messages, plan.span_us, len(plan.ranges)))


class BatchWork(Protocol):
    """The processor of a batch."""

    @property
    def redoes(self) -> bool:
        """Whether the next run has to finish a started batch."""
        ...

    @property
    def handles(self) -> bool:
        """Whether it passes messages to a handler: then a started batch rests until its reservation is over."""
        ...

    def clear(self) -> None:
        """Remove what attempts left that were not committed."""
        ...

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        """Process it; returns the outcome of its messages."""
        ...

    def publish(self, number: int, attempt: str) -> None:
        """It is committed."""
        ...


class HandlerWork:
    """The user's function, from a DataFrame of messages to one of outcomes."""

    redoes = False
    handles = True

    def __init__(self, frames: Frames, queue: Queue, handler: Callable[[DataFrame], DataFrame]) -> None:
        self._frames = frames
        self._queue = queue
        self._handler = handler

    def clear(self) -> None:
        """It leaves nothing."""

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        """Nothing is settled before all outcomes are known."""
        del number, attempt
        with spark_errors_as(HandlerFailed):
            reported = self._frames.reported(self._handler(self._frames.picks(plan)))
        return decide_outcomes(plan, spark_engine(self._queue).rows_by_id(plan), reported)

    def publish(self, number: int, attempt: str) -> None:
        """Nothing was kept back."""


class SinkWork:
    """A sink takes a batch whole."""

    handles = False

    def __init__(self, frames: Frames, sink: BatchSink) -> None:
        self._frames = frames
        self._sink = sink
        self.redoes = sink.redoes

    def clear(self) -> None:
        """The uncommitted parts."""
        self._sink.clear()

    def do(self, plan: BatchPlan, number: int, attempt: str) -> BatchDecision:
        """All of it is done, or it raises."""
        self._sink.write(self._frames.picks(plan), name_of(plan, number, attempt))
        return all_done(plan)

    def publish(self, number: int, attempt: str) -> None:
        """Files are moved into place."""
        self._sink.publish(number, attempt)
