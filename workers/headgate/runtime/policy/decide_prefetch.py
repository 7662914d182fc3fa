"""How many messages a worker holds beyond those in its handlers, when its user sets no number. Pure.

Each receive, and each write of settles, costs as much for one message as for many. So a fast worker prefetches more:
the messages that it handles in LEAD_S at the present rate, which start soon, and at least as many as it handles at
once. A worker that slows down prefetches less from the next window on.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAD_S = 0.05
WINDOW_S = 0.25
MESSAGES_MAX = 1_000


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
