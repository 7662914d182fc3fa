"""The limit on requests and bytes in flight; later requests wait in turn.

The driver would block the whole loop once a connection has no free stream, and would queue without a bound before.
"""

from __future__ import annotations

import asyncio
from collections import deque

REQUESTS_MAX = 2048
BYTES_MAX = 64 * 1024 * 1024


class Admission:
    """A gate of one loop. A request larger than the whole capacity goes alone."""

    def __init__(self, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.requests = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def try_enter(self, size: int) -> bool:
        """Enter if there is capacity and nobody waits."""
        if self._waiting or not self._has_space(size):
            return False
        self._take(size)
        return True

    async def enter(self, size: int, within_s: float) -> bool:
        """Wait in turn; False when the time was up first."""
        if self.try_enter(size):
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            async with asyncio.timeout(within_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            # Admitted and cancelled in one turn of the loop: the place is returned.
            if turn.done() and not turn.cancelled():
                self.leave(size)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self, size: int) -> None:
        """Leave, and admit the waiting requests."""
        self.requests -= 1
        self.bytes -= size
        while self._waiting:
            turn, waiting_size = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif self._has_space(waiting_size):
                self._waiting.popleft()
                self._take(waiting_size)
                turn.set_result(None)
            else:
                return

    def _has_space(self, size: int) -> bool:
        return self.requests == 0 or (self.requests < self._requests_max and self.bytes + size <= self._bytes_max)

    def _take(self, size: int) -> None:
        self.requests += 1
        self.bytes += size
