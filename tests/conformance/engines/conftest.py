"""The conformance suite of engines: each case runs on each engine, on the simulated and on a real store.

On the real one a case is mostly waiting, so all of them run beside each other on one loop, a few at a time: the first
that is asked for begins them all, and each is told its own end.
"""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.engines.grounds import Ground, RealGround, SimulatedGround
from tests.conformance.engines.kinds import KINDS

HERE = Path(__file__).parent
KEYSPACE = "penstock_engines"
AT_ONCE = 8
WORLDS = ("simulated", "real")
CASE_S_MAX = 90.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case on each engine in each world; what needs a server says so."""
    if "ground" in metafunc.fixturenames:
        servers = [pytest.mark.servers, pytest.mark.xdist_group("cassandra")]
        grounds = [
            pytest.param((kind, world), marks=servers if world == "real" else (), id=f"{kind}-{world}")
            for world in WORLDS
            for kind in KINDS
        ]
        metafunc.parametrize("ground", grounds, indirect=True, scope="function")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A case is a coroutine; where it runs knows how."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    real: RealCases | None = pyfuncitem.funcargs.get("_real")
    ground: Ground | None = pyfuncitem.funcargs["ground"]
    if isinstance(ground, SimulatedGround):
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        ground.simulation.run(ground.run_case(pyfuncitem.obj(**arguments)))
    else:
        real = pyfuncitem._request.getfixturevalue("_real_cases")
        real.end_of(pyfuncitem)
    return True


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Iterator[Ground | None]:
    """A fresh simulation from a seed that the case's name tells; real cases make theirs when they begin."""
    kind, world = request.param
    if world == "real":
        yield None
        return
    made = SimulatedGround(KINDS[kind], zlib.crc32(request.node.nodeid.encode()))
    with made.simulation:
        yield made


@pytest.fixture(scope="package")
def _real_cases(cassandra: Any) -> Iterator[RealCases]:
    """One server, one loop, and all the cases that were asked for."""
    with asyncio.Runner() as runner:
        cases = RealCases(runner)
        runner.run(cases.connect({**cassandra.environment(), "KEYSPACE": KEYSPACE}))
        yield cases
        runner.run(cases.close())


class RealCases:
    """The cases on the real server, begun together."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def connect(self, told: dict[str, str]) -> None:
        """Make the tables, and compare the clock."""
        from penstock.store.cassandra import CassandraStore
        from penstock.store.cassandra_schema import CassandraSchema
        from penstock.store.cassandra_settings import read_settings
        from penstock.store.cassandra_times import CassandraTimes
        from penstock.store.clocks import Clock
        from penstock.store.schema import ensure
        from penstock.store.table import Keyspace

        self._store = await CassandraStore.connect(read_settings(told), must_exist=False)
        tables = [table for kind in KINDS.values() for table in kind.tables()]
        await ensure(CassandraSchema(self._store), Keyspace(KEYSPACE, ((self._store.data_center, 1),)), tables)
        self._clock = Clock(CassandraTimes(self._store))
        await self._clock.__aenter__()

    async def close(self) -> None:
        """End what is still under way."""
        for task in self._tasks.values():
            task.cancel()
        await self._clock.__aexit__(None, None, None)
        await self._store.close()

    def end_of(self, item: pytest.Function) -> None:
        """How a case ended."""
        if not self._tasks:
            self._begin(item.session)
        self._runner.run(_wait_for(self._tasks[item.nodeid]))

    def _begin(self, session: pytest.Session) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        loop = self._runner.get_loop()
        for item in session.items:
            if isinstance(item, pytest.Function) and item.path.parent == HERE and "-real]" in item.nodeid:
                self._tasks[item.nodeid] = loop.create_task(self._run(item, gate))

    async def _run(self, item: pytest.Function, gate: asyncio.Semaphore) -> None:
        arguments = dict(item.callspec.params)
        kind, _ = arguments.pop("ground")
        async with gate:
            ground = RealGround(KINDS[kind], self._store, self._clock)
            try:
                async with asyncio.timeout(CASE_S_MAX):
                    await ground.run_case(item.obj(ground=ground, **arguments))
            finally:
                ground.end()


async def _wait_for(task: asyncio.Task[None]) -> None:
    await task
