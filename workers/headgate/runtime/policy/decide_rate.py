"""A rate limit in messages per second for one worker: a token bucket. Pure."""

from __future__ import annotations

from dataclasses import dataclass

BURST_S = 1.0
ROUNDING = 1e-6
"""Sums of small numbers fall a little short of one, so a token that lacks only that counts as whole."""


@dataclass
class TokenBucket:
    """Fills with `per_s` tokens per second, up to one second's worth and at least one."""

    per_s: float
    tokens: float = 1.0
    at_s: float = 0.0

    @property
    def most(self) -> float:
        """When it is full."""
        return max(1.0, self.per_s * BURST_S)

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
