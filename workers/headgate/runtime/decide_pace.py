"""How fast a worker goes on while everything fails. Pure.

When what a handler calls is away, every message fails, and at full speed a whole queue would spend its receives in a
minute and end among the dead letters. So once many in a row have failed and none was done, messages are taken one at
a time, with a pause after each failure that doubles up to a bound; the first that is done ends it. What is rejected
for good says nothing of what is away, and counts neither way.
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
        """What runs at the same time may fail at the same time for one short reason; twice that is no chance."""
        return cls(max(FAILURES_MIN, 2 * concurrency))

    @property
    def is_slow(self) -> bool:
        """Whether one message at a time is taken."""
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

    def room(self, room: int, in_hand: int) -> int:
        """How many messages more may be taken, of as many as there is room for."""
        return min(room, 1 - in_hand) if self.is_slow else room

    def rest_s(self, now_s: float) -> float:
        """Until the next may be taken."""
        return max(0.0, self.until_s - now_s)
