"""The clocks of one simulated process: they may be wrong, step and drift; only the loop's own time is true.

Boottime runs through a pause of the process and of its machine; monotonic stands still while the machine is paused;
the wall may be set forwards and backwards at any time. Rule R1 and the attack A12 depend on these differences.
"""

from __future__ import annotations

from collections.abc import Callable

EPOCH_S = 1_767_225_600
"""The reading of a correct wall clock when the world begins: the first of January 2026, UTC."""


class VirtualClock:
    """The clocks of a process."""

    def __init__(
        self, true_time: Callable[[], float], *, booted_s: float = 0.0, epoch_us: int = EPOCH_S * 1_000_000
    ) -> None:
        self._epoch_us = epoch_us
        self._true_time = true_time
        self._anchor_s = true_time()
        self._elapsed_s = booted_s
        self._rate = 1.0
        self._wall_offset_s = self._anchor_s - booted_s
        self._frozen_s = 0.0
        self._frozen_since_s: float | None = None

    def boottime_s(self) -> float:
        """Seconds since its machine booted, pauses included."""
        return self._elapsed_s + (self._true_time() - self._anchor_s) * self._rate

    def monotonic_s(self) -> float:
        """As boottime, without the time in which the whole machine stood still."""
        now_s = self.boottime_s() if self._frozen_since_s is None else self._frozen_since_s
        return now_s - self._frozen_s

    def wall_us(self) -> int:
        """Microseconds since 1970, as this process believes."""
        return self._epoch_us + round((self.boottime_s() + self._wall_offset_s) * 1_000_000)

    def wall_s(self) -> float:
        """Seconds since 1970, as this process believes."""
        return self.wall_us() / 1_000_000

    def error_s(self) -> float:
        """How far the wall is from the truth; no process can read this."""
        return self.boottime_s() + self._wall_offset_s - self._true_time()

    def step(self, seconds: float) -> None:
        """Set the wall forwards or backwards; boottime does not notice."""
        self._wall_offset_s += seconds

    def run_at(self, rate: float) -> None:
        """Let boottime and wall drift from now on: 1.0 is true, 1.0001 gains 100 µs per second."""
        self._elapsed_s = self.boottime_s()
        self._anchor_s = self._true_time()
        self._rate = rate

    def freeze(self) -> None:
        """Its machine is paused: monotonic stands still."""
        if self._frozen_since_s is None:
            self._frozen_since_s = self.boottime_s()

    def thaw(self) -> None:
        """Its machine resumes; monotonic has missed the time between."""
        if self._frozen_since_s is not None:
            self._frozen_s += self.boottime_s() - self._frozen_since_s
            self._frozen_since_s = None
