"""How far ahead a producer stamps immediate messages (attack E1): the safety lag in use.

The lag has to leave time for a write to be acknowledged before its due time less the clock difference. So it grows at
once with the write latency that this producer measures, and doubles at a restamp; it falls slowly. A cluster that
gets slow then delays messages, and does not increase its own load.

Pure: times are passed in, in microseconds.

Invariants: never below the queue's safety lag nor above `LAG_US_MAX` (or the safety lag, where that is more); it
falls by less than the time that goes by, so now + lag never goes back; answers to writes that were sent before
the last restamp do not double it again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

LAG_US_MAX = 10_000_000
"""More than this is an outage: puts end as unknown then, which callers have to see."""
SAMPLES_MAX = 512
SAMPLE_US_MAX = 60_000_000
FALLS_BY = 8
"""The lag falls by an eighth of the time that goes by."""


@dataclass
class LatencyWindow:
    """Latencies of the last minute, the newest 512 at most, and their 99th percentile."""

    _by_age: deque[tuple[int, int]] = field(default_factory=deque)
    _by_size: list[int] = field(default_factory=list)

    def add(self, latency_us: int, now_us: int) -> None:
        """Take in one."""
        self._by_age.append((now_us, latency_us))
        insort(self._by_size, latency_us)
        while len(self._by_age) > SAMPLES_MAX or self._by_age[0][0] < now_us - SAMPLE_US_MAX:
            _, oldest_us = self._by_age.popleft()
            del self._by_size[bisect_left(self._by_size, oldest_us)]

    def p99_us(self) -> int:
        """The latency that one in a hundred exceeds; of a few, the longest."""
        return self._by_size[len(self._by_size) * 99 // 100] if self._by_size else 0


class Lag:
    """The lag of one producer of one queue."""

    def __init__(self, safety_lag_us: int, skew_us: int, now_us: int) -> None:
        self._latencies = LatencyWindow()
        self._stood_us = safety_lag_us
        self._since_us = now_us
        self._restamped_us = 0
        self.restamps = 0
        self.set_terms(safety_lag_us, skew_us)

    def set_terms(self, safety_lag_us: int, skew_us: int) -> None:
        """The queue's setting, at first and after each change."""
        self._least_us = safety_lag_us
        self._most_us = max(safety_lag_us, LAG_US_MAX)
        self._skew_us = skew_us

    @property
    def most_us(self) -> int:
        """Its upper bound."""
        return self._most_us

    def in_use_us(self, now_us: int) -> int:
        """The lag for stamps at this time."""
        fallen_us = self._stood_us - max(0, now_us - self._since_us) // FALLS_BY
        return min(max(fallen_us, self._wanted_us()), self._most_us)

    def write_took(self, latency_us: int, now_us: int) -> None:
        """A write was answered, or abandoned, after this duration."""
        stands_us = self.in_use_us(now_us)
        self._latencies.add(latency_us, now_us)
        self._stand(max(stands_us, self._wanted_us()), now_us)

    def was_too_short(self, sent_us: int, now_us: int) -> None:
        """A flush that was sent at that time has to be restamped. Of those sent together one counts."""
        self.restamps += 1
        if sent_us >= self._restamped_us:
            self._restamped_us = now_us
            self._stand(self.in_use_us(now_us) * 2, now_us)

    def _stand(self, lag_us: int, now_us: int) -> None:
        self._stood_us = min(lag_us, self._most_us)
        self._since_us = max(self._since_us, now_us)

    def _wanted_us(self) -> int:
        return max(self._least_us, self._skew_us + 2 * self._latencies.p99_us())
