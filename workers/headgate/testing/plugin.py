"""The pytest plugin: the fixture `headgate_env`, and async tests that use it.

An async test with an `Environment` among its fixtures runs on the environment's own event loop, with virtual time,
whether or not a plugin for async tests is installed. pytest loads this module at every start, so it imports nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headgate.testing.environment import Environment


@pytest.fixture
def headgate_env() -> Iterator[Environment]:
    """A world of its own for this test: SDK and workers in virtual time, without a server."""
    from headgate.testing.environment import Environment

    with Environment() as environment:
        yield environment


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that has an environment."""
    module = sys.modules.get("headgate.testing.environment")
    if module is None:
        return None
    environment = next((each for each in pyfuncitem.funcargs.values() if isinstance(each, module.Environment)), None)
    # pytest-asyncio in its automatic mode has wrapped the function by now.
    test = inspect.unwrap(pyfuncitem.obj, stop=inspect.iscoroutinefunction)
    if environment is None or not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    environment.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
