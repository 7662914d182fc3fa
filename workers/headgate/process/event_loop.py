"""How a process of ours runs its event loop: on uvloop where it is installed (extra `fast`), and with a cyclic
collector that runs seldom and skips the objects of the start. The reasons and the gains are in
docs/decisions/0009-uvloop-and-the-collector.md.

The operator keeps many objects, and may not hold its loop for long. A full collection with the objects of a thousand
queues took 0.5 s on a busy machine, and one of a second generation of 400,000 took 0.7 s (0.2 s of CPU). Both come in
the middle of the work, since work creates objects. So the operator collects the younger two generations often, a few
objects at a time. Little is left for the full collection (three thousand objects of a storm of a thousand queues), so
it can wait until the operator is idle, but not for ever: after `ROUNDS_MAX` it runs at once.

A library never does this to the process of others: an application that puts messages decides for itself.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""By which a process is asked to end."""

COLLECT_EVERY = 50_000, 20, 100
"""The youngest generation is collected when this many more objects were created than freed. Every 20th of these
rounds takes the second generation, and every 100th of that all. A queue creates and drops some ten objects per
message, and none in a cycle."""
THRESHOLDS: Final = (10_000, 5, 1_000_000)
"""Of the operator. The last threshold is never reached: `collect_at_rest` runs full collections."""
SWITCHED_S: Final = 0.001
POLL_EVERY_S: Final = 5.0
ROUNDS: Final = 160
"""Collections of the second generation, 50,000 objects each, after which a full one is due."""
ROUNDS_MAX: Final = 4_000


def new_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return loop


def spare_the_collector(thresholds: tuple[int, int, int] = COLLECT_EVERY) -> None:
    """Called once, when the process has all that it needs: the objects that exist then are not collected again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)


def let_changes_pass() -> None:
    """A new change among a thousand others is decided within 100 ms, so nothing may hold the loop for long. Python
    would scan all objects again and again while their number grows, and let the driver's thread run for 5 ms.
    """
    spare_the_collector(THRESHOLDS)
    sys.setswitchinterval(SWITCHED_S)


async def collect_at_rest(is_idle: Callable[[], bool]) -> None:
    """Run full collections, when one is due and nothing waits; for ever."""
    while True:
        await asyncio.sleep(POLL_EVERY_S)
        rounds = gc.get_count()[2]
        if rounds >= ROUNDS_MAX or (rounds >= ROUNDS and is_idle()):
            gc.collect()


def call_on_sigterm(stop: Callable[[], object]) -> None:
    """Have it called at SIGTERM and SIGINT, in the running loop. A later call replaces an earlier one."""
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop)


def run(main: Coroutine[Any, Any, T]) -> T:
    spare_the_collector()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
