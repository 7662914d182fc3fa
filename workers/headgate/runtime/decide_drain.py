"""How a worker ends: what it does at each moment after it was told to. Pure.

    working --told--> finishing --nothing open, or grace over--> giving back --> gone

- finishing: nothing new is received; what runs goes on and is settled; what was received and not begun is given back
  without charge; lanes with nothing open are given back.
- giving back: what still runs is stopped and given back; what can not be stopped stays hidden for as long as it was
  promised; then the leases go back and the process ends.
Told a second time it ends at once, whatever it does: then the leases run out by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Step(Enum):
    """What to do now."""

    WORK = "work"
    FINISH = "finish"
    GIVE_BACK = "give back"
    END_AT_ONCE = "end at once"


@dataclass(frozen=True)
class Ending:
    """How often it was told to end, and when first."""

    grace_s: float
    told: int = 0
    told_at_s: float = 0.0

    def tell(self, now_s: float) -> Ending:
        """Told once more."""
        return Ending(self.grace_s, self.told + 1, now_s if self.told == 0 else self.told_at_s)

    def step(self, *, open_messages: int, now_s: float) -> Step:
        """What to do, with so many messages received and not settled."""
        if self.told == 0:
            return Step.WORK
        if self.told > 1:
            return Step.END_AT_ONCE
        if open_messages and now_s - self.told_at_s < self.grace_s:
            return Step.FINISH
        return Step.GIVE_BACK
