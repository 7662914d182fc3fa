"""The time by which a caller wants its answer. One value is passed from the call of the application down to the
store, whose attempts get the time that is left. Pure: it knows no clock; times are those of the caller's event loop.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the event loop's clock, in seconds. Nothing is sent for the caller from then on."""

    at_s: float

    @classmethod
    def after(cls, timeout_s: float, *, now_s: float) -> Deadline:
        """The end of a timeout that begins now."""
        return cls(now_s + timeout_s)

    def left_s(self, now_s: float) -> float:
        return max(0.0, self.at_s - now_s)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.at_s
