"""How fast a worker continues while everything fails. Pure.

When a service that the handler calls is unavailable, every message fails. At full speed a whole queue would use up
its receives in a minute and end in the dead-letter queue. So after many failures in a row and no success, messages
are taken one at a time. A pause follows each failure and doubles up to a bound, and the first success ends it. A
permanent reject is no evidence of an outage, and counts neither way.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES_MIN = 20
PAUSE_S = 0.5
PAUSE_S_MAX = 10.0


@dataclass
class Pace:
    """Of one worker; `failures` in a row slow it down."""

    failures: int
    failed: int = 0
    until_s: float = 0.0
    """Nothing is taken before."""

    @classmethod
    def of(cls, concurrency: int) -> Pace:
        """Messages that run at the same time may all fail for one short reason; a second such round is not a
        coincidence."""
        return cls(max(FAILURES_MIN, 2 * concurrency))

    @property
    def is_slow(self) -> bool:
        return self.failed >= self.failures

    def went_well(self) -> bool:
        """A message was done. Whether that ends the slowness."""
        was_slow, self.failed, self.until_s = self.is_slow, 0, 0.0
        return was_slow

    def went_wrong(self, now_s: float) -> bool:
        """A message failed. Whether the slowness begins."""
        self.failed += 1
        if not self.is_slow:
            return False
        doubled = min(self.failed - self.failures, 10)
        self.until_s = now_s + min(PAUSE_S * 2**doubled, PAUSE_S_MAX)
        return self.failed == self.failures

    def slots_free(self, free: int, in_flight: int) -> int:
        return min(free, 1 - in_flight) if self.is_slow else free

    def rest_s(self, now_s: float) -> float:
        return max(0.0, self.until_s - now_s)
