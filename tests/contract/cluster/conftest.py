"""The contract suite runs each case twice, by the same code: on the simulated API server, and on a real one."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.fixtures import KubernetesUnderTest, namespace_for
from tests.contract.cluster.documents import config, queue
from tests.contract.cluster.worlds import CaseWorld, RealWorld, SimulatedWorld

CRDS = Path(__file__).parents[3] / "crds"
GROUNDS = ("simulated", "real")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case on each world; one that needs a server is marked."""
    if "world" in metafunc.fixturenames:
        servers = [pytest.mark.servers, pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]
        grounds = [pytest.param(kind, marks=servers if kind == "real" else ()) for kind in GROUNDS]
        metafunc.parametrize("world", grounds, indirect=True, scope="function")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A case is a coroutine; its ground knows the loop that it runs on."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    process_context = pyfuncitem.funcargs["world"]
    assert isinstance(process_context, CaseWorld)
    process_context.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[CaseWorld]:
    """A cluster, with an empty namespace of the case's own."""
    if request.param == "simulated":
        made = SimulatedWorld(zlib.crc32(request.node.nodeid.encode()))
        with made.world:
            yield made
        return
    real: RealWorld = request.getfixturevalue("_real_world")
    real.namespace = namespace_for(request.node.originalname.removeprefix("test_"), secrets.token_hex(3))
    yield real


@pytest.fixture(scope="package")
def _real_world(kubernetes: KubernetesUnderTest) -> Iterator[RealWorld]:
    kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    kubernetes.kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    with asyncio.Runner() as runner:
        process_context = RealWorld(runner, kubernetes.kubectl)
        process_context.namespace = namespace_for("collector", secrets.token_hex(3))
        runner.run(process_context.begin_collecting(queue(process_context), config(process_context)))
        yield process_context
        runner.run(process_context.close())
