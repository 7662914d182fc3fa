"""How much all lanes of one process ask the store for at the same time.

A process may hold a hundred lanes, each with many partitions to read. Were all of these reads sent at once, their
answers would take memory here and in the coordinator, and a small server would not answer at all. So reads wait for
each other: few are under way, and what they are expected to bring is bounded. A read that is larger than the bound
goes alone. Those that wait go in their order.

It knows neither lanes nor statements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

READS_MAX = 64
READ_BYTES_MAX = 16 * 1024 * 1024


class ReadGate:
    """The reads under way in a process."""

    def __init__(self, *, reads_max: int = READS_MAX, bytes_max: int = READ_BYTES_MAX) -> None:
        self._reads_max = reads_max
        self._bytes_max = bytes_max
        self._reads = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @asynccontextmanager
    async def read(self, expected_bytes: int) -> AsyncIterator[None]:
        """Wait until a read that is expected to bring this much may be sent; it ends with the block."""
        if self._waiting or not self._fits(expected_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, expected_bytes))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._end(expected_bytes)
                raise
        else:
            self._begin(expected_bytes)
        try:
            yield
        finally:
            self._end(expected_bytes)

    def _fits(self, expected_bytes: int) -> bool:
        return not self._reads or (self._reads < self._reads_max and self._bytes + expected_bytes <= self._bytes_max)

    def _begin(self, expected_bytes: int) -> None:
        self._reads += 1
        self._bytes += expected_bytes

    def _end(self, expected_bytes: int) -> None:
        self._reads -= 1
        self._bytes -= expected_bytes
        while self._waiting:
            turn, expected = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(expected):
                    return
                self._begin(expected)
                turn.set_result(None)
            self._waiting.popleft()
