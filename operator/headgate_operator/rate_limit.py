"""How many requests go out in a second: a bucket of tokens, in the loop's time.

API servers protect themselves by priority and fairness; this protects everybody else from a thousand queues that are
applied at once. It knows nothing of requests.
"""

from __future__ import annotations

import asyncio


class RateLimit:
    """Lets `burst` pass at once and `per_s` in the long run; the others wait in the order in which they came."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._every_s = 1 / per_s
        self._ahead_s = burst / per_s
        self._next_s = float("-inf")

    async def turn(self) -> None:
        """Wait for one's turn."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._next_s = max(self._next_s, now_s - self._ahead_s) + self._every_s
        wait_s = self._next_s - now_s
        if wait_s > 0:
            await asyncio.sleep(wait_s)
