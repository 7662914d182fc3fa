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


class DrainStep(Enum):
    WORK = "work"
    FINISH = "finish"
    GIVE_BACK = "give back"
    END_AT_ONCE = "end at once"


@dataclass(frozen=True)
class DrainState:
    grace_s: float
    signals: int = 0
    first_signal_s: float = 0.0

    def count_signal(self, now_s: float) -> DrainState:
        return DrainState(self.grace_s, self.signals + 1, now_s if self.signals == 0 else self.first_signal_s)

    def step(self, *, open_messages: int, now_s: float) -> DrainStep:
        if self.signals == 0:
            return DrainStep.WORK
        if self.signals > 1:
            return DrainStep.END_AT_ONCE
        if open_messages and now_s - self.first_signal_s < self.grace_s:
            return DrainStep.FINISH
        return DrainStep.GIVE_BACK
