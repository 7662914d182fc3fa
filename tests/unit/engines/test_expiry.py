"""The argument of docs/internals/protocols/expiry.md, as properties over two clocks that differ by at most the
skew.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.expiry import Promise, PromiseBroken, is_separated, others_may_act, others_may_act_after

TIMES = st.integers(min_value=0, max_value=4_000_000_000_000_000)
SPANS = st.integers(min_value=0, max_value=100_000_000)
SKEWS = st.integers(min_value=0, max_value=5_000_000)


@st.composite
def two_clocks(draw: st.DrawFn) -> tuple[int, int, int]:
    """A skew, and by how much the writer's and the other's clock differ from true time: together at most the skew."""
    skew_us = draw(SKEWS)
    writer_us = draw(st.integers(-skew_us, skew_us))
    other_us = draw(st.integers(max(-skew_us, writer_us - skew_us), min(skew_us, writer_us + skew_us)))
    return skew_us, writer_us, other_us


@given(two_clocks(), TIMES, st.integers(1, 100_000_000), SPANS, st.data())
def test_the_writers_last_act_is_before_the_others_first(
    clocks: tuple[int, int, int], sent: int, lasts: int, late: int, data: st.DataObject
) -> None:
    skew_us, writer_us, other_us = clocks
    promise = Promise(sent + writer_us, lasts, data.draw(st.integers(0, lasts - 1)))
    wrote_at = data.draw(st.integers(sent, promise.silent_after_us - writer_us - 1))
    others_at = promise.others_may_act_after(skew_us) - other_us + late
    assert promise.still_holds(wrote_at + writer_us)
    assert wrote_at < others_at


@given(two_clocks(), TIMES, st.integers(1, 100_000_000), SPANS, st.data())
def test_a_margin_and_a_wait_that_cover_the_skew_together_separate_as_well(
    clocks: tuple[int, int, int], sent: int, lasts: int, late: int, data: st.DataObject
) -> None:
    skew_us, writer_us, other_us = clocks
    margin_us = data.draw(st.integers(0, lasts - 1))
    wait_us = max(0, skew_us - margin_us)
    assert is_separated(margin_us=margin_us, wait_us=wait_us, skew_us=skew_us)
    promise = Promise(sent + writer_us, lasts, margin_us)
    wrote_at = data.draw(st.integers(sent, promise.silent_after_us - writer_us - 1))
    others_at = promise.end_us + wait_us - other_us + late
    assert wrote_at < others_at


@given(SKEWS.filter(bool), TIMES, SPANS)
def test_waiting_a_microsecond_less_than_the_skew_would_not_do(skew_us: int, sent: int, lasts: int) -> None:
    assume(lasts > 0)
    promise = Promise(sent, lasts)
    others_clock_is_ahead_by = skew_us
    last_act_us = promise.silent_after_us - 1
    too_early_us = promise.others_may_act_after(skew_us) - 1 - others_clock_is_ahead_by
    assert promise.still_holds(last_act_us)
    assert too_early_us <= last_act_us
    assert not is_separated(margin_us=0, wait_us=skew_us - 1, skew_us=skew_us)


@given(TIMES, st.integers(1, 3600), SKEWS, st.integers(0, 999_999))
def test_a_ttl_ends_at_no_coordinator_before_its_owner_is_silent(
    sent: int, ttl_s: int, skew_us: int, fraction: int
) -> None:
    promise = Promise.of_ttl(sent, ttl_s, skew_us)
    earliest_write_us = sent - skew_us // 2
    expires_us = (earliest_write_us // 1_000_000 + ttl_s) * 1_000_000
    owner_when_it_expires_us = expires_us - skew_us // 2
    assert promise.silent_after_us <= owner_when_it_expires_us


def test_at_its_very_end_the_writer_is_silent_already() -> None:
    promise = Promise(sent_us=1_000, lasts_us=500)
    assert (True, False) == (promise.still_holds(1_499), promise.still_holds(1_500))


def test_an_acknowledgement_counts_from_the_time_the_request_was_sent() -> None:
    promise = Promise(sent_us=1_000, lasts_us=500, margin_us=100)
    assert 1_400 == promise.silent_after_us
    assert 1_500 == promise.end_us
    assert (150, 0) == (promise.left_us(1_250), promise.left_us(1_450))


def test_others_act_at_the_end_and_the_skew_and_not_before() -> None:
    assert 1_700 == others_may_act_after(1_500, 200)
    assert (False, True) == tuple(others_may_act(1_500, now_us=now, skew_us=200) for now in (1_699, 1_700))


def test_a_promise_until_a_time_that_is_past_never_holds() -> None:
    promise = Promise.until(900, sent_us=1_000)
    assert not promise.still_holds(1_000)


def test_a_clock_that_went_backwards_since_the_request_is_a_bug() -> None:
    with pytest.raises(PromiseBroken, match="backwards"):
        Promise(sent_us=1_000, lasts_us=500).still_holds(999)


@pytest.mark.parametrize(("lasts", "margin"), [(-1, 0), (0, -1)])
def test_a_promise_of_negative_time_cannot_be_made(lasts: int, margin: int) -> None:
    with pytest.raises(PromiseBroken):
        Promise(0, lasts, margin)


def test_clocks_that_differ_by_a_negative_time_are_a_bug() -> None:
    with pytest.raises(PromiseBroken):
        others_may_act_after(0, -1)
