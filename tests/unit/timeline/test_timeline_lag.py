"""The safety lag in use: grows at once, doubles at a restamp, falls slowly, and never makes now + lag go back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.timeline.put.decide_row_ack import FALLS_BY, LAG_US_MAX, SAMPLES_MAX, Lag, LatencyWindow

SECOND = 1_000_000
SKEW = SECOND // 2


def lag() -> Lag:
    """One second, from time zero."""
    return Lag(SECOND, SKEW, 0)


def test_a_quick_cluster_is_stamped_by_the_safety_lag() -> None:
    mine = lag()
    for time in range(100):
        mine.write_took(2_000, time * 10_000)
    assert SECOND == mine.in_use_us(SECOND)


def test_attack_E1_the_lag_leaves_room_for_the_latency_that_was_seen() -> None:
    mine = lag()
    mine.write_took(2 * SECOND, 0)
    assert SKEW + 4 * SECOND == mine.in_use_us(0)
    assert mine.in_use_us(0) - SKEW > 2 * SECOND


def test_attack_E1_each_restamp_doubles_it_up_to_a_bound() -> None:
    mine = lag()
    observations = []
    for number in range(1, 7):
        mine.was_too_short(number, number)
        observations.append(mine.in_use_us(number) / SECOND)
    assert [2, 4, 8, 10, 10, 10] == [round(each) for each in observations]
    assert LAG_US_MAX == mine.in_use_us(7)


def test_of_flushes_that_were_sent_together_one_restamp_counts() -> None:
    mine = lag()
    for sent_us in (0, 5, 9):
        mine.was_too_short(sent_us, 10 + sent_us)
    assert 2 == round(mine.in_use_us(20) / SECOND)
    assert 3 == mine.restamps


def test_it_falls_when_the_latency_has_fallen() -> None:
    mine = lag()
    mine.was_too_short(1, 1)
    assert SECOND < mine.in_use_us(2 * SECOND) < 2 * SECOND
    assert SECOND == mine.in_use_us(FALLS_BY * SECOND + 10)


def test_a_safety_lag_above_the_bound_is_kept() -> None:
    mine = Lag(30 * SECOND, SKEW, 0)
    mine.was_too_short(1, 1)
    assert 30 * SECOND == mine.in_use_us(1)


EVENTS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=5 * SECOND),
        st.sampled_from(["took", "short", "nothing"]),
        st.integers(min_value=0, max_value=20 * SECOND),
    ),
    max_size=60,
)


@given(EVENTS)
def test_now_plus_lag_never_goes_back_while_latencies_do_not_age(events: list[tuple[int, str, int]]) -> None:
    mine = lag()
    now_us = stamped_us = 0
    for passed_us, what, latency_us in events:
        now_us += min(passed_us, SECOND // 2)  # sixty of these are within the minute that a latency is kept
        if what == "took":
            mine.write_took(latency_us, now_us)
        elif what == "short":
            mine.was_too_short(now_us, now_us)
        assert SECOND <= mine.in_use_us(now_us) <= LAG_US_MAX
        assert now_us + mine.in_use_us(now_us) >= stamped_us
        stamped_us = now_us + mine.in_use_us(now_us)


@given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=700))
def test_the_99th_percentile_is_that_of_the_newest_samples(latencies: list[int]) -> None:
    objects = LatencyWindow()
    for time, latency_us in enumerate(latencies):
        objects.add(latency_us, time)
    newest = sorted(latencies[-SAMPLES_MAX:])
    assert newest[len(newest) * 99 // 100] == objects.p99_us()


def test_latencies_older_than_a_minute_do_not_count() -> None:
    objects = LatencyWindow()
    objects.add(9 * SECOND, 0)
    objects.add(5, 61 * SECOND)
    assert 5 == objects.p99_us()
