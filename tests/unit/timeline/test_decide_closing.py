"""Decisions about rows that are ahead in a generation that is over, and about lanes that hold groups back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.timeline.lanes.decide_retire import (
    Ahead,
    batches,
    decide_row,
    is_over,
    lanes_before,
    lead_us,
    over_after_us,
)
from headgate.engines.timeline.model.settings import GenerationSettings

SECOND = 1_000_000


def row(order: int, *, count: int = 1, settled: int = 0, moved: bool = False) -> LaneRow:
    """A row that lies ahead."""
    return LaneRow(b"key", order, count, 100, settled=settled, moved={0: b"there"} if moved else {})


def test_what_needs_no_handing_out_is_not_moved() -> None:
    assert Ahead.NOTHING is decide_row(row(9, settled=1), 5, has_gone=False)
    assert Ahead.NOTHING is decide_row(row(9, settled=1, moved=True), 5, has_gone=False)


def test_what_is_due_before_the_cutoff_is_handed_out_here_and_all_later_is_moved() -> None:
    assert Ahead.LEAVE is decide_row(row(5), 5, has_gone=False)
    assert Ahead.MOVE is decide_row(row(6), 5, has_gone=False)


def test_a_row_of_several_messages_is_never_moved() -> None:
    assert Ahead.LEAVE is decide_row(row(6, count=2, settled=1), 5, has_gone=False)


def test_what_has_gone_is_finished_wherever_it_lies_and_what_moved_within_its_generation_beyond_the_cutoff() -> None:
    assert Ahead.FINISH is decide_row(row(4, moved=True), 5, has_gone=True)
    assert Ahead.LEAVE is decide_row(row(4, moved=True), 5, has_gone=False)
    assert Ahead.FINISH is decide_row(row(6, moved=True), 5, has_gone=False)


def test_a_generation_is_over_once_the_clocks_difference_has_passed_since_it_is_sure() -> None:
    ending = GenerationSettings(1, 3, until_us=50 * SECOND, sure_us=60 * SECOND)
    assert 61 * SECOND == over_after_us(ending, SECOND)
    assert not is_over(ending, now_us=61 * SECOND - 1, skew_us=SECOND)
    assert is_over(ending, now_us=61 * SECOND, skew_us=SECOND)


def test_a_generation_of_which_it_is_not_sure_is_never_over() -> None:
    announced = GenerationSettings(1, 3, until_us=50 * SECOND)
    assert not is_over(announced, now_us=10**18, skew_us=SECOND)


def test_what_is_stamped_for_at_once_falls_due_before_the_cutoff_whatever_the_lag() -> None:
    assert 31 * SECOND == lead_us(lag_us_max=30 * SECOND, lease_ttl_s=10, skew_us=SECOND // 2)
    assert 40 * SECOND == lead_us(lag_us_max=10 * SECOND, lease_ttl_s=20, skew_us=SECOND // 2)


def test_attack_C2_groups_are_held_back_by_every_lane_of_every_earlier_generation() -> None:
    generations = (GenerationSettings(3, 2), GenerationSettings(1, 1), GenerationSettings(2, 2))
    assert [(1, 0), (2, 0), (2, 1)] == lanes_before(generations, 3)
    assert [] == lanes_before(generations, 1)
    assert [(1, 0), (2, 0), (2, 1)] == lanes_before(generations[1:], 3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers()), max_size=60), st.integers(1, 7))
def test_batches_hold_every_row_once_in_its_partitions_order(rows: list[tuple[int, int]], rows_max: int) -> None:
    for partition in {each for each, _ in rows}:
        (mine,) = (of_one for of_one in batches([each for each in rows if each[0] == partition], rows_max))
        assert [number for each, number in rows if each == partition] == [each for batch in mine for each in batch]
    cut = [batch for of_one in batches(rows, rows_max) for batch in of_one]
    assert sorted(number for _, number in rows) == sorted(each for batch in cut for each in batch)
    assert all(0 < len(batch) <= rows_max for batch in cut)
