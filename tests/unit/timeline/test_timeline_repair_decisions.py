"""The decisions of repair: which parts are due for which check, which cursor moves, where a late row goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.contract import PassEnd
from headgate.engines.timeline.inspect.repair_status import due_stretches
from headgate.engines.timeline.model.decide_place import decide_shard
from headgate.engines.timeline.model.decide_repair import (
    CHECKS,
    EVERYTHING,
    HOUR_US,
    LAST_CHECK,
    MINUTE_US,
    CheckTerms,
    Fixed,
    LateRowStep,
    Where,
    cursors_moved,
    decide_next_stretch,
    decide_place,
    decide_step,
    is_purged,
    shares,
)
from headgate.engines.timeline.model.repair_report import PROBLEMS_MAX, LateRowOutcome, RepairPassReport
from headgate.errors import Unavailable
from headgate.store.model.positions import Positions

SECOND = 1_000_000
DAY_US = 24 * HOUR_US
SKEW = SECOND // 2
TERMS = CheckTerms.of(
    part_us=MINUTE_US,
    skew_us=SKEW,
    late_write_us=MINUTE_US,
    hint_window_us=3 * HOUR_US,
    gc_grace_us=10 * DAY_US,
)
times_ = st.integers(0, 100 * DAY_US)


# ---- the schedule


def test_the_checks_are_after_a_minute_a_quarter_four_hours_and_the_grace() -> None:
    assert (MINUTE_US, 15 * MINUTE_US, 4 * HOUR_US, 10 * DAY_US) == TERMS.delays_us


@given(*[st.integers(0, 30 * DAY_US)] * 3)
def test_no_check_is_due_before_an_earlier_one_whatever_a_queue_is_set_to(
    late_us: int, hints_us: int, grace_us: int
) -> None:
    terms = CheckTerms.of(
        part_us=MINUTE_US, skew_us=SKEW, late_write_us=late_us, hint_window_us=hints_us, gc_grace_us=grace_us
    )
    assert sorted(terms.delays_us) == list(terms.delays_us)
    assert terms.delays_us[LAST_CHECK - 1] >= max(hints_us, grace_us)
    assert terms.delays_us[2] > hints_us, "what is kept for a node has reached it"


@given(st.sampled_from(CHECKS), times_)
def test_a_part_is_due_when_its_end_is_the_delay_ago_and_not_a_time_before(check: int, now_us: int) -> None:
    below = TERMS.due_below(check, None, now_us)
    assert below == 0 or TERMS.due_us(below - 1, check, None) <= now_us
    assert TERMS.due_us(below, check, None) > now_us


@given(st.sampled_from(CHECKS), times_, times_)
def test_of_an_ended_generation_all_parts_are_due_once_nobody_can_have_written_for_the_delay(
    check: int, sure_us: int, now_us: int
) -> None:
    below = TERMS.due_below(check, sure_us, now_us)
    over = now_us >= sure_us + SKEW + TERMS.delays_us[check - 1]
    assert over is (below == EVERYTHING)
    if not over:
        assert TERMS.due_us(below, check, sure_us) > now_us
        assert below == 0 or TERMS.due_us(below - 1, check, sure_us) <= now_us


def test_a_part_that_ends_in_years_is_due_as_its_generation_ended() -> None:
    in_years, sure_us = 10 * 365 * DAY_US // MINUTE_US, DAY_US
    assert sure_us + SKEW + MINUTE_US == TERMS.due_us(in_years, 1, sure_us)


# ---- cursors


def test_a_stretch_is_bounded_by_what_is_due_and_by_the_lanes_position() -> None:
    for due_below, passed_below, end in ((9, 20, 9), (20, 7, 7)):
        stretch = decide_next_stretch(1, {1: 3}, due_below=due_below, passed_below=passed_below, strongest=0)
        assert stretch is not None
        assert (3, end) == (stretch.start, stretch.end)


def test_nothing_is_checked_that_may_still_be_read() -> None:
    assert decide_next_stretch(4, {}, due_below=EVERYTHING, passed_below=0, strongest=0) is None


def test_a_later_check_counts_for_those_before_it() -> None:
    stretch = decide_next_stretch(2, {2: 3}, due_below=9, passed_below=9, strongest=8)
    assert stretch is not None
    assert (8, 9) == (stretch.start, stretch.end)
    assert {3: 8} == cursors_moved(3, 8, {1: 5, 2: 8, 4: 9}), "the first is of other parts too"
    assert {2: 8, 3: 8} == cursors_moved(3, 8, {1: 9, 2: 5})
    assert {} == cursors_moved(1, 8, {1: 8})


@given(st.dictionaries(st.sampled_from(CHECKS), st.integers(0, 50)), st.sampled_from(CHECKS), st.integers(0, 50))
def test_no_cursor_goes_back_and_none_of_a_later_check_moves(cursors: dict[int, int], check: int, up_to: int) -> None:
    moved = cursors_moved(check, up_to, cursors)
    assert all(each <= check and to > cursors.get(each, 0) for each, to in moved.items())


# ---- where a late row goes


@pytest.mark.parametrize(
    ("generation", "writable", "is_retired", "where"),
    [(2, 2, False, Where.ITS_LANE), (1, 2, True, Where.NOW), (1, 2, False, Where.NOWHERE)],
)
def test_a_late_row_goes_to_its_lane_or_to_now_and_never_into_a_lane_that_may_be_retired(
    generation: int, writable: int, is_retired: bool, where: Where
) -> None:
    assert where is decide_place(generation=generation, writable=writable, is_retired=is_retired)


USUAL = Fixed(
    is_this_row=False,
    is_passed=False,
    is_there=False,
    is_ahead=True,
    is_retired=False,
    is_writable=True,
)


@pytest.mark.parametrize(
    ("changed", "step"),
    [
        ({}, LateRowStep.WRITE),
        ({"is_there": True}, LateRowStep.DONE),
        ({"is_there": True, "is_ahead": False}, LateRowStep.WRITE),
        ({"is_passed": True, "is_this_row": True}, LateRowStep.DONE),
        ({"is_this_row": True, "is_there": True}, LateRowStep.FIX_AGAIN),
        ({"is_retired": True, "is_writable": False}, LateRowStep.FIX_AGAIN),
        ({"is_retired": True, "is_writable": False, "is_there": True}, LateRowStep.DONE),
        ({"is_retired": True, "is_there": True, "is_ahead": False}, LateRowStep.FIX_AGAIN),
        ({"is_writable": False}, LateRowStep.WAIT),
    ],
)
def test_what_is_done_about_a_place_that_is_fixed(changed: dict[str, bool], step: LateRowStep) -> None:
    assert step is decide_step(replace(USUAL, **changed))


def test_attack_D10_a_row_is_purged_when_all_of_it_was_put_before() -> None:
    assert is_purged([1, 2], 3)
    assert not is_purged([1, 3], 3)
    assert not is_purged([1], 0)


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"c"]), min_size=1), st.integers(0, 6), st.integers(7, 9))
def test_every_message_is_in_one_share_its_group_in_the_shard_of_now_and_the_places_own_share_last(
    groups: list[bytes], shard: int, shards: int
) -> None:
    made = shares(groups, len(groups), shard=shard, shards=shards)
    assert list(range(len(groups))) == sorted(index for indexes in made.values() for index in indexes)
    for to, indexes in made.items():
        assert sorted(indexes) == indexes
        assert {to} == {decide_shard(groups[index], shards) if groups[index] else shard for index in indexes}
    assert shard not in made or shard == list(made)[-1]


def test_where_the_shards_stay_the_same_a_row_stays_whole() -> None:
    assert {3: [0, 1]} == shares([b"a", b"b"], 2, shard=3, shards=None)
    assert {3: [0, 1]} == shares(None, 2, shard=3, shards=9)


# ---- the record of passed rows


POSITIONS = Positions(lambda: 5)


# ---- the report


def test_the_oldest_check_that_is_owed_is_reported() -> None:
    report = RepairPassReport()
    assert report.value(PassEnd.DONE).oldest_owed_us is None
    for since_us in (7, 5, 9):
        report.owes(since_us)
    report.outcomes[LateRowOutcome.PUT_AGAIN] += 2
    report.outcomes[LateRowOutcome.WAITS] += 1
    answer = report.value(PassEnd.STOPPED)
    assert (5, 3, 2, 1) == (answer.oldest_owed_us, answer.late, answer.put_again, answer.waiting)


def test_a_problem_is_reported_once_and_problems_are_bounded() -> None:
    report = RepairPassReport()
    for each in range(3 * PROBLEMS_MAX):
        report.failed(Unavailable("no answer", lane=each))
        report.failed(Unavailable("no answer", lane=each))
    assert PROBLEMS_MAX == len(set(report.problems)) == len(report.problems)


# ---- what is owed


def test_what_is_owed_is_due_passed_and_not_checked_and_what_is_too_old_is_owed_no_more() -> None:
    now_us = 1_000 * DAY_US
    now = now_us // MINUTE_US

    def owed(cursors: dict[int, int], passed_below: int = EVERYTHING) -> dict[int, tuple[int, int]]:
        result = due_stretches(TERMS, cursors, passed_below=passed_below, sure_us=None, now_us=now_us)
        return {check: (start, end) for check, start, end in result}

    lapsed = TERMS.distinguishable_from_us(now_us)
    assert {
        1: (lapsed, now - 1),
        2: (lapsed, now - 15),
        3: (lapsed, now - 240),
        4: (lapsed, now - 14_400 - 60),
    } == owed({})
    assert {} == owed({1: now - 1, 2: now - 15, 3: now - 240, 4: now - 14_400})
    assert {1: (now - 5, now - 1)} == owed({1: now - 5, 2: now - 15, 3: now - 240, 4: now - 14_400})
    assert {1: (now - 9, now - 3)} == owed({1: now - 9, 2: now, 3: now, 4: now}, passed_below=now - 3)
    assert {} == owed({}, passed_below=0)
