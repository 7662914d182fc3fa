"""The pytest plugin: async tests with an environment run on its loop, whichever plugin for async tests is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.pytest_process import run_pytest

TEST = """
import asyncio
from headgate.testing.virtual_loop import VirtualLoop

async def test_it(headgate_env):
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    await asyncio.sleep(3600)
    assert headgate_env.now().year >= 2026

async def test_it_fails(headgate_env):
    assert False, "the test itself"
"""
WRAPPING = """
import asyncio, functools, inspect, pytest

class Wrapped(pytest.Function):
    def runtest(self):
        inner = self.obj

        @functools.wraps(inner)
        def run(*args, **named):
            return asyncio.run(inner(*args, **named))

        self.obj = run
        super().runtest()

@pytest.hookimpl(hookwrapper=True)
def pytest_pycollect_makeitem(collector, name, obj):
    found = (yield).get_result()
    if isinstance(found, list):
        found[:] = [
            Wrapped.from_parent(each.parent, name=each.name, callobj=each.obj)
            if isinstance(each, pytest.Function) and inspect.iscoroutinefunction(each.obj) else each
            for each in found
        ]
"""
"""As pytest-asyncio does in its automatic mode."""


def test_an_async_test_runs_on_the_environments_loop(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    output = run_pytest(tmp_path)
    assert "1 failed, 1 passed" in output, output
    assert "the test itself" in output


def test_it_does_so_where_another_plugin_has_wrapped_the_function(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(WRAPPING)
    assert "1 failed, 1 passed" in run_pytest(tmp_path)


def test_the_plugin_loads_no_module_of_the_environment_when_pytest_starts() -> None:
    code = "import sys, headgate.testing.plugin; print(*(name for name in sys.modules if 'headgate' in name))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"headgate", "headgate.testing", "headgate.testing.plugin"} == set(done.stdout.split())
