"""The beat of a process: periodic loops wake at the same times, so that a process with a hundred lanes wakes a few
times per second, not hundreds of times, and their requests go out together.

Each process has a phase of its own, so that many on one machine do not wake at once. It decides nothing: a loop on
the beat turns as often as without it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

TOO_NEAR = 1 / 8
"""A time nearer than this part of the interval is the one that was waited for, and not the next."""


@dataclass(frozen=True)
class Beat:
    """Times that are multiples of any given interval, by the event loop's clock."""

    phase_s: float = 0.0

    def until_next_s(self, every_s: float) -> float:
        """How long it is to the next one."""
        left_s = every_s - (asyncio.get_running_loop().time() - self.phase_s) % every_s
        return left_s if left_s >= every_s * TOO_NEAR else left_s + every_s

    async def next(self, every_s: float) -> None:
        """Wait for it."""
        await asyncio.sleep(self.until_next_s(every_s))
