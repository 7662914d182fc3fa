"""Answers from the driver's thread to asyncio's: many answers, one wake-up.

Waking a loop costs a system call and a turn of the loop, so an answer that finds a wake-up on its way joins it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Handover:
    """Resolves futures of one loop from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._waking = False

    def answer(self, future: asyncio.Future[Any], result: Any, error: BaseException | None = None) -> None:
        """From any thread: give the future its result, or its error."""
        self._arrived.append((future, result, error))
        if not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: nothing waits any more.
                self._arrived.clear()

    def _drain(self) -> None:
        # The flag is cleared first: an answer that comes during the drain is either handled by it or wakes the loop
        # again.
        self._waking = False
        arrived = self._arrived
        while arrived:
            future, result, error = arrived.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
