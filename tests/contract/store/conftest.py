"""The contract suite runs each case in three worlds, by the same code: on a ring of three, in the simulation, and in
memory, where no replica is ever down."""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.table import Keyspace
from tests.contract.store.tables import ALL_TABLES
from tests.contract.store.worlds import REPLICAS, MemoryWorld, RealWorld, SimulatedWorld, World

if TYPE_CHECKING:
    from headgate.store.cassandra.store import CassandraStore

FOLDER = Path(__file__).parent
KEYSPACE = "headgate_contract"
AT_ONCE = 6
WORLDS = ("simulated", "memory", "real")


def pytest_configure(config: pytest.Config) -> None:
    """The marker that the cases use."""
    config.addinivalue_line("markers", "down(n): number of the three replicas that are down")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case in each world; one that needs a server is marked."""
    if "world" in metafunc.fixturenames:
        servers = [pytest.mark.servers, pytest.mark.xdist_group("cassandra")]
        needs_failures = any(mark.name == "down" for mark in metafunc.definition.iter_markers())
        worlds = [
            pytest.param(kind, marks=servers if kind == "real" else ())
            for kind in WORLDS
            if not (kind == "memory" and needs_failures)
        ]
        metafunc.parametrize("world", worlds, indirect=True, scope="function")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases that stop replicas come last, those that stop more after those that stop less: a start takes long."""
    local = [item for item in items if item.path.parent == FOLDER]
    local.sort(key=lambda item: ("[real" in item.nodeid, _down(item)))
    places = iter(local)
    items[:] = [next(places) if item.path.parent == FOLDER else item for item in items]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A case is a coroutine; its world knows the loop that it runs on."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    world: World = pyfuncitem.funcargs["world"]
    world.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """A world, whole unless the case is marked `down(n)`."""
    result: World = request.getfixturevalue(f"_{request.param}_world")
    result.case = request.node.originalname.removeprefix("test_")[:40]
    result.only_these_are_down(frozenset(range(REPLICAS - _down(request.node), REPLICAS)))
    return result


@pytest.fixture
def _simulated_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A fresh one for each case, from a seed made of its name."""
    world = SimulatedWorld(zlib.crc32(request.node.nodeid.encode()))
    with world.simulation:
        yield world


@pytest.fixture
def _memory_world() -> Iterator[World]:
    """A fresh one for each case."""
    world = MemoryWorld(1)
    with world.simulation:
        yield world


@pytest.fixture(scope="package")
def _real_world() -> Iterator[World]:
    """A ring of its own, without authentication: with two of three down nobody's rights can be looked up."""
    from dev.servers.cassandra import NodeSettings, Ring
    from headgate.store.cassandra.settings import read_settings
    from headgate.store.cassandra.store import CassandraStore

    with Ring.start(NodeSettings(authentication=False)) as ring, asyncio.Runner() as runner:
        settings = read_settings({**ring.environment(), "KEYSPACE": KEYSPACE})
        store = runner.run(CassandraStore.connect(settings, must_exist=False))
        runner.run(_create_tables(store))
        yield RealWorld(ring, runner, store)
        runner.run(store.close())


async def _create_tables(store: CassandraStore) -> None:
    """A few at once, at one coordinator: nearly all of the time goes into waiting until the nodes agree."""
    local = store.coordinators()[0]
    await store.cql(create_keyspace_cql(Keyspace(KEYSPACE, ((store.data_center, REPLICAS),))))
    for start in range(0, len(ALL_TABLES), AT_ONCE):
        few = ALL_TABLES[start : start + AT_ONCE]
        await asyncio.gather(*(store.cql(create_table_cql(KEYSPACE, table), at=local, within_s=60) for table in few))


def _down(item: pytest.Item) -> int:
    marker = item.get_closest_marker("down")
    return marker.args[0] if marker is not None else 0
