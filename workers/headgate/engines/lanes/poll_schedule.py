"""The beat of a process: periodic loops wake at the same times, so that a process with a hundred lanes wakes a few
times per second, not hundreds of times, and their requests go out together.

Each process has a phase of its own, so that many on one machine do not wake at once. Renewals, and the rare reads of
empty lanes, share nothing. They go out at times of the lane's own: those of a thousand lanes would be one long turn
of the event loop. It decides nothing: a loop on the beat turns as often as without it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

TOO_NEAR = 1 / 8
"""A time nearer than this part of the interval is the one that was waited for, and not the next."""
SPREAD = 0.618
"""Multiples of it are spread evenly over a second, however many there are."""


@dataclass(frozen=True)
class Beat:
    """Times that are multiples of any given interval, by the event loop's clock."""

    phase_s: float = 0.0
    own_s: float = 0.0
    """How far behind the beat a lane's own times are."""

    def of_lane(self, number: int) -> Beat:
        """The same beat, with times of its own for each of many lanes."""
        return replace(self, own_s=number * SPREAD)

    def until_next_s(self, every_s: float, *, behind_s: float = 0.0) -> float:
        """How long it is to the next one."""
        left_s = every_s - (asyncio.get_running_loop().time() - self.phase_s - behind_s) % every_s
        return left_s if left_s >= every_s * TOO_NEAR else left_s + every_s

    def until_own_s(self, every_s: float) -> float:
        """How long it is to the lane's own next one."""
        return self.until_next_s(every_s, behind_s=self.own_s)
