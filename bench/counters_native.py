"""bench-counters' baselines on the bare driver: native counter columns, and a bare slice of rows.

An application that counts with counter columns and gets no answer to an increment has two ways, and both are wrong:
to send it again, which may count it twice, or not to, which may lose it. This one sends it again, once.
"""

# ruff: noqa: S608 - the names are our own constants; values are markers
from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from bench.contender import ClientReport, Contender, Job, Ran, Tally
from bench.counters_work import NATIVE_TABLE, SLICE_KEY, CounterWork, Do, settings_of
from bench.store_driver import Pump, Request, connected
from dev.servers.cassandra.connection import read_connection
from headgate.counters.model.decide_shards import bucket_of
from headgate.counters.model.tables import shared_tables
from headgate.errors import Bug


class NativeContender(Contender):
    """Counter columns by the bare driver."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._cluster, self._session = connected(read_connection(environment))
        self._session.execute(f"CREATE TABLE IF NOT EXISTS {NATIVE_TABLE} (key text PRIMARY KEY, n counter)")
        self._add = self._session.prepare(f"UPDATE {NATIVE_TABLE} SET n = n + 1 WHERE key = ?")
        self._get = self._session.prepare(f"SELECT n FROM {NATIVE_TABLE} WHERE key = ?")
        shards = shared_tables().shards.name
        self._slice = self._session.prepare(
            f"SELECT mutator, state FROM {shards} WHERE counter = ? AND bucket = ? AND key = ?"
        )
        self._rng = random.Random(1)
        self._work: CounterWork | None = None
        self._tally = Tally(0, 0)
        self._wanted = 0

    def prepare(self, job: Job) -> int:
        """Nothing: keys begin at nothing, and their names are the run's own."""
        return 0

    def run(self, job: Job) -> Ran:
        """One window."""
        self._work = work = CounterWork.of(job)
        self._tally = Tally(work.seconds, work.updates_max)
        self._wanted = 0
        requests = {Do.COUNT: self._count, Do.READ: self._read}
        Pump(self._session, self._tally, requests[work.do], work.in_flight).run()
        if not self._tally.rows:
            raise Bug("the run did nothing", first_error=self._tally.first_error or "none")
        return self._tally.end()

    def report(self) -> ClientReport:
        """Percentiles; and how many increments more or less than were wanted the columns hold."""
        work = self._current
        error = 0
        if work.ambiguous:
            result = sum(self._value(self._key(number)) for number in range(work.keys))
            error = abs(result - self._wanted)
        return self._tally.summarize(error)

    def close(self) -> None:
        """Let go of connections."""
        self._cluster.shutdown()

    @property
    def _current(self) -> CounterWork:
        if self._work is None:
            raise Bug("the run did nothing")
        return self._work

    def _key(self, number: int) -> str:
        return f"{self._current.counter}/{number}"

    def _value(self, key: str) -> int:
        row = self._session.execute(self._get, (key,)).one()
        return 0 if row is None else int(row.n)

    def _count(self) -> Request:
        work = self._current
        key = self._key(self._rng.randrange(work.keys))
        self._wanted += 1
        if work.ambiguous and self._rng.random() < work.ambiguous and self._rng.random() < 0.5:
            # It was done, and its answer was lost; of the other half the request was lost. Either is sent again.
            self._session.execute_async(self._add, (key,))
        return self._add, (key,), _one

    def _read(self) -> Request:
        work = self._current
        values = (work.counter, bucket_of(SLICE_KEY, settings_of(work.counter).buckets), SLICE_KEY)
        return self._slice, values, lambda rows: 1 if len(rows) else 0


def _one(_: Any) -> int:
    return 1


def open_contender(environment: Mapping[str, str]) -> NativeContender:
    """Connected, statements prepared."""
    return NativeContender(environment)
