"""The store on a real server: its report of a bad environment and of too large values, how it starts and ends."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import pytest

from dev.servers.cassandra import Cassandra, certificates
from dev.servers.cassandra.serving import Serving
from headgate.errors import Bug, EnvironmentProblem, HeadgateError, OperationRefused
from headgate.local.processes import free_port, wait_until
from headgate.store.cassandra.driver import HeadgateConnection, driver
from headgate.store.cassandra.errors import NotAllowed, TooLarge
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.statements import Batch, Insert, Select
from headgate.store.model.table import Column, Keyspace, Table
from headgate.store.model.types import Type
from headgate.store.store import OutcomeUnknown, Overloaded

KEYSPACE = "headgate_store"
KEY = (Column("p", Type.TEXT),)
TABLE = Table(
    "store_on_cassandra", "what these tests write", KEY, (Column("c", Type.INT),), (Column("v", Type.BLOB),)
)
GROWN = Table(TABLE.name, TABLE.purpose, KEY, TABLE.clustering, (*TABLE.columns, Column("w", Type.INT)))


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving) -> dict[str, str]:
    """How to reach a server that has the table."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}

    async def prepare() -> None:
        store = await CassandraStore.connect(read_settings(environment), must_exist=False)
        await store.cql(create_keyspace_cql(Keyspace(KEYSPACE, ((store.data_center, 1),))))
        await store.cql(create_table_cql(KEYSPACE, TABLE))
        await store.close()

    asyncio.run(prepare())
    return environment


@asynccontextmanager
async def opened(connection_variables: dict[str, str]) -> AsyncIterator[CassandraStore]:
    """A store that is closed in the end."""
    store = await CassandraStore.connect(read_settings(connection_variables))
    try:
        yield store
    finally:
        await store.close()


def using(connection_variables: dict[str, str], work: Callable[[CassandraStore], Coroutine[Any, Any, Any]]) -> Any:
    """Run something on a store of its own."""

    async def run() -> Any:
        async with opened(connection_variables) as store:
            return await work(store)

    return asyncio.run(run())


def insert(p: str, value: bytes, c: int = 1) -> Insert:
    return Insert(TABLE, {"p": p, "c": c, "v": value}, timestamp_us=time.time_ns() // 1000)


def why_not(connection_variables: dict[str, str]) -> str:
    """The one line with which a connection is refused."""
    with pytest.raises(EnvironmentProblem) as caught:
        using(connection_variables, lambda _store: asyncio.sleep(0))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nobody_listens(connection_variables: dict[str, str]) -> None:
    point = f"127.0.0.1:{free_port()}"
    wanted = f"No server listens at the contact points (at={point}); start Cassandra, or fix CONTACT_POINTS"
    assert wanted == why_not({**connection_variables, "CONTACT_POINTS": point})


def test_a_contact_point_has_no_address(connection_variables: dict[str, str]) -> None:
    assert why_not({**connection_variables, "CONTACT_POINTS": "cassandra.invalid"}).startswith(
        "No contact point has an address"
    )


def test_one_contact_point_that_answers_is_enough(connection_variables: dict[str, str]) -> None:
    points = f"127.0.0.1:{free_port()},{connection_variables['CONTACT_POINTS']}"
    assert [] == using(
        {**connection_variables, "CONTACT_POINTS": points}, lambda store: store.read(Select(TABLE, {"p": "none"}))
    )


def test_a_wrong_password_and_none(connection_variables: dict[str, str]) -> None:
    assert why_not({**connection_variables, "PASSWORD": "wrong"}).startswith(
        "Cassandra rejects this user and password"
    )
    assert why_not({**connection_variables, "USERNAME": "", "PASSWORD": ""}).startswith(
        "Cassandra requires a password"
    )


def test_a_wrong_data_centre_is_refused_and_reported_those_that_exist(connection_variables: dict[str, str]) -> None:
    line = why_not({**connection_variables, "DATA_CENTER": "elsewhere"})
    assert line.startswith("No node is in the data center of this connection (data_center=elsewhere, ")
    assert line.endswith(f"set DATA_CENTER to one of {connection_variables['DATA_CENTER']}")


def test_the_only_data_centre_need_not_be_named(connection_variables: dict[str, str]) -> None:
    async def home(store: CassandraStore) -> str:
        return store.data_center

    assert connection_variables["DATA_CENTER"] == using({**connection_variables, "DATA_CENTER": ""}, home)


def test_another_cluster_answers(connection_variables: dict[str, str]) -> None:
    assert why_not({**connection_variables, "CLUSTER_NAME": "theirs"}).startswith(
        "Another cluster answers at the contact points"
    )


def test_a_keyspace_is_not_there(connection_variables: dict[str, str]) -> None:
    assert why_not({**connection_variables, "KEYSPACE": "not_there"}).startswith("The keyspace does not exist")


def test_tls_where_the_server_has_none(connection_variables: dict[str, str]) -> None:
    assert why_not({**connection_variables, "USE_SSL": "true"}).startswith("The TLS handshake with the server failed")


def test_no_traceback_of_the_driver_reaches_the_logs(
    connection_variables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    why_not({**connection_variables, "CONTACT_POINTS": f"127.0.0.1:{free_port()}"})
    why_not({**connection_variables, "PASSWORD": "wrong"})
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.fixture(scope="module")
def tls_variables() -> Iterator[dict[str, str]]:
    """A server with certificates that name its address, and that asks for its clients'."""
    with Cassandra.start(tls=certificates(["ip:127.0.0.1"]), require_client_auth=True) as server:
        yield {**server.environment(), "KEYSPACE": "system"}


def test_tls_with_both_sides_certified(tls_variables: dict[str, str]) -> None:
    async def version(store: CassandraStore) -> str:
        ((result,),) = await store.cql("SELECT release_version FROM system.local")
        return str(result)

    assert using(tls_variables, version)


def test_tls_with_an_authority_that_did_not_sign(tls_variables: dict[str, str]) -> None:
    other = certificates(["dns:other.example"]).client().ca
    assert why_not({**tls_variables, "SSL_CA": str(other)}).startswith("the server's certificate is not trusted")


@contextmanager
def forwarded(point: str, *, to: str) -> Iterator[None]:
    """One address replaces another, byte for byte."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*_host_and_port(to))
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer), return_exceptions=True)

    async def serve() -> None:
        async with await asyncio.start_server(answer, *_host_and_port(point)):
            ready.set()
            await asyncio.to_thread(ended.wait)

    ready, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        ended.set()
        thread.join()


def _host_and_port(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return host, int(port)


def test_tls_with_a_name_that_the_certificate_does_not_have(tls_variables: dict[str, str]) -> None:
    by_name = tls_variables["CONTACT_POINTS"].replace("127.0.0.1", "127.0.0.9")
    with forwarded(by_name, to=tls_variables["CONTACT_POINTS"]):
        line = why_not({**tls_variables, "CONTACT_POINTS": by_name})
    assert line.startswith("the server's certificate names another host")


def test_tls_without_the_client_s_own_certificate(tls_variables: dict[str, str]) -> None:
    why_not({**tls_variables, "SSL_CERT": "", "SSL_KEY": ""})


def test_no_tls_where_the_server_wants_it(tls_variables: dict[str, str]) -> None:
    assert "USE_SSL" in why_not({**tls_variables, "USE_SSL": "false"})


def refusal(
    connection_variables: dict[str, str], work: Callable[[CassandraStore], Coroutine[Any, Any, Any]]
) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        using(connection_variables, work)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_batch_of_several_partitions_that_is_too_large_is_refused_at_once(
    connection_variables: dict[str, str],
) -> None:
    parts = [insert(f"too large {number}", bytes(30_000)) for number in range(4)]
    result = refusal(connection_variables, lambda store: store.write(Batch(parts)))
    assert TooLarge is type(result)
    assert "one partition per batch" in str(result)


def test_a_batch_of_one_partition_may_be_larger(connection_variables: dict[str, str]) -> None:
    parts = [insert("large", bytes(30_000), c) for c in range(10)]
    using(connection_variables, lambda store: store.write(Batch(parts)))


@pytest.mark.parametrize("size", [15_900_000, 16_770_000, 17_000_000, 40_000_000])
def test_a_write_that_is_too_large_is_refused_and_the_connection_lives_on(
    connection_variables: dict[str, str], size: int
) -> None:
    async def work(store: CassandraStore) -> None:
        with pytest.raises(TooLarge):
            await store.write(insert("huge", bytes(size)))
        await store.write(insert("small", b"v"))

    using(connection_variables, work)


def test_a_table_that_is_not_there_is_reported_with_its_remedy(connection_variables: dict[str, str]) -> None:
    nowhere = TABLE.named("not_there")
    result = refusal(connection_variables, lambda store: store.read(Select(nowhere, {"p": "x"})))
    assert EnvironmentProblem is type(result)
    assert "`headgate apply`" in str(result)


def test_a_life_beyond_what_the_server_can_hold_is_refused(connection_variables: dict[str, str]) -> None:
    far = Insert(TABLE, {"p": "x", "c": 1}, timestamp_us=1, ttl_s=600_000_000)
    assert OperationRefused is type(refusal(connection_variables, lambda store: store.write(far)))


def test_a_role_without_a_right_is_answered_so(connection_variables: dict[str, str], cassandra: Serving) -> None:
    role = f"reader_{uuid4().hex[:8]}"
    cassandra.cql(f"CREATE ROLE {role} WITH PASSWORD = 'r' AND LOGIN = true")
    cassandra.cql(f"GRANT SELECT ON KEYSPACE {KEYSPACE} TO {role}")
    as_reader = {**connection_variables, "USERNAME": role, "PASSWORD": "r"}
    assert [] == using(as_reader, lambda store: store.read(Select(TABLE, {"p": "none"})))
    assert NotAllowed is type(refusal(as_reader, lambda store: store.write(insert("x", b""))))


def test_the_reactor_is_libev_and_ours(connection_variables: dict[str, str]) -> None:
    async def reactor(store: CassandraStore) -> object:
        return store._session.cluster.connection_class

    assert HeadgateConnection is using(connection_variables, reactor)


def test_what_was_answered_is_let_go_at_once(connection_variables: dict[str, str]) -> None:
    """Neither until its time would have been up, nor until the cyclic collector comes by: a busy process would hold
    what it has read and written in all these seconds."""

    def kept() -> int:
        return sum(type(each) is driver.ResponseFuture for each in gc.get_objects())

    async def work(store: CassandraStore) -> int:
        await store.write(insert("let go", bytes(1_000)))
        gc.collect()
        gc.disable()
        try:
            before = kept()
            for _ in range(20):
                await store.write(insert("let go", bytes(1_000)))
                await store.read(Select(TABLE, {"p": "let go"}))
            return kept() - before
        finally:
            gc.enable()

    assert 1 >= using(connection_variables, work)  # the driver's thread may still hold the last


def test_closing_ends_every_thread(connection_variables: dict[str, str]) -> None:
    before = set(threading.enumerate())
    using(connection_variables, lambda store: store.write(insert("x", b"")))
    assert wait_until(lambda: set(threading.enumerate()) <= before, timeout_s=5)


def test_what_is_in_flight_at_the_end_is_unknown_and_what_comes_later_is_a_mistake(
    connection_variables: dict[str, str],
) -> None:
    async def work(store: CassandraStore) -> None:
        await store.write(insert("x", b""))
        in_flight = [asyncio.create_task(store.attempt(insert("x", bytes(1_000_000)), 5)) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        ends = await asyncio.gather(*in_flight, return_exceptions=True)
        assert {OutcomeUnknown} >= {type(end) for end in ends if isinstance(end, BaseException)}
        with pytest.raises(Bug, match="after it was closed"):
            await store.write(insert("x", b""))

    using(connection_variables, work)


def test_a_store_is_not_shared_with_a_child_process(connection_variables: dict[str, str]) -> None:
    async def work(store: CassandraStore) -> int:
        await store.write(insert("x", b""))
        child = os.fork()
        if child == 0:
            try:
                store._session.require_usable()
            except Bug as error:
                os._exit(7 if "a process that did not open it" in str(error) else 8)
            os._exit(0)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        await store.write(insert("x", b"parent continues"))
        return os.waitstatus_to_exitcode(status)

    assert 7 == using(connection_variables, work)


def test_a_changed_schema_is_met_without_an_error_and_new_columns_are_used(
    connection_variables: dict[str, str],
) -> None:
    async def work(store: CassandraStore) -> None:
        await store.write(insert("grown", b"old"))
        assert [("grown", 1, b"old")] == [tuple(row) for row in await store.read(Select(TABLE, {"p": "grown"}))]
        await store.cql(f"ALTER TABLE {KEYSPACE}.{TABLE.name} ADD IF NOT EXISTS w int")
        await store.write(insert("grown", b"same shape"))
        assert [("grown", 1, b"same shape")] == [
            tuple(row) for row in await store.read(Select(TABLE, {"p": "grown"}))
        ]
        values = {"p": "grown", "c": 2, "w": 5}
        await store.write(Insert(GROWN, values, timestamp_us=time.time_ns() // 1000))
        assert [(1, None), (2, 5)] == [
            tuple(row) for row in await store.read(Select(GROWN, {"p": "grown"}, ("c", "w")))
        ]

    using(connection_variables, work)


def test_a_shape_is_prepared_once_however_many_come_at_once(connection_variables: dict[str, str]) -> None:
    async def work(store: CassandraStore) -> int:
        prepared = []
        real = store._session.prepare

        async def counted(text: str, within_s: float) -> Any:
            prepared.append(text)
            return await real(text, within_s)

        store._session.prepare = counted  # type: ignore[method-assign]
        await asyncio.gather(*(store.write(insert(f"at once {number}", b"")) for number in range(50)))
        return len(prepared)

    assert 1 == using(connection_variables, work)


def test_more_at_once_than_may_be_in_flight_wait_in_turn_and_all_end_well(
    connection_variables: dict[str, str],
) -> None:
    async def work(store: CassandraStore) -> int:
        gate = store._session.admission
        gate._requests_max = 8
        ended = await asyncio.gather(*(store.write(insert(f"many {number}", b"v")) for number in range(500)))
        assert (0, 0) == (gate.requests, gate.bytes)
        return ended.count(None)

    assert 500 == using(connection_variables, work)


def test_an_attempt_without_time_left_is_rejected_unsent(connection_variables: dict[str, str]) -> None:
    async def work(store: CassandraStore) -> None:
        await store.write(insert("x", b""))
        with pytest.raises(Overloaded):
            await store.attempt(insert("x", b""), 0.0)

    using(connection_variables, work)


def test_a_select_is_whole_however_many_rows_there_are(connection_variables: dict[str, str]) -> None:
    async def work(store: CassandraStore) -> int:
        for start in range(0, 12_000, 2_000):
            await store.write(Batch([insert("long", b"v", c) for c in range(start, start + 2_000)]))
        return len(await store.read(Select(TABLE, {"p": "long"}, ("c",))))

    assert 12_000 == using(connection_variables, work)
