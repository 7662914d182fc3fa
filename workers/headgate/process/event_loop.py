"""How a process of ours runs its event loop: on uvloop where it is installed (extra `fast`), and with a cyclic
collector that runs seldom and skips the objects of the start. The reasons and the gains are in
docs/decisions/0009-uvloop-and-the-collector.md.

A library never does this to the process of others: an application that puts messages decides for itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

COLLECT_EVERY = 50_000, 20, 100
"""The youngest generation is collected when this many more objects were created than freed. Every 20th of these
rounds takes the second generation, and every 100th of that all. A queue creates and drops some ten objects per
message, and none in a cycle."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, the fastest that is installed."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return loop


def spare_the_collector() -> None:
    """Called once, when the process has all that it needs: the objects that exist then are not collected again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process to its end, as `asyncio.run` does."""
    spare_the_collector()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
