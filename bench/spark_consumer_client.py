"""The consumer of bench-spark's part `beside`: it keeps its lanes from window to window, and gets messages at a
steady rate. A message that comes a second time, or whose settle is rejected, ends the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from bench.contender import ClientReport, Contender, Job, Ran, Tally
from bench.spark_consumer_work import AT_ONCE, OFFERED_PER_S, Turn, turn_of
from bench.spark_jobs_work import DRAINED, NAMESPACE
from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.errors import Bug
from headgate_spark.process.worker_connection import WorkerConnection

QUIET_S = 3.0
REST_AT_ONCE = 1_000
WAIT_S = 5.0


class ConsumingContender(Contender):
    """One process of the SDK."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._local: WorkerConnection | None = None
        self._tally: Tally | None = None

    def prepare(self, job: Job) -> int:
        """Take the rest; returns its number."""
        return self._connection().run(_rest(self._queue(), turn_of(job)))

    def run(self, job: Job) -> Ran:
        """Take messages at the given rate."""
        self._tally = self._connection().run(_offered(self._queue(), turn_of(job)))
        return self._tally.end()

    def report(self) -> ClientReport:
        """Of the last turn."""
        if self._tally is None:
            raise Bug("nothing was consumed")
        return self._tally.summarize(self._tally.rows)

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    def _connection(self) -> WorkerConnection:
        if self._local is None:
            self._local = WorkerConnection(self._environment)
        return self._local

    def _queue(self) -> Queue:
        return self._connection().queue(f"{NAMESPACE}/{DRAINED}")


async def _offered(queue: Queue, turn: Turn) -> Tally:
    tally = Tally(turn.seconds, requests_max=10**9)
    should_begin = tally.started
    while tally.may_begin():
        await asyncio.sleep(max(0.0, should_begin - time.perf_counter()))
        given = await _settled(queue, AT_ONCE, WAIT_S)
        tally.done(should_begin, given)
        should_begin += AT_ONCE / OFFERED_PER_S
    return tally


async def _rest(queue: Queue, turn: Turn) -> int:
    taken = 0
    while given := await _settled(queue, REST_AT_ONCE, QUIET_S):
        taken += given
    if turn.leaves:
        await queue.engine.leave()
    return taken


async def _settled(queue: Queue, limit: int, wait_s: float) -> int:
    given = await queue.receive(limit, wait=wait_s)
    if any(message.attempt > 1 for message in given):
        raise Bug("a message was delivered twice")
    if any(how is not Settled.DONE for how in await queue.ack(given)):
        raise Bug("another consumer settled a message")
    return len(given)


def open_contender(environment: Mapping[str, str]) -> Contender:
    """For the client process."""
    return ConsumingContender(environment)
