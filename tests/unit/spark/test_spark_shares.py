"""A batch of a stream is as large as its bound where so much waits, however it lies in the lanes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate_spark.read.decide_stream_batch import decide_equal_shares, raised_shares


def taken(waiting: list[int], bound: int) -> int:
    """The number of messages of each batch, of lanes in which this number waits."""
    shares: list[int] | None = decide_equal_shares(bound, len(waiting))
    while shares is not None:
        last = shares
        shares = raised_shares(last, [min(*each) for each in zip(waiting, last, strict=True)], bound)
    return min(bound, sum(min(*each) for each in zip(waiting, last, strict=True)))


def test_equal_shares_where_all_have_enough() -> None:
    assert [75, 75, 75, 75] == decide_equal_shares(300, 4)
    assert raised_shares([75, 75, 75, 75], [75, 75, 75, 75], 300) is None


def test_what_one_lane_lacks_the_others_give() -> None:
    assert [100, 75, 100, 100] == raised_shares([75, 75, 75, 75], [75, 0, 75, 75], 300)


def test_a_row_that_holds_more_than_the_share_counts_for_the_share() -> None:
    assert raised_shares([2, 2], [100, 100], 4) is None
    assert [4, 2] == raised_shares([2, 2], [100, 0], 4)


def test_of_no_lanes_nothing_is_asked() -> None:
    assert [] == decide_equal_shares(300, 0)
    assert raised_shares([], [], 300) is None


@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(1, 1_000))
def test_a_batch_is_short_of_its_bound_only_where_no_more_waits(waiting: list[int], bound: int) -> None:
    assert min(bound, sum(waiting)) == taken(waiting, bound)
