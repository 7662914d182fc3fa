"""The real store: statements as values, run on Cassandra through its driver.

This module sends a statement once and reports its outcome; all retries are in `Store`. Each shape is prepared once.
Its values are encoded by `cassandra_binding`, and answers come back as named tuples.

    store = await CassandraStore.connect(read_settings(os.environ))
    await store.write(Insert(table, {...}, timestamp_us=now_us))
    await store.close()

One store belongs to one process and one event loop, and raises an error when it is used elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.process.background_tasks import SharedWork
from headgate.store.cassandra import binding
from headgate.store.cassandra.admission import Admission
from headgate.store.cassandra.binding import Encoded, Plan
from headgate.store.cassandra.errors import of_prepare, too_large, translate
from headgate.store.cassandra.session import ResultPage, Session, boottime_s, open_session, reuse_session
from headgate.store.cassandra.settings import ConnectionSettings
from headgate.store.model.consistency import Consistency
from headgate.store.model.cql import Markers
from headgate.store.model.metrics import ShapeMetrics, StoreMetrics
from headgate.store.model.rows import Row, rows_of
from headgate.store.model.shapes import StatementShape
from headgate.store.model.statements import (
    Batch,
    BatchIf,
    Conditional,
    Decision,
    Insert,
    Plain,
    RowsOf,
    Scan,
    Select,
    Statement,
    Write,
    attempt_bearers,
)
from headgate.store.model.wire_rows import WiredRows
from headgate.store.store import AttemptAnswer, Overloaded, Store

REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The server's default for a mutation and for a message: a larger one would only break the connection."""

_ENOUGH_FOR_FRAMES = 1024


@dataclass(frozen=True)
class Coordinator:
    """A node of the home data centre."""

    address: str
    data_center: str
    rack: str
    up: bool


@dataclass(frozen=True, slots=True)
class _Request:
    """Ready to be sent."""

    query: Any
    size: int
    metrics: ShapeMetrics
    statements: int = 0


class CassandraStore(Store):
    """Runs statements on Cassandra, in one keyspace."""

    def __init__(self, session: Session, settings: ConnectionSettings, keyspace: str) -> None:
        self.settings = settings
        self.keyspace = keyspace
        self.metrics = StoreMetrics()
        self._session = session
        self._admission = Admission()
        self._plans: defaultdict[Markers, dict[StatementShape, Plan]] = defaultdict(dict)
        self._preparing = SharedWork[tuple[StatementShape, Markers], Plan]("preparation of a statement")
        self._kinds: dict[type, Callable[[Any, float], Awaitable[_Request]]] = {
            Batch: self._bind_batch,
            RowsOf: self._bind_rows,
            BatchIf: self._bind_batch_if,
            Select: self._bind_select,
        }

    @classmethod
    async def connect(
        cls,
        settings: ConnectionSettings,
        *,
        keyspace: str | None = None,
        must_exist: bool = True,
        driver_session: Any = None,
    ) -> CassandraStore:
        """Connect to the cluster; statements go to `keyspace`, else to the one of the settings. With a driver session
        of the application that one is used, and stays open."""
        wanted = keyspace or settings.keyspace
        existing = wanted if must_exist else None
        if driver_session is not None:
            return cls(reuse_session(driver_session, settings, existing), settings, wanted)
        return cls(await open_session(settings, existing), settings, wanted)

    def in_keyspace(self, keyspace: str) -> CassandraStore:
        """The same connections, for tables of another keyspace; closing one closes both."""
        other = CassandraStore(self._session, self.settings, keyspace)
        other._admission = self._admission
        other.metrics = self.metrics
        return other

    def monotonic_s(self) -> float:
        """Time since boot."""
        return boottime_s()

    async def pause(self, seconds: float) -> None:
        """Wait, in real time."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close connections and threads; requests in flight end as Unknown."""
        await self._session.close()

    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        """Send it once, and report its outcome."""
        self._session.require_usable()
        deadline = boottime_s() + within_s
        request = await self._bind(statement, within_s)
        answer = await self._send(statement, request, deadline - boottime_s())
        if isinstance(statement, Select):
            return AttemptAnswer(rows_of(statement.shape.result_names, answer.rows))
        if answer.names and answer.names[0] == "[applied]":
            return _decided(answer)
        return AttemptAnswer()

    async def read_together(self, selects: Sequence[Select], *, within_s: float | None = None) -> Sequence[Row]:
        """In one request, where they are whole partitions of one shape: its coordinator reads them side by side."""
        first = selects[0]
        alike = all(each.shape is first.shape and each.consistency is first.consistency for each in selects)
        if len(selects) < 2 or not alike or not first.shape.is_of_plain_partitions:
            return await super().read_together(selects, within_s=within_s)
        return await self._tried_again(lambda left_s: self._attempt_together(selects, left_s), within_s)

    async def _attempt_together(self, selects: Sequence[Select], within_s: float) -> Sequence[Row]:
        self._session.require_usable()
        deadline = boottime_s() + within_s
        first = selects[0]
        plan = await self._plan(first.shape, Markers(partitions=len(selects)), "select", within_s, first)
        encoded = [value for each in selects for value in binding.encode_select(plan, each)]
        level = binding.read_level(first.shape.table, first.consistency)
        request = _Request(binding.bound(plan, encoded, level), _size(encoded), plan.metrics)
        answer = await self._send(first, request, deadline - boottime_s())
        return rows_of(first.shape.result_names, answer.rows)

    async def read_wired(self, select: Select, *, within_s: float | None = None) -> WiredRows:
        """As the server sent them: the driver leaves them alone."""
        return await self._tried_again(lambda left_s: self._attempt_wired(select, left_s), within_s)

    async def _attempt_wired(self, select: Select, within_s: float) -> WiredRows:
        self._session.require_usable()
        deadline = boottime_s() + within_s
        request = await self._bind_select(select, within_s, decoded=False)
        answer = await self._send(select, request, deadline - boottime_s())
        wired: WiredRows = answer.rows
        return wired

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Keys between two tokens, page by page; a page that fails is requested again."""
        self._session.require_usable()
        plan = await self._tried_again(lambda left_s: self._plan(scan.shape, Markers(), "scan", left_s), None)
        level = binding.read_level(scan.shape.table, scan.consistency)
        page: bytes | None = None
        while True:
            query = binding.bound(plan, binding.encode_scan(scan), level, page=scan.page_rows)
            request = _Request(query, _ENOUGH_FOR_FRAMES, plan.metrics)
            answer = await self._tried_again(lambda left_s: self._send(scan, request, left_s, page), None)  # noqa: B023 - awaited here
            for row in rows_of(scan.shape.columns, answer.rows):
                yield row
            page = answer.page
            if page is None:
                return

    async def cql(
        self,
        text: str,
        values: Sequence[Any] = (),
        *,
        within_s: float = 30.0,
        consistency: Consistency = Consistency.LOCAL_QUORUM,
        at: Coordinator | None = None,
    ) -> list[Row]:
        """Run other CQL than our statements: schema, system tables, a query to one coordinator. Sent once.

        `values` replace the %s of the text. A schema change returns when the nodes agree, or the time is up.
        """
        self._session.require_usable()
        host = None if at is None else self._host(at.address)
        try:
            answer = await self._session.run(
                text, tuple(values), within_s, level=binding.LEVELS[consistency], at=host
            )
        except Exception as error:
            raise translate(error, " ".join(text.split())[:80]) from error
        return rows_of(answer.names, answer.rows)

    def coordinators(self) -> tuple[Coordinator, ...]:
        """The nodes of the home data centre, by address."""
        home = self._session.policy.data_center
        hosts = (host for host in self._session.cluster.metadata.all_hosts() if host.datacenter == home)
        coordinators = (
            Coordinator(host.address, host.datacenter, host.rack, host.is_up is not False) for host in hosts
        )
        return tuple(sorted(coordinators, key=lambda coordinator: coordinator.address))

    def exclude(self, addresses: frozenset[str]) -> None:
        """Use these nodes as coordinators for nothing (rule R1: a clock that is off), and all others again."""
        self._session.policy.exclude(addresses)

    @property
    def data_center(self) -> str:
        """The home data centre."""
        return self._session.policy.data_center or ""

    def _host(self, address: str) -> Any:
        for host in self._session.cluster.metadata.all_hosts():
            if host.address == address:
                return host
        raise Overloaded("The node no longer exists", address=address)

    async def _send(
        self, statement: Statement, request: _Request, within_s: float, page: bytes | None = None
    ) -> ResultPage:
        if request.size > REQUEST_BYTES_MAX:
            raise too_large(f"{request.size} bytes", statement)
        began_s = time.perf_counter()
        if within_s <= 0 or not await self._admission.enter(request.size, within_s):
            request.metrics.failed(time.perf_counter() - began_s, "Overloaded")
            raise Overloaded("Too many requests are in flight from this process", in_flight=self._admission.requests)
        left_s = within_s - (time.perf_counter() - began_s)
        try:
            answer = await self._session.send(request.query, max(left_s, 0.001), page)
        except Exception as error:
            translated = translate(error, statement)
            request.metrics.failed(time.perf_counter() - began_s, type(translated).__name__)
            raise translated from error
        finally:
            self._admission.leave(request.size)
        request.metrics.took(time.perf_counter() - began_s, request.statements or len(answer.rows))
        return answer

    async def _bind(self, statement: Write | Decision | Select, within_s: float) -> _Request:
        bind = self._kinds.get(type(statement))
        if bind is not None:
            return await bind(statement, within_s)
        encode = binding.ENCODERS.get(type(statement).__name__)
        if encode is None:
            return await self._bind_lwt(statement, within_s)  # type: ignore[arg-type]  # the rest is conditional
        return await self._bind_plain(statement, encode, within_s)  # type: ignore[arg-type]

    async def _bind_plain(
        self, statement: Plain, encode: Callable[[Plan, Any], Encoded], within_s: float
    ) -> _Request:
        kind = type(statement).__name__.lower()
        plan = await self._plan(statement.shape, binding.plain_markers(statement), kind, within_s, statement)
        encoded = encode(plan, statement)
        query = binding.bound(plan, encoded, binding.LEVELS[statement.consistency])
        return _Request(query, _size(encoded), plan.metrics)

    async def _bind_select(self, select: Select, within_s: float, *, decoded: bool = True) -> _Request:
        plan = await self._plan(select.shape, Markers(), "select", within_s, select)
        level = binding.read_level(select.shape.table, select.consistency)
        encoded = binding.encode_select(plan, select)
        return _Request(binding.bound(plan, encoded, level, decoded=decoded), _size(encoded), plan.metrics)

    async def _bind_lwt(self, statement: Conditional, within_s: float) -> _Request:
        plan = await self._plan(statement.shape, binding.lwt_markers(statement, True), "lwt", within_s, statement)
        table = statement.shape.table
        encoded = binding.encode_lwt(plan, statement, True)
        level, serial = binding.COMMIT_LEVELS[table.serial], binding.SERIAL_LEVELS[table.serial]
        return _Request(binding.bound(plan, encoded, level, serial=serial), _size(encoded), plan.metrics)

    async def _bind_batch(self, batch: Batch, within_s: float) -> _Request:
        wiring = binding.Wiring()
        plan: Plan | None = None
        shape: StatementShape | None = None
        marked: Markers | None = None
        for statement in batch.statements:
            markers = binding.plain_markers(statement)
            if plan is None or statement.shape is not shape or markers is not marked:
                shape, marked, kind = statement.shape, markers, type(statement).__name__.lower()
                plan = await self._plan(shape, markers, kind, within_s, batch)
            if type(statement) is Insert:
                wiring.add_insert(plan, statement)
            else:
                wiring.add(plan, binding.ENCODERS[type(statement).__name__](plan, statement))
        how = binding.LOGGED if batch.logged else binding.UNLOGGED
        query = binding.batch(how, wiring, binding.LEVELS[batch.consistency])
        table = batch.statements[0].shape.table.name
        metrics = self.metrics.of("logged batch" if batch.logged else "batch", table)
        return _Request(query, wiring.size, metrics, len(wiring.wired))

    async def _bind_rows(self, rows: RowsOf, within_s: float) -> _Request:
        markers = binding.PLAIN if rows.stamps[0][1] is None else binding.PLAIN_TTL
        plan = await self._plan(rows.shape, markers, "insert", within_s, rows)
        wiring = binding.Wiring()
        wiring.add_rows(plan, rows)
        query = binding.batch(binding.UNLOGGED, wiring, binding.LEVELS[rows.consistency])
        metrics = self.metrics.of("batch", rows.shape.table.name)
        return _Request(query, wiring.size, metrics, len(wiring.wired))

    async def _bind_batch_if(self, batch: BatchIf, within_s: float) -> _Request:
        wiring = binding.Wiring()
        for statement, bears in zip(batch.statements, attempt_bearers(batch), strict=True):
            plan = await self._plan(statement.shape, binding.lwt_markers(statement, bears), "lwt", within_s, batch)
            wiring.add(plan, binding.encode_lwt(plan, statement, bears))
        table = batch.statements[0].shape.table
        level, serial = binding.COMMIT_LEVELS[table.serial], binding.SERIAL_LEVELS[table.serial]
        query = binding.batch(binding.UNLOGGED, wiring, level, serial=serial)
        return _Request(query, wiring.size, self.metrics.of("lwt batch", table.name), len(wiring.wired))

    async def _plan(
        self, shape: StatementShape, markers: Markers, kind: str, within_s: float, about: Statement | None = None
    ) -> Plan:
        """The prepared shape; concurrent callers wait for the same preparation."""
        plan = self._plans[markers].get(shape)
        if plan is not None:
            return plan
        try:
            return await self._preparing.run((shape, markers), lambda: self._prepare(shape, markers, kind, within_s))
        except Exception as error:
            raise of_prepare(error, about if about is not None else shape.table.name) from error

    async def _prepare(self, shape: StatementShape, markers: Markers, kind: str, within_s: float) -> Plan:
        text = binding.cql_of(self.keyspace, shape, markers)
        prepared = await self._session.prepare(text, within_s)
        detail = ",".join(shape.value_names)
        plan = binding.plan_of(shape, prepared, self.metrics.of(kind, shape.table.name, detail))
        self._plans[markers][shape] = plan
        return plan


def _decided(answer: ResultPage) -> AttemptAnswer:
    """An LWT's answer: whether it was applied, else the rows that it met; a missing row has no columns."""
    if answer.rows and answer.rows[0][0]:
        return AttemptAnswer()
    names = answer.names[1:]
    rows = rows_of(names, [row[1:] for row in answer.rows]) if names else []
    return AttemptAnswer(rows, applied=False)


def _size(encoded: Encoded) -> int:
    return sum([len(value) + 4 for value in encoded if value is not None])


__all__ = ["CassandraStore", "Coordinator"]
