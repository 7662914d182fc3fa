"""How fast work goes: the growing pause between tries, and the rate of a bucket of tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

BURST_S = 1.0
ROUNDING = 1e-6
"""Sums of small numbers fall a little short of one, so a token that lacks only that counts as whole."""


class ExponentialPause:
    """The pause before the next try. It doubles with each, up to a maximum, until a try succeeds."""

    __slots__ = ("_first_s", "_max_s", "_next_s")

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._max_s = max_s

    def next_s(self) -> float:
        """The pause now; the one after it is longer."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._max_s)
        return pause_s

    def reset(self) -> None:
        """A try succeeded: the next pause is the first again."""
        self._next_s = self._first_s


@dataclass
class TokenBucket:
    """Fills with `per_s` tokens per second, up to `burst`, or to one second's worth and at least one."""

    per_s: float
    tokens: float = 1.0
    at_s: float = 0.0
    burst: float | None = None

    @property
    def most(self) -> float:
        return max(1.0, self.per_s * BURST_S) if self.burst is None else self.burst

    def set_rate(self, per_s: float) -> None:
        self.per_s = per_s

    def take(self, wanted: int, now_s: float) -> int:
        """The number of tokens that may be taken now; they count as taken."""
        self._fill(now_s)
        given = min(wanted, int(self.tokens + ROUNDING))
        self.tokens = max(0.0, self.tokens - given)
        return given

    def give_back(self, taken: int, used: int, now_s: float) -> None:
        """Only some of the taken tokens were used, and only now. Until then they were in the bucket, which is full at
        some time. Otherwise a worker that waits long for messages would take twice as many when they come."""
        self.tokens += taken
        self._fill(now_s)
        self.tokens = max(0.0, self.tokens - used)

    def wait_s(self) -> float:
        """Until the next one may go."""
        return max(0.0, (1.0 - self.tokens) / self.per_s)

    def _fill(self, now_s: float) -> None:
        self.tokens = min(self.most, self.tokens + max(0.0, now_s - self.at_s) * self.per_s)
        self.at_s = max(now_s, self.at_s)


class RateLimit:
    """Lets `burst` pass at once and `per_s` in the long run; the others wait in the order in which they came."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._bucket = TokenBucket(per_s, tokens=burst, burst=burst)
        self._first = asyncio.Lock()

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._first:
            while not self._bucket.take(1, loop.time()):  # noqa: ASYNC110  time fills it
                await asyncio.sleep(self._bucket.wait_s())
