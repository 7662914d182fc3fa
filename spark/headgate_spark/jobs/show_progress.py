"""How far a job is: a line on a terminal, the row that the operator shows in `status.bulk`, metrics.

No safety depends on it: a figure that could not be written is written with the next batch.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO
from uuid import UUID

from headgate.engines.summary.pass_results import BULK_RUNS, BulkResult, write_pass_result
from headgate.errors import HeadgateError
from headgate.telemetry.graphite import Graphite, read_graphite
from headgate.telemetry.metrics import Registry
from headgate_spark.process.worker_connection import WorkerConnection

LINE_EVERY_S = 10.0
BAR = 24


class JobProgress:
    """Of one run."""

    def __init__(self, connection: WorkerConnection, job: UUID, title: str, stream: TextIO | None = None) -> None:
        self.done = 0
        """Settled: messages that succeeded, and messages that went to the dead-letter queue."""
        self.dead = 0
        self.returned = 0
        self.registry = Registry()
        self._connection = connection
        self._job = job
        self._title = title
        self._total = 0
        self._stream = stream or sys.stderr
        self._began_s = time.monotonic()
        self._line_s = 0.0
        self._messages = self.registry.counter(
            "headgate_bulk_messages", "Messages processed by bulk jobs.", "job", "outcome"
        )
        self._batch_s = self.registry.histogram("headgate_bulk_batch_seconds", "Duration of a batch.", "job")
        wanted = read_graphite(connection.environment)
        self._graphite = None if wanted is None else Graphite(wanted, self.registry)

    def begin(self, total: int) -> None:
        self._total = total

    def batch(self, done: int, dead: int, returned: int, took_s: float) -> None:
        self.done += done + dead
        self.dead += dead
        self.returned += returned
        for outcome, count in (("done", done), ("dead", dead), ("returned", returned)):
            self._messages.of(self._title, outcome).add(count)
        self._batch_s.of(self._title).observe(took_s)
        self.report(BULK_RUNS)
        self.show()

    def show(self, *, last: bool = False) -> None:
        """A bar that is written over on a terminal; elsewhere a line now and then."""
        now_s = time.monotonic()
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{self.line()}" + ("\n" if last else ""))
        elif last or now_s - self._line_s >= LINE_EVERY_S:
            self._stream.write(self.line() + "\n")
        else:
            return
        self._line_s = now_s
        self._stream.flush()

    def line(self) -> str:
        taken = self.done + self.returned
        rate = taken / max(0.001, time.monotonic() - self._began_s)
        bar = ""
        if self._total:
            share = min(1.0, taken / self._total)
            bar = f"[{'#' * round(share * BAR):<{BAR}}] {share:4.0%} "
        facts = [f"{self.done:,} done", f"{rate:,.0f}/s"]
        if self.dead:
            facts.insert(1, f"{self.dead:,} of them dead letters")
        if self.returned:
            facts.insert(1, f"{self.returned:,} left in the queue")
        return f"{self._title} {bar}{', '.join(facts)}"

    def warn(self, message: str) -> None:
        """The cause of a delay, for users and for the operator."""
        self._stream.write(f"{self._title}: {message}\n")
        self._stream.flush()
        self.report(message)

    def report(self, message: str) -> None:
        """Where the operator reads it, and to Graphite on request."""
        if self._graphite is not None:
            self._connection.run(self._graphite.ship())
        job_context = self._connection.headgate.process_context
        result = BulkResult(self._connection.headgate.now_us(), message, problems=self.returned, keys=self.done)
        try:
            self._connection.run(write_pass_result(job_context.store_in(job_context.keyspace), self._job, result))
        except HeadgateError as error:
            self._stream.write(f"the figures of the job could not be written: {error}\n")
