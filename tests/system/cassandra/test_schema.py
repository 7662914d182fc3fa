"""Keyspaces and tables on a real server: made by many at once, compared, fixed, and never dropped."""

# ruff: noqa: S608 - names are made here
from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from dev.servers.cassandra import Credentials, Grant, Ring, create_role_statements
from dev.servers.cassandra.serving import Serving
from headgate.store.cassandra.node_queries import CassandraTimes
from headgate.store.cassandra.schema import CassandraSchema
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.clock.clock import Clock
from headgate.store.model.cql import table_id
from headgate.store.model.drift import Drift, DriftStatus, compare, missing
from headgate.store.model.statements import Insert
from headgate.store.model.table import Column, Keyspace, Table
from headgate.store.model.types import Type
from headgate.store.schema import KeyspaceUnfit, SchemaRightsMissing, ensure, plan

T = TypeVar("T")

THINGS = Table(
    "things",
    "things, for a test",
    partition=(Column("p", Type.TEXT),),
    clustering=(Column("c", Type.TIMEUUID), Column("d", Type.INT)),
    columns=(Column("s", Type.INT, static=True), Column("v", Type.BLOB), Column("w", Type.DOUBLE)),
    descending=frozenset({"d"}),
    compaction=(("class", "TimeWindowCompactionStrategy"), ("compaction_window_unit", "HOURS")),
    compression=(("enabled", "false"),),
)
OTHERS = replace(
    THINGS, name="others", descending=frozenset(), compression=(("class", "LZ4Compressor"),), default_ttl_s=60
)


@pytest.fixture
def name() -> str:
    """A keyspace that no other test uses."""
    return f"t_{uuid.uuid4().hex[:12]}"


def keyspace(server: Serving, name: str) -> Keyspace:
    """One replica, in the only data centre."""
    return Keyspace(name, ((server.connection.data_center, 1),))


async def verify(schema: CassandraSchema, name: str, tables: list[Table]) -> tuple[Drift, ...]:
    """The differences, with nothing done about them; a missing table is one."""
    there = await schema.read_tables(name)
    return tuple(
        drift
        for table in tables
        for drift in (compare(name, table, there[table.name]) if table.name in there else [missing(table)])
    )


def on(
    server: Serving,
    work: Callable[[CassandraStore, CassandraSchema], Awaitable[T]],
    *,
    keyspace_name: str = "headgate",
    role: Credentials | None = None,
) -> T:
    """Run something on a connection of its own, as the superuser or as a role."""
    connection = server.connection
    if role is not None:
        connection = connection.as_role(role.username, role.password)

    async def connected() -> T:
        settings = read_settings({**connection.environment(), "KEYSPACE": keyspace_name})
        store = await CassandraStore.connect(settings, must_exist=False)
        try:
            return await work(store, CassandraSchema(store))
        finally:
            await store.close()

    return asyncio.run(connected())


def test_what_is_made_is_found_as_it_was_declared(cassandra: Serving, name: str) -> None:
    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        report = await ensure(schema, keyspace(cassandra, name), [THINGS, OTHERS])
        assert ((name, "things", "others"), ()) == (report.created, report.drifts)
        assert () == await verify(schema, name, [THINGS, OTHERS])
        again = await ensure(schema, keyspace(cassandra, name), [THINGS, OTHERS])
        assert ((), ()) == (again.created, again.drifts)
        result = await schema.read_tables(name)
        assert table_id(name, "things") == result["things"].id

    on(cassandra, work)


def create_and_write_at_once(environment: Mapping[str, str], wanted: Keyspace, creators: int) -> None:
    """Each on connections of its own; each writes a row as soon as it takes the table for made."""

    async def create(number: int) -> None:
        settings = read_settings({**environment, "KEYSPACE": wanted.name})
        store = await CassandraStore.connect(settings, must_exist=False)
        try:
            await ensure(CassandraSchema(store), wanted, [THINGS])
            values = {"p": "x", "c": uuid.uuid1(), "d": number, "v": b""}
            await store.write(Insert(THINGS, values, timestamp_us=1))
        finally:
            await store.close()

    async def all_at_once() -> None:
        await asyncio.gather(*(create(number) for number in range(creators)))

    asyncio.run(all_at_once())


def test_many_creators_at_once_make_one_table_and_write_to_it_at_once(cassandra: Serving, name: str) -> None:
    create_and_write_at_once(cassandra.environment(), keyspace(cassandra, name), 6)
    rows = cassandra.cql(f"SELECT d FROM {name}.things WHERE p = 'x'")
    assert set(range(6)) == {row["d"] for row in rows}


def test_creators_on_different_coordinators_lose_no_row_either(cassandra_ring: Ring, name: str) -> None:
    """Without an id of its own the table would be made once by each, and rows of all but one would be lost."""
    wanted = Keyspace(name, ((cassandra_ring.connection.data_center, 3),))
    create_and_write_at_once(cassandra_ring.environment(), wanted, 6)
    rows = cassandra_ring.cql(f"SELECT d FROM {name}.things WHERE p = 'x'", consistency="ALL")
    assert set(range(6)) == {row["d"] for row in rows}
    matches = [
        cassandra_ring.cql(
            f"SELECT id FROM system_schema.tables WHERE keyspace_name = '{name}'", consistency="ONE", via=node
        )
        for node in range(3)
    ]
    assert [[str(table_id(name, "things"))]] * 3 == [[str(row["id"]) for row in rows] for rows in matches]


def test_a_column_of_a_newer_release_is_added_and_all_data_stay(cassandra: Serving, name: str) -> None:
    older = replace(THINGS, columns=THINGS.columns[:2])

    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [older])
        cassandra.cql(f"INSERT INTO {name}.things (p, c, d, v) VALUES ('x', now(), 1, 0x01)")
        report = await ensure(schema, keyspace(cassandra, name), [THINGS])
        assert [("column w", DriftStatus.FIXED)] == [(drift.what, drift.standing) for drift in report.drifts]
        assert () == await verify(schema, name, [THINGS])

    on(cassandra, work)
    assert [{"d": 1, "w": None}] == [dict(row) for row in cassandra.cql(f"SELECT d, w FROM {name}.things")]


def test_an_older_release_leaves_the_columns_of_a_newer_one_alone(cassandra: Serving, name: str) -> None:
    older = replace(THINGS, columns=THINGS.columns[:2])

    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [THINGS])
        assert () == (await ensure(schema, keyspace(cassandra, name), [older])).drifts
        assert () == await verify(schema, name, [THINGS])

    on(cassandra, work)


def test_options_that_were_changed_by_hand_are_set_back_and_a_higher_gc_grace_stays(
    cassandra: Serving, name: str
) -> None:
    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [THINGS, OTHERS])
        cassandra.cql(
            f"ALTER TABLE {name}.things WITH gc_grace_seconds = 3600 AND comment = 'mine'"
            " AND compaction = {'class': 'SizeTieredCompactionStrategy'}"
        )
        cassandra.cql(f"ALTER TABLE {name}.others WITH gc_grace_seconds = 8640000")
        drifts = await verify(schema, name, [THINGS, OTHERS])
        assert ["gc_grace_seconds", "comment", "compaction"] == [drift.what for drift in drifts]
        report = await ensure(schema, keyspace(cassandra, name), [THINGS, OTHERS])
        assert () == report.unmended
        assert () == await verify(schema, name, [THINGS, OTHERS])
        assert 8_640_000 == (await schema.read_tables(name))["others"].gc_grace_s

    on(cassandra, work)


def test_a_key_that_differs_is_reported_and_nothing_is_done_about_it(cassandra: Serving, name: str) -> None:
    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [])
        cassandra.cql(
            f"CREATE TABLE {name}.things (p text, c timeuuid, d text, s int static, v blob, w double,"
            " PRIMARY KEY (p, c, d))"
        )
        report = await ensure(schema, keyspace(cassandra, name), [replace(THINGS, compression=())])
        left = {drift.what: (drift.wanted, drift.actual) for drift in report.unmended}
        assert {"column d": ("int clustering descending 1", "text clustering 1")} == left

    on(cassandra, work)


def test_a_table_that_was_dropped_is_not_recreated(cassandra: Serving, name: str) -> None:
    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [THINGS])
        cassandra.cql(f"DROP TABLE {name}.things")
        report = await ensure(schema, keyspace(cassandra, name), [THINGS], made_before={"things"})
        assert ["things: the table is dropped, should be there (needs manual repair)"] == [
            str(drift) for drift in report.unmended
        ]
        assert "things" not in await schema.read_tables(name)

    on(cassandra, work)


def test_an_existing_keyspace_is_not_altered(cassandra: Serving, name: str) -> None:
    data_center = cassandra.connection.data_center
    cassandra.cql(
        f"CREATE KEYSPACE {name} WITH durable_writes = false"
        f" AND replication = {{'class': 'NetworkTopologyStrategy', '{data_center}': 1}}"
    )

    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, Keyspace(name, ((data_center, 3),)), [THINGS])
        result = await schema.read_keyspace(name)
        assert result is not None
        assert {data_center: 1} == result.replicas

    on(cassandra, work)
    rows = cassandra.cql(f"SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = '{name}'")
    assert [False] == [row["durable_writes"] for row in rows]


def test_a_keyspace_that_is_not_replicated_to_the_home_data_centre_is_refused(cassandra: Serving, name: str) -> None:
    async def work(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [])
        with pytest.raises(KeyspaceUnfit, match="data_center=far_away"):
            await ensure(schema, Keyspace(name, (("far_away", 3),)), [THINGS])

    on(cassandra, work)


def test_a_role_that_may_not_create_gets_all_the_cql_for_an_administrator(cassandra: Serving, name: str) -> None:
    role = Credentials(f"r_{name}", "secret")
    for statement in create_role_statements(role, [Grant("SELECT", "KEYSPACE system_schema")]):
        cassandra.cql(statement)

    async def work(_: CassandraStore, schema: CassandraSchema) -> tuple[str, ...]:
        with pytest.raises(SchemaRightsMissing, match="pass the CQL") as refused:
            await ensure(schema, keyspace(cassandra, name), [THINGS, OTHERS])
        assert "no CREATE permission" in str(refused.value)
        return refused.value.cql

    handed = on(cassandra, work, role=role)
    for statement in handed:
        cassandra.cql(statement)

    async def verified(_: CassandraStore, schema: CassandraSchema) -> None:
        assert () == await verify(schema, name, [THINGS, OTHERS])

    on(cassandra, verified)


def test_a_role_that_may_not_create_needs_no_right_when_all_is_there(cassandra: Serving, name: str) -> None:
    role = Credentials(f"r_{name}", "secret")
    for statement in create_role_statements(role, [Grant("SELECT", "KEYSPACE system_schema")]):
        cassandra.cql(statement)

    async def made(_: CassandraStore, schema: CassandraSchema) -> None:
        await ensure(schema, keyspace(cassandra, name), [THINGS])

    async def unneeded(_: CassandraStore, schema: CassandraSchema) -> None:
        planned = await plan(schema, keyspace(cassandra, name), [THINGS])
        assert () == planned.statements
        await ensure(schema, keyspace(cassandra, name), [THINGS])

    on(cassandra, made)
    on(cassandra, unneeded, role=role)


def test_every_node_reports_its_own_time_and_the_clock_trusts_it(cassandra: Serving) -> None:
    async def work(store: CassandraStore, _: CassandraSchema) -> None:
        times = CassandraTimes(store)
        assert times.coordinators()
        assert all(times.coordinators().values())
        async with Clock(times) as clock:
            clock.require()
            figures = clock.figures()
            assert set(times.coordinators()) == set(figures.differences_us)
            assert all(abs(each) < 250_000 for each in figures.differences_us.values())

    on(cassandra, work)
