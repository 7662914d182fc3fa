"""Whether a worker lives, and whether it is ready. Pure.

A failing liveness check means that a restart would help. It fails when the receiving loop makes no progress, a lane
was taken from the process (its loop hung, or continued with another owner's lane), or a background loop for lanes,
members, catalogue or clock is dead. It also fails when every handler has run past its timeout and cannot be stopped.
An unavailable Cassandra is not a reason: a restart would not bring it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
