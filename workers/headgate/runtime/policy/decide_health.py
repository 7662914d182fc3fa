"""Whether a worker lives, whether it is ready, and how it stops. Pure.

A failing liveness check means that a restart would help. It fails when the receiving loop makes no progress, a lane
was taken from the process (its loop hung, or continued with another owner's lane), or a background loop for lanes,
members, catalogue or clock is dead. It also fails when every handler has run past its timeout and cannot be stopped.
An unavailable Cassandra is not a reason: a restart would not bring it back.

It stops in steps, from the first shutdown request on:

    working --request--> finishing --nothing open, or grace over--> giving back --> gone

- finishing: the worker receives nothing new; running handlers continue and are settled; received messages that have
  not started are returned without charge; lanes with nothing open are released.
- giving back: running handlers are stopped and their messages returned; a handler that cannot be stopped keeps its
  message hidden for the promised time; then the leases are released and the process ends.
At a second request it ends at once in any state, and the leases expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

TURN_WITHIN_S = 30.0


@dataclass(frozen=True)
class WorkerStatus:
    turned_ago_s: float
    slots: int
    stuck: int
    """Slots whose handler continues past its timeout."""
    is_receiving: bool
    is_ending: bool
    stops: int = 0
    """Lanes that had to be taken from it: their loop made no turn, or they were another's."""
    dead_loops: Sequence[str] = ()
    """Why background loops do nothing any more."""


def decide_liveness_problem(status: WorkerStatus) -> str | None:
    if status.is_ending:
        return None
    if status.turned_ago_s > TURN_WITHIN_S:
        return f"the receiving loop has made no progress for {status.turned_ago_s:.0f} s"
    if status.stops:
        return f"a lane was taken from it: its loop hung, or another process owned it ({status.stops} times)"
    if status.dead_loops:
        return status.dead_loops[0]
    if status.slots and status.stuck >= status.slots:
        return f"all {status.slots} handlers run past their timeout and cannot be stopped"
    return None


def decide_readiness_problem(status: WorkerStatus) -> str | None:
    if status.is_ending:
        return "the worker is stopping"
    if not status.is_receiving:
        return "the worker does not receive yet"
    return decide_liveness_problem(status)


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
