"""Whose turn it is among lanes: all have theirs within a quarter of a second, at whatever rate messages are taken."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from headgate.engines.lanes.delivery.round_robin import CYCLE_S, Turns
from headgate.engines.lanes.poll_schedule import Beat


def test_the_own_times_of_a_thousand_lanes_are_spread_over_the_second_and_their_polls_go_out_together() -> None:
    async def times() -> tuple[set[int], Counter[int]]:
        beats = [Beat(0.3).of_lane(number) for number in range(1_000)]
        now_s = asyncio.get_running_loop().time()
        polls = {round(now_s + each.until_next_s(0.4)) for each in beats}
        own = Counter(int((now_s + each.until_next_s(1.0, behind_s=each.own_s)) * 20) % 20 for each in beats)
        return polls, own

    polls, own = asyncio.run(times())
    assert 1 == len(polls)
    assert max(own.values()) <= 60


@pytest.mark.parametrize("rate", [1, 50, 800, 20_000])
@pytest.mark.parametrize("lanes", [1, 6, 96])
def test_all_lanes_have_their_turn_in_time_and_none_gives_less_than_one(lanes: int, rate: int) -> None:
    turns = Turns()
    for second in range(5):
        turns.gave(rate, last=0, now_s=float(second))
    share = turns.share(16, lanes)
    assert share >= max(1, 16 // lanes)
    assert share * lanes / rate <= CYCLE_S or share == max(1, 16 // lanes)


def test_a_process_that_comes_after_the_last_that_gave_is_asked_first() -> None:
    turns = Turns()
    assert [0, 1, 2, 3] == turns.order(4)
    turns.gave(5, last=1, now_s=0.0)
    assert [2, 3, 0, 1] == turns.order(4)
    turns.gave(0, last=3, now_s=0.0)
    assert [2, 3, 0, 1] == turns.order(4)
    turns.gave(1, last=3, now_s=0.0)
    assert [0, 1] == turns.order(2)


def test_a_rate_that_was_is_forgotten() -> None:
    turns = Turns()
    turns.gave(10_000, last=0, now_s=10.0)
    assert turns.share(1, 10) > 200
    turns.gave(1, last=0, now_s=30.0)
    assert 1 == turns.share(1, 10)
