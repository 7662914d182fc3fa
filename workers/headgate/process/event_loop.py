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
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger("headgate.worker")

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
CHECK_EVERY_S = 1.0
HANGS_AFTER_S = 5.0


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


class LoopWatch:
    """Reports where the event loop hangs, by a thread that checks it each second, because a hanging loop cannot.
    To be started on the loop's thread.

    The usual cause is an async handler that blocks: nothing else of the worker runs meanwhile, leases expire, and the
    probe finally ends the process. The log then has the line of the handler that did it.
    """

    def __init__(self, *, hangs_after_s: float = HANGS_AFTER_S, check_every_s: float = CHECK_EVERY_S) -> None:
        self._hangs_after_s = hangs_after_s
        self._check_every_s = check_every_s
        self._loop = asyncio.get_running_loop()
        self._loops_thread = threading.get_ident()
        self._turned_s = time.monotonic()
        self._asked = False
        self._reported = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-loop-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _turned(self) -> None:
        self._turned_s = time.monotonic()
        self._asked = False
        if self._reported:
            self._reported = False
            log.warning("event loop resumed")

    def _watch(self) -> None:
        while not self._over.wait(self._check_every_s):
            if not self._asked:
                self._asked = True
                self._turned_s = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._turned)
                except RuntimeError:
                    return
            elif time.monotonic() - self._turned_s > self._hangs_after_s and not self._reported:
                self._reported = True
                self._report()

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loops_thread)
        stack = traceback.format_stack(frame)[-8:] if frame is not None else []
        log.error(
            "event loop is blocked",
            extra={"for_s": round(time.monotonic() - self._turned_s, 1), "stack": "".join(stack)},
        )
