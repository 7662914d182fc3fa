"""The conformance suite of engines: each case runs on each engine, on the simulated and on a real store.

On the real one a case is mostly waiting, so all of them run beside each other on one loop, a few at a time, in a
thread of its own: leases have to be kept while the runner prints. The first that is asked for begins them all, and
each learns its own end.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import zlib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.contract.engines.kinds import KINDS
from tests.contract.engines.worlds import CaseWorld, RealWorld, SimulatedWorld

T = TypeVar("T")

FOLDER = Path(__file__).parent
KEYSPACE = "headgate_engines"
AT_ONCE = 10
WORLDS = ("simulated", "real")
CASE_S_MAX = 90.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case on each engine in each world; one that needs a server is marked."""
    if "world" in metafunc.fixturenames:
        servers = [pytest.mark.servers, pytest.mark.xdist_group("cassandra")]
        grounds = [
            pytest.param((kind, world), marks=servers if world == "real" else (), id=f"{kind}-{world}")
            for world in WORLDS
            for kind in KINDS
            if world in KINDS[kind].worlds
        ]
        metafunc.parametrize("world", grounds, indirect=True, scope="function")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A case is a coroutine; where it runs knows how."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    process_context: CaseWorld | None = pyfuncitem.funcargs["world"]
    if isinstance(process_context, SimulatedWorld):
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        process_context.simulation.run(process_context.run_case(pyfuncitem.obj(**arguments)))
    else:
        cases: RealCases = pyfuncitem._request.getfixturevalue("_real_cases")
        cases.end_of(pyfuncitem)
    return True


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[CaseWorld | None]:
    """A fresh simulation from a seed made of the case's name; real cases make theirs when they begin."""
    kind, world = request.param
    if world == "real":
        yield None
        return
    made = SimulatedWorld(KINDS[kind], zlib.crc32(request.node.nodeid.encode()))
    with made.simulation:
        yield made


@pytest.fixture(scope="package")
def _real_cases(cassandra: Any) -> Iterator[RealCases]:
    """One server, one loop, and all the cases that were asked for."""
    cases = RealCases()
    cases.run(cases.connect({**cassandra.environment(), "KEYSPACE": KEYSPACE}))
    yield cases
    cases.run(cases.close())
    cases.end()


class RealCases:
    """The cases on the real server, begun together."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="real cases", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop of the cases, from outside of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def connect(self, values: dict[str, str]) -> None:
        """Make the tables."""
        from headgate.store.cassandra.schema import CassandraSchema
        from headgate.store.cassandra.settings import read_settings
        from headgate.store.cassandra.store import CassandraStore
        from headgate.store.model.table import Keyspace
        from headgate.store.schema import ensure

        self._store = await CassandraStore.connect(read_settings(values), must_exist=False)
        tables = [table for kind in KINDS.values() for table in kind.tables()]
        await ensure(CassandraSchema(self._store), Keyspace(KEYSPACE, ((self._store.data_center, 1),)), tables)

    async def close(self) -> None:
        """End what is still under way."""
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0)
        await self._store.close()

    def end(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def end_of(self, item: pytest.Function) -> None:
        """How a case ended."""
        self.run(self._end_of(item))

    async def _end_of(self, item: pytest.Function) -> None:
        if not self._tasks:
            gate = asyncio.Semaphore(AT_ONCE)
            for each in item.session.items:
                if isinstance(each, pytest.Function) and each.path.parent == FOLDER and "-real" in each.nodeid:
                    self._tasks[each.nodeid] = asyncio.get_running_loop().create_task(self._run(each, gate))
        await self._tasks[item.nodeid]

    async def _run(self, item: pytest.Function, gate: asyncio.Semaphore) -> None:
        arguments = dict(item.callspec.params)
        kind, _ = arguments.pop("world")
        async with gate:
            context = RealWorld(KINDS[kind], self._store)
            try:
                async with asyncio.timeout(CASE_S_MAX):
                    await context.run_case(item.obj(world=context, **arguments))
            finally:
                context.end()
