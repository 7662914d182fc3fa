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
class Seen:
    """A worker, as it is now."""

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


def why_not_alive(seen: Seen) -> str | None:
    """The reason for a restart, if there is one."""
    if seen.is_ending:
        return None
    if seen.turned_ago_s > TURN_WITHIN_S:
        return f"the receiving loop has made no progress for {seen.turned_ago_s:.0f} s"
    if seen.stops:
        return f"a lane was taken from it: its loop hung, or another process owned it ({seen.stops} times)"
    if seen.dead_loops:
        return seen.dead_loops[0]
    if seen.slots and seen.stuck >= seen.slots:
        return f"all {seen.slots} handlers run past their timeout and cannot be stopped"
    return None


def why_not_ready(seen: Seen) -> str | None:
    """Why it receives nothing."""
    if seen.is_ending:
        return "the worker is stopping"
    if not seen.is_receiving:
        return "the worker does not receive yet"
    return why_not_alive(seen)
