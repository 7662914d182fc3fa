"""bench-timeline's baseline: the loop of the queue that timeline descends from, on the bare driver.

One insert per message into (name, minute, shard), the shard being the due second modulo six; the reader takes slices
of a hundred of each shard and writes the shard's pointer after each slice. Its ancestor locked shards, which this one
does not: it has them all. Like ours it is due a second after the put, and read up to now. With that it loses messages
when writes take longer, which is counted. libev, prepared statements, LOCAL_QUORUM, the callback of one request sends
the next.
"""

# ruff: noqa: S608 - the names are our own constants; values are markers
from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from cassandra.io.libevreactor import LibevConnection
from cassandra.query import tuple_factory

from bench.contender import ClientReport, Contender, Job, Ran, percentile
from bench.store_driver import connected
from bench.timeline_work import (
    PAYLOADS,
    SECOND_US,
    STAMP_BYTES,
    TIMED_ONE_IN,
    Do,
    Work,
    stamp_of,
    stamped,
    work_of,
)
from dev.servers.cassandra.connection import Connection, read_connection
from headgate.errors import Bug
from headgate.store.model.positions import first_at, last_at, time_us_of
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type
from headgate.store.process_positions import process_positions

SHARDS = 6
SLICE = 100
LAG_US = SECOND_US
MINUTE_US = 60 * SECOND_US
TTL_S = 14 * 86_400
IDLE_S = 0.05
"""How long it pauses at an empty shard, which five of six are at any time: a twentieth of its lag."""
GONE_S = 5.0
"""When nothing has come for this time, the rest was passed before it could be read."""

MESSAGES = Table(
    "origin_work",
    "one row per message",
    partition=(Column("name", Type.TEXT), Column("minute", Type.BIGINT), Column("shard", Type.INT)),
    clustering=(Column("due", Type.TIMEUUID),),
    columns=(Column("message", Type.BLOB),),
)
POINTERS = Table(
    "origin_shards",
    "how far a shard was read",
    partition=(Column("name", Type.TEXT), Column("shard", Type.INT)),
    columns=(Column("last", Type.TIMEUUID),),
)
ORIGIN_TABLES = (MESSAGES, POINTERS)


def now_us() -> int:
    """By the machine's clock."""
    return time.time_ns() // 1000


class OriginContender(Contender):
    """One process, producer or consumer."""

    def __init__(self, connection: Connection) -> None:
        self._cluster, self._session = connected(connection, rows_as=tuple_factory)
        prepare = self._session.prepare
        work, shards = MESSAGES.name, POINTERS.name
        self.insert = prepare(
            f"INSERT INTO {work} (name, minute, shard, due, message) VALUES (?, ?, ?, ?, ?) USING TTL {TTL_S}"
        )
        self.slice = prepare(
            f"SELECT due, message FROM {work} WHERE name = ? AND minute = ? AND shard = ? AND due > ? AND due <= ?"
            f" LIMIT {SLICE}"
        )
        self.point = prepare(f"UPDATE {shards} SET last = ? WHERE name = ? AND shard = ?")
        self._run: _Run | None = None

    def prepare(self, job: Job) -> int:
        """There is nothing to prepare."""
        return 0

    def run(self, job: Job) -> Ran:
        """One window."""
        work = work_of(job)
        kind = _Consuming if work.do is Do.CONSUME else _Putting
        self._run = run = kind(self, self._session.execute_async, work)
        run.go()
        if not run.rows:
            raise Bug("the run did nothing", first_error=run.first_error or "none")
        return Ran(run.wall_s, 0 if work.baseline_name else run.rows, run.requests, run.failed)

    def report(self) -> ClientReport:
        """Percentiles."""
        run = self._run
        if run is None:
            raise Bug("the run did nothing")
        timed = [0.0] if run.work.baseline_name else run.latencies_s
        return ClientReport(percentile(timed, 0.50) * 1000, percentile(timed, 0.99) * 1000, 0)

    def close(self) -> None:
        self._cluster.shutdown()


Send = Callable[[Any, tuple[Any, ...]], Any]


class _Run:
    """The common part of both sides: counts, and the end of a run, which the last caller determines."""

    def __init__(self, contender: OriginContender, send: Send, work: Work, callers: int) -> None:
        self.contender = contender
        self.send = send
        self.work = work
        self.rows = 0
        self.requests = 0
        self.failed = 0
        self.first_error = ""
        self.latencies_s: list[float] = []
        self.wall_s = 0.0
        self.lock = threading.Lock()
        self.began = time.perf_counter()
        self._callers = callers
        self._over = threading.Event()

    def go(self) -> None:
        """Returns when every caller has ended."""
        self.began = time.perf_counter()
        for caller in range(self._callers):
            self.begin(caller)
        self._over.wait()

    def begin(self, caller: int) -> None:
        """Start one caller."""
        raise NotImplementedError

    def time_is_up(self) -> bool:
        """Whether nothing more may be started."""
        return time.perf_counter() - self.began >= self.work.seconds

    def end(self) -> None:
        """One caller has ended."""
        with self.lock:
            self._callers -= 1
            if not self._callers:
                self._over.set()

    def fail(self, error: BaseException) -> None:
        """A request was not answered."""
        with self.lock:
            self.failed += 1
            self.first_error = self.first_error or repr(error)


class _Putting(_Run):
    """A row a message."""

    def __init__(self, contender: OriginContender, send: Send, work: Work) -> None:
        super().__init__(contender, send, work, 1 if work.do is Do.PACE else work.callers)
        self._positions = process_positions()
        self._payload = itertools.cycle(PAYLOADS)
        self._begun = 0

    def begin(self, caller: int) -> None:
        if self.work.do is Do.PACE:
            threading.Thread(target=self._pace, daemon=True).start()
        else:
            self._next(caller)

    def _values(self, payload: bytes, at_us: int) -> tuple[Any, ...]:
        due_us = at_us + max(LAG_US, self.work.delay_us)
        shard = due_us // SECOND_US % SHARDS
        return self.work.queue, due_us // MINUTE_US, shard, self._positions.at(due_us), payload

    def _next(self, caller: int) -> None:
        with self.lock:
            begins = self._begun < self.work.messages_max and not self.time_is_up()
            self._begun += begins
        if not begins:
            self.wall_s = time.perf_counter() - self.began
            self.end()
            return
        values = self._values(next(self._payload), now_us())
        sent = time.perf_counter() if caller % TIMED_ONE_IN == 0 else 0.0
        self.send(self.contender.insert, values).add_callbacks(
            self._done, self._failed, callback_args=(caller, sent), errback_args=(caller,)
        )

    def _done(self, _: Any, caller: int, sent: float) -> None:
        self._count(sent)
        self._next(caller)

    def _failed(self, error: BaseException, caller: int) -> None:
        self.fail(error)
        self._next(caller)

    def _count(self, sent: float) -> None:
        with self.lock:
            self.rows += 1
            self.requests += 1
            if sent:
                self.latencies_s.append(time.perf_counter() - sent)

    def _pace(self) -> None:
        """At even intervals; overdue ones are put at once."""
        futures = []
        for number in range(self.work.messages_max):
            left_s = self.began + number / self.work.rate - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
            at_us = now_us()
            values = self._values(stamped(next(self._payload), at_us), at_us)
            future = self.send(self.contender.insert, values)
            future.add_callbacks(self._count, self.fail, callback_args=(), errback_args=())
            futures.append(future)
        for future in futures:
            future.result()
        self.wall_s = time.perf_counter() - self.began
        self.end()


class _Consuming(_Run):
    """Slices of each shard, and its pointer after each; one request of a shard is under way at a time."""

    def __init__(self, contender: OriginContender, send: Send, work: Work) -> None:
        super().__init__(contender, send, work, SHARDS)
        now = now_us()
        self._last: list[UUID] = [first_at(now - MINUTE_US)] * SHARDS
        self._minute = [(now - MINUTE_US) // MINUTE_US] * SHARDS
        self._upper: list[UUID] = [last_at(now)] * SHARDS
        self._came_s = self.began

    def begin(self, caller: int) -> None:
        self._read(caller)

    def _is_over(self) -> bool:
        now_s = time.perf_counter()
        gone = self.rows > 0 and now_s - self._came_s > GONE_S
        return self.rows >= self.work.messages_max or gone or self.time_is_up()

    def _read(self, shard: int) -> None:
        if self._is_over():
            self.wall_s = self._came_s - self.began
            self.end()
            return
        self._upper[shard] = last_at(now_us())
        values = (self.work.queue, self._minute[shard], shard, self._last[shard], self._upper[shard])
        self.send(self.contender.slice, values).add_callbacks(
            self._rows, self._failed, callback_args=(shard,), errback_args=(shard,)
        )

    def _rows(self, rows: Any, shard: int) -> None:
        matches: list[tuple[UUID, bytes]] = list(rows)
        if not matches:
            self._nothing(shard)
            return
        at_us = now_us()
        step = TIMED_ONE_IN if len(matches) > TIMED_ONE_IN else 1
        late = [(at_us - self._due_us(row)) / SECOND_US for row in matches[::step]]
        last = matches[-1][0]
        self.send(self.contender.point, (last, self.work.queue, shard)).add_callbacks(
            self._pointed, self._failed, callback_args=(shard, last, len(matches), late), errback_args=(shard,)
        )

    def _due_us(self, row: tuple[UUID, bytes]) -> int:
        """The requested time: of the put, or that many seconds after it."""
        due, message = row
        if self.work.rate:
            return stamp_of(message[:STAMP_BYTES]) + self.work.delay_us
        return time_us_of(due) - max(0, LAG_US - self.work.delay_us)

    def _pointed(self, _: Any, shard: int, last: UUID, count: int, late: list[float]) -> None:
        with self.lock:
            self.rows += count
            self.requests += 1
            self.latencies_s += late
            self._came_s = time.perf_counter()
        self._last[shard] = last
        self._read(shard)

    def _nothing(self, shard: int) -> None:
        """The next minute once this one is over, else a short wait."""
        if time_us_of(self._upper[shard]) // MINUTE_US > self._minute[shard]:
            self._minute[shard] += 1
            self._read(shard)
            return
        LibevConnection.create_timer(IDLE_S, partial(self._read, shard))

    def _failed(self, error: BaseException, shard: int) -> None:
        self.fail(error)
        self._read(shard)


def open_contender(environment: Mapping[str, str]) -> OriginContender:
    """Connected, statements prepared."""
    return OriginContender(read_connection(environment))
