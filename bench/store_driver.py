"""bench-store's baseline: the bare cassandra-driver as its documentation recommends it, and no store of ours.

libev, prepared statements, LOCAL_QUORUM, token-aware; the callback of one request sends the next. No timestamp of our
own, no attempt with an LWT: a user without our rules would write it so, and it is less work.
"""

# ruff: noqa: S608 - the names are our own constants; values are markers
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.io.libevreactor import LibevConnection
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, named_tuple_factory

from bench.contender import Tally
from bench.store_work import HOT_NAME, KEYSPACE, LOCKS, ROWS, RequestKind, StoreContender
from dev.servers.cassandra.connection import Connection, read_connection

Request = tuple[Any, tuple[Any, ...] | None, Callable[[Any], int]]
"""A statement, its values, and the function that turns its answer into the number of rows done."""


def connected(connection: Connection, rows_as: Callable[..., Any] = named_tuple_factory) -> tuple[Any, Any]:
    """A cluster and a session, as the driver's documentation recommends them.

    `rows_as` makes rows of a page: named tuples cost a new class a page, plain ones nothing.
    """
    cluster = Cluster(
        [point.host for point in connection.contact_points],
        port=connection.contact_points[0].port,
        auth_provider=PlainTextAuthProvider(connection.username, connection.password),
        connection_class=LibevConnection,
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(
                load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(connection.data_center)),
                consistency_level=ConsistencyLevel.LOCAL_QUORUM,
                serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
                row_factory=rows_as,
            )
        },
    )
    return cluster, cluster.connect(KEYSPACE)


class DriverContender(StoreContender):
    """The bare driver."""

    def __init__(self, connection: Connection) -> None:
        super().__init__("driver")
        self._cluster, self._session = connected(connection)
        prepare = self._session.prepare
        rows, locks = ROWS.name, LOCKS.name
        self._insert = prepare(f"INSERT INTO {rows} (stream, part, seq, payload) VALUES (?, ?, ?, ?)")
        self._slice = prepare(f"SELECT seq, payload FROM {rows} WHERE stream = ? AND part = ? AND seq >= ? LIMIT ?")
        self._part = prepare(f"SELECT seq, payload FROM {rows} WHERE stream = ? AND part = ?")
        self._claim = prepare(f"INSERT INTO {locks} (stream, name, payload) VALUES (?, ?, ?) IF NOT EXISTS")
        self._change = prepare(f"UPDATE {locks} SET payload = ? WHERE stream = ? AND name = ? IF payload != ?")
        self._lock = prepare(f"SELECT payload FROM {locks} WHERE stream = ? AND name = ?")
        self._lock.consistency_level = ConsistencyLevel.LOCAL_SERIAL
        self._requests: dict[RequestKind, Callable[[], Request]] = {
            RequestKind.INSERT: self._insert_request,
            RequestKind.BATCH: self._batch_request,
            RequestKind.PACKED: self._packed_request,
            RequestKind.SLICE: self._slice_request,
            RequestKind.LWT_DISTINCT: self._claim_request,
            RequestKind.LWT_HOT: self._change_request,
        }

    def drive(self, in_flight: int) -> None:
        Pump(self._session, self.tally, self._requests[self.kind], in_flight).run()

    def write_part(self, part: int, rows: list[tuple[int, bytes]]) -> None:
        self._session.execute(self._batch(part, rows))

    def read_part(self, part: int) -> dict[int, bytes]:
        return {row.seq: row.payload for row in self._session.execute(self._part, (self.stream, part))}

    def make_lock(self, name: int, payload: bytes) -> None:
        self._session.execute(self._claim, (self.stream, name, payload))

    def read_lock(self, name: int) -> bytes | None:
        row = self._session.execute(self._lock, (self.stream, name)).one()
        return None if row is None else row.payload

    def close(self) -> None:
        self._cluster.shutdown()

    def _insert_request(self) -> Request:
        part, seq, payload = self.next_insert()

        def done(_: Any) -> int:
            self.acknowledged(part, payload)
            return 1

        return self._insert, (self.stream, part, seq, payload), done

    def _batch(self, part: int, rows: list[tuple[int, bytes]]) -> BatchStatement:
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.LOCAL_QUORUM)
        for seq, payload in rows:
            batch.add(self._insert, (self.stream, part, seq, payload))
        return batch

    def _batch_request(self) -> Request:
        part, rows = self.next_part(), self.next_batch()

        def done(_: Any) -> int:
            self.acknowledged(part, len(rows))
            return len(rows)

        return self._batch(part, rows), None, done

    def _packed_request(self) -> Request:
        part, payload = self.next_part(), self.next_packed()

        def done(_: Any) -> int:
            self.acknowledged(part, payload)
            return self.rows

        return self._insert, (self.stream, part, 0, payload), done

    def _slice_request(self) -> Request:
        part, seq = self.next_slice()

        def done(rows: Any) -> int:
            return self.check_slice(len(rows), rows[0].seq, seq)

        return self._slice, (self.stream, part, seq, self.rows), done

    def _claim_request(self) -> Request:
        name, payload = self.next_part(), next(self._payload)

        def done(rows: Any) -> int:
            if not rows[0][0]:
                raise RuntimeError("an absent key was acquired")
            self.acknowledged(name, payload)
            return 1

        return self._claim, (self.stream, name, payload), done

    def _change_request(self) -> Request:
        payload = b"%d" % self.next_part()

        def done(rows: Any) -> int:
            self.acknowledged(HOT_NAME, payload)
            return int(rows[0][0])

        return self._change, (payload, self.stream, HOT_NAME, b""), done


class Pump:
    """Keeps requests in flight; the last answer wakes the caller."""

    def __init__(self, session: Any, tally: Tally, request: Callable[[], Request], in_flight: int) -> None:
        self._session = session
        self._tally = tally
        self._request = request
        self._callers = in_flight
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        """Returns when every caller has noticed that time is up."""
        for _ in range(self._callers):
            self._next()
        self._over.wait()

    def _next(self) -> None:
        with self._lock:
            begins = self._tally.may_begin()
            if begins:
                statement, values, done = self._request()
            else:
                self._callers -= 1
                if self._callers == 0:
                    self._over.set()
        if begins:
            future = self._session.execute_async(statement, values)
            future.add_callbacks(self._answered, self._failed, (time.perf_counter(), done), errback_args=())

    def _answered(self, rows: Any, sent: float, done: Callable[[Any], int]) -> None:
        with self._lock:
            try:
                self._tally.done(sent, done(rows))
            except Exception as error:
                self._tally.fail(error)
        self._next()

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self._tally.fail(error)
        self._next()


def open_contender(environment: Mapping[str, str]) -> DriverContender:
    """Connected, statements prepared."""
    return DriverContender(read_connection(environment))
