"""The programs of docs/recipes.md that need a queue alone, as they are printed, in the simulated world.

tests/system/sdk/test_sdk.py runs all of them on a Cassandra; here a slip in one is found in seconds.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import yaml

import headgate
from tests.kit.page_examples import Example, examples_of
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Shop

RECIPES = examples_of("recipes.md")
ELSEWHERE = ("from database import", "connect_sync(")
"""A program with one of these needs a Cassandra of its own, or threads."""
PROGRAMS = [
    each
    for each in RECIPES
    if each.language == "python" and not each.words and not any(word in each.text for word in ELSEWHERE)
]


def queues() -> list[str]:
    """The queues of the page, each as a text."""
    page = next(each for each in RECIPES if each.language == "yaml")
    return [yaml.safe_dump(queue) for queue in yaml.safe_load_all(page.text)]


def main_of(program: Example, monkeypatch: pytest.MonkeyPatch) -> Coroutine[Any, Any, None]:
    """The coroutine that the program passes to `asyncio.run`."""
    handed: list[Coroutine[Any, Any, None]] = []
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run", handed.append)
        exec(compile(program.text, str(program), "exec"), {})  # noqa: S102 - our own page
    (main,) = handed
    return main


def deliver_signals(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals of the program to itself, on a loop that has none."""
    handlers: dict[int, Callable[[], None]] = {}
    monkeypatch.setattr(
        type(loop), "add_signal_handler", lambda _, number, handler: handlers.update({number: handler})
    )
    monkeypatch.setattr(signal, "raise_signal", lambda number: handlers[number]())


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_recipe_comes_to_its_end(
    program: Example, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(*queues())
        process = shop.program("application")
        monkeypatch.setattr(headgate, "connect", lambda: process.connection)
        deliver_signals(asyncio.get_running_loop(), monkeypatch)
        await process.process.start(main_of(program, monkeypatch))

    with World(1) as world:
        world.run(scenario(Shop(world, Cluster(world))))
    assert capsys.readouterr().out.strip()


def test_some_programs_are_run_here() -> None:
    assert len(PROGRAMS) >= 4
