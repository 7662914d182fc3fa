"""How a worker stops: its action at each time after the shutdown request. Pure.

    working --request--> finishing --nothing open, or grace over--> giving back --> gone

- finishing: the worker receives nothing new; running handlers continue and are settled; received messages that have
  not started are returned without charge; lanes with nothing open are released.
- giving back: running handlers are stopped and their messages returned; a handler that cannot be stopped keeps its
  message hidden for the promised time; then the leases are released and the process ends.
At a second request it ends at once in any state, and the leases expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Step(Enum):
    """The action to take now."""

    WORK = "work"
    FINISH = "finish"
    GIVE_BACK = "give back"
    END_AT_ONCE = "end at once"


@dataclass(frozen=True)
class Ending:
    """The number of shutdown requests, and the time of the first."""

    grace_s: float
    told: int = 0
    told_at_s: float = 0.0

    def tell(self, now_s: float) -> Ending:
        """One more shutdown request."""
        return Ending(self.grace_s, self.told + 1, now_s if self.told == 0 else self.told_at_s)

    def step(self, *, open_messages: int, now_s: float) -> Step:
        """The action, given the number of messages received and not settled."""
        if self.told == 0:
            return Step.WORK
        if self.told > 1:
            return Step.END_AT_ONCE
        if open_messages and now_s - self.told_at_s < self.grace_s:
            return Step.FINISH
        return Step.GIVE_BACK
