"""How many messages a worker takes: how many it holds beyond those in its handlers, and how few while everything
fails. Pure.

Each receive, and each write of settles, costs as much for one message as for many. So a fast worker whose user sets
no number prefetches more: the messages that it handles in LEAD_S at the present rate, which start soon, and at least
as many as it handles at once. A worker that slows down prefetches less from the next window on.

When a service that the handler calls is unavailable, every message fails. At full speed a whole queue would use up
its receives in a minute and end in the dead-letter queue. So after many failures in a row and no success, messages
are taken one at a time. A pause follows each failure and doubles up to a bound, and the first success ends it. A
permanent reject is no evidence of an outage, and counts neither way.

A run of failures is evidence only if it is longer than those that successes have ended lately. Else one tenant whose
messages all fail would slow down the others: of a queue that fails at 90 %, every 280th message ends a run of 32.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES_MIN = 20
FAILURES_MAX = 1_000
RUNS = 4
"""As many of the longest late run are no coincidence."""
FADES_BY = 0.98
"""With each success the longest late run counts for less."""
PAUSE_S = 0.5
PAUSE_S_MAX = 10.0
LEAD_S = 0.05
WINDOW_S = 0.25
MESSAGES_MAX = 1_000


@dataclass
class Pace:
    """Of one worker; `failures` in a row slow it down."""

    failures: int
    failed: int = 0
    longest: float = 0.0
    """The latest long run of failures that a success ended."""
    until_s: float = 0.0
    """Nothing is taken before."""

    @classmethod
    def of(cls, concurrency: int) -> Pace:
        """Messages that run at the same time may all fail for one short reason; a second such round is not a
        coincidence."""
        return cls(min(max(FAILURES_MIN, 2 * concurrency), FAILURES_MAX))

    @property
    def _limit(self) -> int:
        return self.failures + min(int(RUNS * self.longest), FAILURES_MAX - self.failures)

    @property
    def is_slow(self) -> bool:
        return self.failed >= self._limit

    def went_well(self) -> bool:
        """A message was done. Whether that ends the slowness."""
        was_slow = self.is_slow
        faded = self.longest * FADES_BY if self.longest > 1 else 0.0
        self.longest, self.failed, self.until_s = max(float(self.failed), faded), 0, 0.0
        return was_slow

    def went_wrong(self, now_s: float) -> bool:
        """A message failed. Whether the slowness begins."""
        self.failed += 1
        if not self.is_slow:
            return False
        doubled = min(self.failed - self._limit, 10)
        self.until_s = now_s + min(PAUSE_S * 2**doubled, PAUSE_S_MAX)
        return self.failed == self._limit

    def slots_free(self, free: int, in_flight: int) -> int:
        return min(free, 1 - in_flight) if self.is_slow else free

    def rest_s(self, now_s: float) -> float:
        return max(0.0, self.until_s - now_s)


@dataclass
class Prefetch:
    least: int
    begun_s: float = 0.0
    ended_by_then: int = 0
    rate_per_s: float = 0.0

    def wanted(self, ended: int, now_s: float) -> int:
        """The current number, given how many handlers have ended since the start."""
        passed_s = now_s - self.begun_s
        if passed_s >= WINDOW_S:
            self.rate_per_s = (ended - self.ended_by_then) / passed_s
            self.begun_s, self.ended_by_then = now_s, ended
        return max(self.least, min(MESSAGES_MAX, int(self.rate_per_s * LEAD_S)))
