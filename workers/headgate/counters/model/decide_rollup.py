"""Which windows of a counter are final: nothing will be counted in them any more. Pure.

A window's mutators are silent `refuseWithin` after it. An update with a token may come until the token's minute
closes, and is in the window once that minute is folded.
"""

from __future__ import annotations

from headgate.counters.model.decide_tokens import MINUTE_US, decide_last_foldable
from headgate.counters.model.decide_windows import GrainWindow, window_at


def decide_final_before_us(now_us: int, *, refuse_within_us: int, token_window_us: int, skew_us: int) -> int:
    silent_us = now_us - refuse_within_us - 2 * skew_us
    folded_us = (decide_last_foldable(now_us, token_window_us, skew_us) + 1) * MINUTE_US
    return min(silent_us, folded_us)


def windows_of(grain_us: int, from_us: int, until_us: int) -> list[GrainWindow]:
    start_us = -(-from_us // grain_us) * grain_us
    return [window_at(each, grain_us) for each in range(start_us, until_us - grain_us + 1, grain_us)]
