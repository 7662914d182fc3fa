"""Reports where the event loop hangs, by a thread that checks it each second, because a hanging loop cannot report
itself.

The usual cause is an async handler that blocks: nothing else of the worker runs meanwhile, leases expire, and the
probe finally ends the process. The log then has the line of the handler that did it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

log = logging.getLogger("headgate.worker")

CHECK_EVERY_S = 1.0
HANGS_AFTER_S = 5.0


class LoopWatch:
    """Of one event loop. To be started on its thread."""

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
