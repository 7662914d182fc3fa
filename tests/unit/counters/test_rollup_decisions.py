"""Which windows of a counter are final."""

from __future__ import annotations

from headgate.counters.model.decide_windows import GrainWindow, decide_final_before_us, windows_of

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
NOW_US = 1_000_000 * HOUR_US


def test_a_window_is_final_when_its_mutators_are_silent() -> None:
    final_us = decide_final_before_us(
        NOW_US, refuse_within_us=HOUR_US, token_window_us=15 * MINUTE_US, skew_us=500_000
    )
    assert NOW_US - HOUR_US - 1_000_000 == final_us


def test_a_window_is_final_when_no_token_can_add_to_it_any_more() -> None:
    final_us = decide_final_before_us(
        NOW_US, refuse_within_us=MINUTE_US, token_window_us=15 * MINUTE_US, skew_us=500_000
    )
    assert NOW_US - 16 * MINUTE_US == final_us


def test_windows_are_whole() -> None:
    assert [GrainWindow(MINUTE_US, MINUTE_US), GrainWindow(2 * MINUTE_US, MINUTE_US)] == windows_of(
        MINUTE_US, 1, 3 * MINUTE_US + 1
    )
    assert [] == windows_of(MINUTE_US, 1, 2 * MINUTE_US - 1)
    assert [] == windows_of(MINUTE_US, 5 * MINUTE_US, MINUTE_US)
