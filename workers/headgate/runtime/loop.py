"""How a process of ours runs its event loop: on uvloop where it is installed (extra `fast`), and with a cyclic
collector that is called seldom and does not look at what the process was born with. Why, and what each of them gives:
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
"""The youngest are looked at when so many more were made than went; of these rounds every 20th takes those that
stayed once, and every 100th of that all. A queue makes and drops some ten objects a message, and none in a cycle."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, the fastest that there is here."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return loop


def spare_the_collector() -> None:
    """Once, when the process has all that it needs: what is there now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process to its end, as `asyncio.run` does."""
    spare_the_collector()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
