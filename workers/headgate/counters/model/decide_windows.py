"""Windows: the grains of a counter's time series, and which of them make up a stretch of time. Pure.

A window is (grain, start), both in us; it begins at a multiple of its grain since 1970, in UTC. Its mutators end
`refuseWithin` after it, and are never collected: the partition expires as a whole.

A window is final when nothing will be counted in it any more: its mutators are silent `refuseWithin` after it, and an
update with a token is in the window once its minute is folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.counters.model.decide_tokens import MINUTE_US, decide_last_foldable
from headgate.errors import InvalidRequest
from headgate.expiry import SECOND_US

WINDOWS_MAX = 20_000
"""How many windows one read may merge."""


Place = tuple[int, int]
"""Where a state is written: a window by grain and start, or the total."""
TOTAL: Place = (0, 0)


class StretchInvalid(InvalidRequest):
    """The windows of this counter cannot represent such a range of time."""


@dataclass(frozen=True, slots=True, order=True)
class GrainWindow:
    start_us: int
    grain_us: int

    @property
    def end_us(self) -> int:
        return self.start_us + self.grain_us


def window_at(time_us: int, grain_us: int) -> GrainWindow:
    return GrainWindow(time_us - time_us % grain_us, grain_us)


def places_at(time_us: int, grains_us: Sequence[int]) -> tuple[Place, ...]:
    return (TOTAL, *((grain, time_us - time_us % grain) for grain in grains_us))


def ttl_s(window: GrainWindow, retention_us: int, now_us: int) -> int:
    """The time to live of a write now; zero or less where it would be expired already."""
    return -(-(window.end_us + retention_us - now_us) // SECOND_US)


def decide_windows(from_us: int, to_us: int, grains_us: Sequence[int]) -> list[GrainWindow]:
    """The fewest whole windows that make up [from, to): coarse ones where they fit, finer ones at the ends."""
    if not grains_us:
        raise StretchInvalid("This counter has no windows", remedy="create one with spec.windows")
    finest = min(grains_us)
    if from_us >= to_us or from_us % finest or to_us % finest:
        raise StretchInvalid(
            "A range must begin and end at whole windows of the finest grain", grain_s=finest / SECOND_US
        )
    windows: list[GrainWindow] = []
    _cover(from_us, to_us, sorted(grains_us, reverse=True), windows)
    return sorted(windows)


def _cover(from_us: int, to_us: int, grains_us: Sequence[int], windows: list[GrainWindow]) -> None:
    if from_us >= to_us:
        return
    grain, finer = grains_us[0], grains_us[1:]
    first, last = -(-from_us // grain) * grain, to_us // grain * grain
    if first >= last or not _divides(finer, first, last):
        _cover(from_us, to_us, finer, windows)
        return
    if len(windows) + (last - first) // grain > WINDOWS_MAX:
        raise StretchInvalid("Too many windows for one read", most=WINDOWS_MAX, remedy="read a shorter range")
    windows.extend(GrainWindow(start, grain) for start in range(first, last, grain))
    _cover(from_us, first, finer, windows)
    _cover(last, to_us, finer, windows)


def _divides(finer: Sequence[int], first: int, last: int) -> bool:
    """Whether the finer grains can represent the remaining ends at all."""
    return not finer or all(end % min(finer) == 0 for end in (first, last))


def decide_final_before_us(now_us: int, *, refuse_within_us: int, token_window_us: int, skew_us: int) -> int:
    silent_us = now_us - refuse_within_us - 2 * skew_us
    folded_us = (decide_last_foldable(now_us, token_window_us, skew_us) + 1) * MINUTE_US
    return min(silent_us, folded_us)


def windows_of(grain_us: int, from_us: int, until_us: int) -> list[GrainWindow]:
    start_us = -(-from_us // grain_us) * grain_us
    return [window_at(each, grain_us) for each in range(start_us, until_us - grain_us + 1, grain_us)]
