"""The real store: statements as values, run on Cassandra through its driver.

This module sends a statement once and reports its outcome; all retries are in `Store`. Each shape is prepared once.
Its values are encoded by `binding`, and answers come back as named tuples.

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

from cassandra.query import SimpleStatement

from headgate.process.background_tasks import SharedWork
from headgate.store.cassandra import binding
from headgate.store.cassandra.binding import Plan, Request, Wiring
from headgate.store.cassandra.errors import of_prepare, too_large, translate
from headgate.store.cassandra.session import ResultPage, Session, boottime_s, open_session, reuse_session
from headgate.store.cassandra.settings import ConnectionSettings
from headgate.store.model.consistency import Consistency
from headgate.store.model.cql import Markers
from headgate.store.model.rows import Row, WiredRows, rows_of
from headgate.store.model.shapes import StatementShape
from headgate.store.model.statements import (
    Batch,
    BatchIf,
    Conditional,
    Decision,
    Delete,
    Insert,
    InsertIfAbsent,
    Plain,
    RowsOf,
    Scan,
    Select,
    Statement,
    Update,
    UpdateIf,
    Write,
    attempt_bearers,
)
from headgate.store.store import AttemptAnswer, Overloaded, Store

REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The server's default for a mutation and for a message: a larger one would only break the connection."""


@dataclass(frozen=True)
class Coordinator:
    """A node of the home data centre."""

    address: str
    data_center: str
    rack: str
    up: bool


_Bind = Callable[[Any, float], Awaitable[Request]]


class CassandraStore(Store):
    """Runs statements on Cassandra, in one keyspace."""

    def __init__(self, session: Session, settings: ConnectionSettings, keyspace: str) -> None:
        self.settings = settings
        self.keyspace = keyspace
        self._session = session
        self._plans: defaultdict[Markers, dict[StatementShape, Plan]] = defaultdict(dict)
        self._preparing = SharedWork[tuple[StatementShape, Markers], Plan]("preparation of a statement")
        self._binds: dict[type, _Bind] = {
            Batch: self._bind_batch,
            RowsOf: self._bind_rows,
            BatchIf: self._bind_batch_if,
            Select: self._bind_select,
            **dict.fromkeys((Insert, Update, Delete), self._bind_plain),
            **dict.fromkeys((InsertIfAbsent, UpdateIf), self._bind_lwt),
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
        return CassandraStore(self._session, self.settings, keyspace)

    def monotonic_s(self) -> float:
        return boottime_s()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._session.close()

    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        answer = await self._attempt(statement, self._binds[type(statement)], within_s)
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

        async def bind(_: Select, left_s: float) -> Request:
            plan = await self._plan(first.shape, Markers(partitions=len(selects)), left_s, first)
            encoded = [value for each in selects for value in binding.encode_select(plan, each)]
            return binding.bound(plan, encoded, binding.read_level(first.shape.table, first.consistency))

        answer = await self._tried_again(lambda left_s: self._attempt(first, bind, left_s), within_s)
        return rows_of(first.shape.result_names, answer.rows)

    async def read_wired(self, select: Select, *, within_s: float | None = None) -> WiredRows:
        """As the server sent them: the driver leaves them alone."""

        async def bind(_: Select, left_s: float) -> Request:
            return await self._bind_select(select, left_s, decoded=False)

        answer = await self._tried_again(lambda left_s: self._attempt(select, bind, left_s), within_s)
        wired: WiredRows = answer.rows
        return wired

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Keys between two tokens, page by page; a page that fails is requested again."""
        self._session.require_usable()
        plan = await self._tried_again(lambda left_s: self._plan(scan.shape, Markers(), left_s), None)
        level = binding.read_level(scan.shape.table, scan.consistency)
        page: bytes | None = None
        while True:
            request = binding.bound(plan, binding.encode_scan(scan), level, page=scan.page_rows)
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
        statement = SimpleStatement(text, consistency_level=binding.LEVELS[consistency], fetch_size=None)
        try:
            answer = await self._session.send(statement, within_s, values=tuple(values) or None, at=host)
        except Exception as error:
            raise translate(error, " ".join(text.split())[:80]) from error
        return rows_of(answer.names, answer.rows)

    def coordinators(self) -> tuple[Coordinator, ...]:
        """The nodes of the home data centre, by address."""
        home = self._session.policy.data_center
        hosts = (host for host in self._session.cluster.metadata.all_hosts() if host.datacenter == home)
        nodes = (Coordinator(host.address, host.datacenter, host.rack, host.is_up is not False) for host in hosts)
        return tuple(sorted(nodes, key=lambda node: node.address))

    def exclude(self, addresses: frozenset[str]) -> None:
        """Use these nodes as coordinators for nothing (rule R1: a clock that is off), and all others again."""
        self._session.policy.exclude(addresses)

    @property
    def data_center(self) -> str:
        return self._session.policy.data_center or ""

    def _host(self, address: str) -> Any:
        for host in self._session.cluster.metadata.all_hosts():
            if host.address == address:
                return host
        raise Overloaded("The node no longer exists", address=address)

    async def _attempt(self, statement: Write | Decision | Select, bind: _Bind, within_s: float) -> ResultPage:
        self._session.require_usable()
        deadline = boottime_s() + within_s
        request = await bind(statement, within_s)
        return await self._send(statement, request, deadline - boottime_s())

    async def _send(
        self, statement: Statement, request: Request, within_s: float, page: bytes | None = None
    ) -> ResultPage:
        if request.size > REQUEST_BYTES_MAX:
            raise too_large(f"{request.size} bytes", statement)
        admission = self._session.admission
        began_s = time.perf_counter()
        if within_s <= 0 or not await admission.enter(request.size, within_s):
            raise Overloaded("Too many requests are in flight from this process", in_flight=admission.requests)
        left_s = within_s - (time.perf_counter() - began_s)
        try:
            return await self._session.send(request.query, max(left_s, 0.001), page)
        except Exception as error:
            raise translate(error, statement) from error
        finally:
            admission.leave(request.size)

    async def _bind_plain(self, statement: Plain, within_s: float) -> Request:
        plan = await self._plan(statement.shape, binding.plain_markers(statement.ttl_s), within_s, statement)
        return binding.bound(plan, binding.encode_plain(plan, statement), binding.LEVELS[statement.consistency])

    async def _bind_select(self, select: Select, within_s: float, *, decoded: bool = True) -> Request:
        plan = await self._plan(select.shape, Markers(), within_s, select)
        level = binding.read_level(select.shape.table, select.consistency)
        return binding.bound(plan, binding.encode_select(plan, select), level, decoded=decoded)

    async def _bind_lwt(self, statement: Conditional, within_s: float) -> Request:
        plan = await self._plan(statement.shape, binding.lwt_markers(statement, True), within_s, statement)
        level, serial = binding.lwt_levels(statement.shape.table)
        return binding.bound(plan, binding.encode_lwt(plan, statement, True), level, serial=serial)

    async def _bind_batch(self, batch: Batch, within_s: float) -> Request:
        wiring = Wiring()
        plan: Plan | None = None
        shape: StatementShape | None = None
        marked: Markers | None = None
        for statement in batch.statements:
            markers = binding.plain_markers(statement.ttl_s)
            if plan is None or statement.shape is not shape or markers is not marked:
                shape, marked = statement.shape, markers
                plan = await self._plan(shape, markers, within_s, batch)
            if type(statement) is Insert:
                wiring.add_insert(plan, statement)
            else:
                wiring.add(plan, binding.encode_plain(plan, statement))
        return binding.batch(wiring, binding.LEVELS[batch.consistency], logged=batch.logged)

    async def _bind_rows(self, rows: RowsOf, within_s: float) -> Request:
        plan = await self._plan(rows.shape, binding.plain_markers(rows.stamps[0][1]), within_s, rows)
        wiring = Wiring()
        wiring.add_rows(plan, rows)
        return binding.batch(wiring, binding.LEVELS[rows.consistency])

    async def _bind_batch_if(self, batch: BatchIf, within_s: float) -> Request:
        wiring = Wiring()
        for statement, bears in zip(batch.statements, attempt_bearers(batch), strict=True):
            plan = await self._plan(statement.shape, binding.lwt_markers(statement, bears), within_s, batch)
            wiring.add(plan, binding.encode_lwt(plan, statement, bears))
        level, serial = binding.lwt_levels(batch.statements[0].shape.table)
        return binding.batch(wiring, level, serial=serial)

    async def _plan(
        self, shape: StatementShape, markers: Markers, within_s: float, about: Statement | None = None
    ) -> Plan:
        """The prepared shape; concurrent callers wait for the same preparation."""
        plan = self._plans[markers].get(shape)
        if plan is not None:
            return plan
        try:
            return await self._preparing.run((shape, markers), lambda: self._prepare(shape, markers, within_s))
        except Exception as error:
            raise of_prepare(error, about if about is not None else shape.table.name) from error

    async def _prepare(self, shape: StatementShape, markers: Markers, within_s: float) -> Plan:
        prepared = await self._session.prepare(binding.cql_of(self.keyspace, shape, markers), within_s)
        plan = self._plans[markers][shape] = binding.plan_of(shape, prepared)
        return plan


def _decided(answer: ResultPage) -> AttemptAnswer:
    """An LWT's answer: whether it was applied, else the rows that it met; a missing row has no columns."""
    if answer.rows and answer.rows[0][0]:
        return AttemptAnswer()
    names = answer.names[1:]
    rows = rows_of(names, [row[1:] for row in answer.rows]) if names else []
    return AttemptAnswer(rows, applied=False)
