"""The SDK on a driver session of the application: what it needs of the session, and that it changes nothing there."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.io.asyncioreactor import AsyncioConnection
from cassandra.policies import RoundRobinPolicy
from cassandra.query import BatchStatement, dict_factory, tuple_factory

import headgate
from dev.servers.cassandra.connection import read_connection
from dev.servers.cassandra.serving import Serving
from headgate import EnvironmentProblem, InvalidRequest, Put
from tests.system.sdk.test_add_to_batch import prepared

LOCAL = "SELECT key, cluster_name FROM system.local"


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an application whose queue was applied."""
    return prepared(cassandra.environment(), tmp_path_factory.mktemp("session") / "queue.yaml")


@contextmanager
def cluster_of(connection_variables: Mapping[str, str], **options: Any) -> Iterator[Cluster]:
    """A cluster of the application's own making."""
    connection = read_connection(connection_variables)
    point = connection.contact_points[0]
    auth = None
    if connection.username is not None:
        auth = PlainTextAuthProvider(connection.username, connection.password)
    cluster = Cluster(
        [point.host],
        port=point.port,
        auth_provider=auth,
        ssl_context=None if connection.tls is None else connection.tls.context(),
        **{"protocol_version": 5, **options},
    )
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def session_by_profiles(connection_variables: Mapping[str, str]) -> Iterator[Any]:
    """With execution profiles, whose default reads tuples at ONE."""
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(),
        row_factory=tuple_factory,
        consistency_level=ConsistencyLevel.ONE,
        request_timeout=30,
    )
    with cluster_of(connection_variables, execution_profiles={EXEC_PROFILE_DEFAULT: profile}) as cluster:
        yield cluster.connect()


@contextmanager
def session_by_attributes(connection_variables: Mapping[str, str]) -> Iterator[Any]:
    """With the settings of a session itself, which the driver does not let mix with profiles."""
    with cluster_of(connection_variables, load_balancing_policy=RoundRobinPolicy()) as cluster:
        session = cluster.connect()
        session.row_factory = dict_factory
        session.default_timeout = 30
        session.default_fetch_size = 7
        yield session


def settings_of(session: Any) -> dict[str, object]:
    """Everything of a session that an application may have set."""
    names = ("keyspace", "default_fetch_size", "use_client_timestamp", "timestamp_generator", "encoder")
    cluster = session.cluster
    return {
        **{name: getattr(session, name) for name in (*names, "client_protocol_handler", "row_factory")},
        "profiles": {name: vars(profile).copy() for name, profile in cluster.profile_manager.profiles.items()},
        "mode": cluster._config_mode,
        "listeners": set(cluster.listeners),
        "sessions": set(cluster.sessions),
    }


def environment_for_session(connection_variables: Mapping[str, str]) -> dict[str, str]:
    """The settings that the environment has to hold beside a session."""
    return {"HEADGATE_KEYSPACE": connection_variables["KEYSPACE"]}


@pytest.mark.parametrize("opened", [session_by_profiles, session_by_attributes])
def test_a_queue_works_on_a_session_of_the_application_and_leaves_it_as_it_was(
    connection_variables: dict[str, str], opened: Any
) -> None:
    async def work(session: Any) -> None:
        async with headgate.connect(environment_for_session(connection_variables), session=session) as connection:
            queue = await connection.queue("shop/orders")
            puts: list[Any] = [f"{number}" for number in range(2_000)]
            puts += [Put("grouped", group="g"), Put("once", once=uuid.uuid4().hex), {"a": 1}]
            ids = await queue.put_many(puts)
            batch = BatchStatement()
            batch.add(f"INSERT INTO {connection_variables['KEYSPACE']}.orders (id, item) VALUES (1, 'tea')")  # noqa: S608  a name of ours
            put = await queue.add_to_batch(batch, "in a batch")
            put.check()
            session.execute(batch)
            assert own_rows == list(session.execute(LOCAL))
            received: set[str] = set()
            while len(received) < len(ids) + 1:
                given = await queue.receive(500)
                assert given
                received |= {each.id for each in given}
                await queue.ack(given)
            assert received == {*ids, put.id}
            assert "settled" == (await queue.where(ids[0])).state.value

    with opened(connection_variables) as session:
        before = settings_of(session)
        own_rows = list(session.execute(LOCAL))
        for _ in range(2):
            asyncio.run(work(session))
            assert before == settings_of(session)
            assert own_rows == list(session.execute(LOCAL)), "the session is open, and reads rows as before"
        assert isinstance(own_rows[0], dict if opened is session_by_attributes else tuple)


def test_the_blocking_sdk_takes_a_session_too(connection_variables: dict[str, str]) -> None:
    with session_by_profiles(connection_variables) as session:
        with headgate.connect_sync(
            environment_for_session(connection_variables), session=session, keyspace=connection_variables["KEYSPACE"]
        ) as connection:
            queue = connection.queue("shop/orders")
            ids = queue.put_many(b"%d" % number for number in range(100))
            received: list[str] = []
            while len(received) < 100:
                for message in queue.receive(100):
                    with message:
                        received.append(message.id)
        assert sorted(ids) == sorted(received)
        assert not session.is_shutdown
        assert 1 == len(list(session.execute(LOCAL)))


def test_two_connections_share_one_session(connection_variables: dict[str, str]) -> None:
    with session_by_profiles(connection_variables) as session:
        before = settings_of(session)
        with headgate.connect_sync(environment_for_session(connection_variables), session=session) as one:
            with headgate.connect_sync(environment_for_session(connection_variables), session=session) as other:
                other.queue("shop/orders").put("by the other")
            one.queue("shop/orders").put("by the one")
        assert before == settings_of(session)
        with headgate.connect_sync(connection_variables) as own:
            own.queue("shop/orders").purge()


def refusal(connection_variables: Mapping[str, str], session: Any, **options: Any) -> str:
    """The error of connecting on a session."""

    async def work() -> None:
        async with headgate.connect(
            {**environment_for_session(connection_variables), **options.pop("environment", {})},
            session=session,
            **options,
        ):
            pass

    with pytest.raises((InvalidRequest, EnvironmentProblem)) as caught:
        asyncio.run(work())
    assert 1 == len(str(caught.value).splitlines())
    return str(caught.value)


def test_what_a_session_lacks_is_one_line(connection_variables: dict[str, str]) -> None:
    with session_by_profiles(connection_variables) as session:
        before = settings_of(session)
        assert "is no session of the DataStax driver" in refusal(connection_variables, object())
        assert "is no session of the DataStax driver" in refusal(
            connection_variables, session.cluster.control_connection
        )
        assert "takes no addresses and no credentials. (given=contact_points, password)" in refusal(
            connection_variables, session, contact_points="localhost", password="x"
        )
        assert "No node is in the data center" in refusal(connection_variables, session, data_center="mars")
        assert "Another cluster answers" in refusal(connection_variables, session, cluster_name="another")
        assert "The keyspace does not exist" in refusal(
            connection_variables, session, environment={"HEADGATE_KEYSPACE": "nothing_here"}
        )
        assert before == settings_of(session)
        session.shutdown()
        assert "The session is closed." in refusal(connection_variables, session)
    with cluster_of(connection_variables, protocol_version=4) as cluster:
        assert "does not use version 5 of the native protocol. (uses=4)" in refusal(
            connection_variables, cluster.connect()
        )


def test_a_session_on_another_reactor_is_refused(connection_variables: dict[str, str]) -> None:
    with cluster_of(connection_variables, connection_class=AsyncioConnection) as cluster:
        assert "does not use the driver's libev reactor. (uses=AsyncioConnection)" in refusal(
            connection_variables, cluster.connect()
        )
