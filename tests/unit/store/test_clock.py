"""Every clause of rule R1 (and of schedule A12) as a decision: what the time is, and whether it may be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.store.clock.clock_state import (
    SET_THE_CLOCKS,
    TOO_LONG_AGO,
    TOO_SLOWLY,
    Bounds,
    ClockReading,
    ClockState,
    Doubt,
    Instant,
    NodeClockStatus,
    begin,
    best_reading,
    conclude,
    decide_probe,
    excluded,
    find_clock_problem,
    is_check_due,
    judge,
    notice,
    now_us,
    probed,
    trust,
    turn,
)

BOUNDS = Bounds()
HALF_US = BOUNDS.max_skew_us // 2
SECOND = 1_000_000
BOOT, WALL = 5_000 * SECOND, 1_750_000_000 * SECOND
START = Instant(BOOT, WALL)


def after(us: int, wall_step_us: int = 0) -> Instant:
    """A check of both clocks some time after the start."""
    return Instant(BOOT + us, WALL + us + wall_step_us)


def reading(node: str, ahead_us: int, *, at_us: int = 0, round_trip_us: int = 2_000) -> ClockReading:
    """The answer of a node ahead of our wall clock."""
    middle_us = WALL + at_us + round_trip_us // 2
    return ClockReading(node, BOOT + at_us, BOOT + at_us + round_trip_us, middle_us + ahead_us - 500)


def checked(
    ahead_us: Mapping[str, int | None], *, at_us: int = 0, state: ClockState | None = None, given_us: int = 0
) -> ClockState:
    """The state after a check at that time, where each node is ahead by this much, or does not answer."""
    readings = {node: None if each is None else reading(node, each, at_us=at_us) for node, each in ahead_us.items()}
    return conclude(
        turn(state or begin(START), after(at_us), BOUNDS),
        started=after(at_us),
        ended=after(at_us + 2_000),
        readings=readings,
        given_us=given_us,
        bounds=BOUNDS,
    )


AGREEING = {"a": 0, "b": 10_000, "c": -10_000}


def test_nothing_is_owned_before_the_first_check() -> None:
    state = begin(START)
    result = find_clock_problem(state, START, BOUNDS)
    assert result is not None
    assert Doubt.NEVER_ASKED.value == result.problem
    assert is_check_due(state, START, [], BOUNDS)


def test_a_check_in_which_all_agree_gives_trust() -> None:
    state = checked(AGREEING)
    assert find_clock_problem(state, after(2_000), BOUNDS) is None
    assert frozenset() == excluded(state, AGREEING)


@pytest.mark.parametrize("ahead_us", [-1, 1])
def test_the_bound_is_half_the_skew_less_half_the_round_trip(ahead_us: int) -> None:
    round_trip_us = 100_000
    allowed_us = HALF_US - round_trip_us // 2 - 501
    inside = judge(reading("a", ahead_us * allowed_us, round_trip_us=round_trip_us), WALL - BOOT, HALF_US)
    outside = judge(reading("a", ahead_us * (allowed_us + 2), round_trip_us=round_trip_us), WALL - BOOT, HALF_US)
    assert (NodeClockStatus.WITHIN, NodeClockStatus.UNCLEAR) == (inside.standing, outside.standing)


def test_an_answer_that_took_too_long_states_nothing_either_way() -> None:
    slow = judge(reading("a", 0, round_trip_us=SECOND), WALL - BOOT, HALF_US)
    assert NodeClockStatus.UNCLEAR == slow.standing


def test_a_node_that_is_beyond_for_sure_is_distinguished_from_one_that_is_unclear() -> None:
    assert NodeClockStatus.BEYOND == judge(reading("a", 300_000), WALL - BOOT, HALF_US).standing


@given(
    st.integers(-2 * SECOND, 2 * SECOND),
    st.integers(0, 400_000),
    st.floats(0, 1),
)
def test_a_node_within_is_truly_within_wherever_in_the_round_trip_it_read_its_clock(
    ahead_us: int, round_trip_us: int, where: float
) -> None:
    read_at_us = int(where * round_trip_us)
    node_us = (WALL + read_at_us + ahead_us) // 1_000 * 1_000
    result = judge(ClockReading("a", BOOT, BOOT + round_trip_us, node_us), WALL - BOOT, HALF_US)
    if result.standing is NodeClockStatus.WITHIN:
        assert abs(ahead_us) <= HALF_US
    if result.standing is NodeClockStatus.BEYOND:
        assert abs(ahead_us) > HALF_US - 1
    assert abs(ahead_us - result.difference_us) <= result.uncertainty_us + 1


def test_the_reading_with_the_shortest_round_trip_counts() -> None:
    readings = [reading("a", 0, round_trip_us=each) for each in (9_000, 2_000, 5_000)]
    assert readings[1] == best_reading(readings)
    assert best_reading([]) is None


def test_a_node_beyond_the_bound_is_no_coordinator_and_the_others_are() -> None:
    state = checked({"a": 0, "b": 900_000, "c": 0})
    assert frozenset({"b"}) == excluded(state, ["a", "b", "c"])
    assert find_clock_problem(state, after(2_000), BOUNDS) is None


def test_a_node_that_came_and_was_not_asked_yet_is_no_coordinator() -> None:
    state = checked(AGREEING)
    assert frozenset({"d"}) == excluded(state, ["a", "b", "c", "d"])
    assert is_check_due(state, after(SECOND), ["a", "b", "c", "d"], BOUNDS)


def test_a_node_that_did_not_answer_is_asked_again_soon_once_it_is_up() -> None:
    state = checked({"a": 0, "b": 0, "c": None})
    assert not is_check_due(state, after(2 * SECOND), ["a", "b"], BOUNDS)
    assert is_check_due(state, after(2 * SECOND), ["a", "b", "c"], BOUNDS)


def test_half_of_the_nodes_is_not_enough_since_the_other_half_may_agree_with_others() -> None:
    result = find_clock_problem(checked({"a": 0, "b": 900_000}), after(2_000), BOUNDS)
    assert result is not None
    assert ("b", 900_000, HALF_US, SET_THE_CLOCKS) == (result.node, result.by_us, result.bound_us, result.remedy)


def test_two_processes_that_are_trusted_differ_by_the_skew_at_most() -> None:
    """A12: P within the bound of its nodes, R of others, and 800 ms between P and R: one of them is refused."""
    nodes = {"a": -400_000, "b": 0, "c": 400_000}
    trusted = []
    for process_us in (-400_000, 0, 400_000):
        state = checked({node: each - process_us for node, each in nodes.items()})
        trusted.append(find_clock_problem(state, after(2_000), BOUNDS) is None)
    assert [False, False, False] == trusted


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(-600_000, 600_000), min_size=1),
    st.integers(-600_000, 600_000),
    st.integers(-600_000, 600_000),
)
def test_whatever_the_nodes_show_two_trusted_processes_differ_by_the_skew_at_most(
    nodes: dict[str, int], one_us: int, other_us: int
) -> None:
    trusted = [
        find_clock_problem(checked({node: each - own for node, each in nodes.items()}), after(2_000), BOUNDS) is None
        for own in (one_us, other_us)
    ]
    if all(trusted):
        assert abs(one_us - other_us) <= BOUNDS.max_skew_us


def test_out_of_bounds_reports_the_node_by_how_much_and_what_to_do() -> None:
    result = find_clock_problem(checked({"a": 400_000, "b": 812_000, "c": -10}), after(2_000), BOUNDS)
    assert result is not None
    assert "differ too much" in result.problem
    assert ("b", 812_000, SET_THE_CLOCKS) == (result.node, result.by_us, result.remedy)


def test_nodes_that_do_not_answer_are_named_with_another_remedy() -> None:
    result = find_clock_problem(checked({"a": 0, "b": None, "c": None}), after(2_000), BOUNDS)
    assert result is not None
    assert "too few nodes" in result.problem
    assert result.node in {"b", "c"}
    assert result.remedy is not None
    assert SET_THE_CLOCKS != result.remedy


def test_without_any_node_nothing_is_owned() -> None:
    result = find_clock_problem(checked({}), after(2_000), BOUNDS)
    assert result is not None
    assert "no node" in result.problem


def test_the_nodes_are_asked_every_minute() -> None:
    state = checked(AGREEING)
    times = (59 * SECOND, 60 * SECOND)
    assert [False, True] == [is_check_due(state, after(each), AGREEING, BOUNDS) for each in times]


def test_while_the_nodes_do_not_agree_they_are_asked_every_second() -> None:
    state = checked({"a": 900_000})
    times = (SECOND - 1, SECOND)
    assert [False, True] == [is_check_due(state, after(each), ["a"], BOUNDS) for each in times]


def test_trust_ends_when_no_check_succeeds_for_two_minutes_counted_from_its_start() -> None:
    state = checked(AGREEING)
    kept = replace(state, turned_boot_us=BOOT + 120 * SECOND)
    assert find_clock_problem(kept, after(120 * SECOND - 1), BOUNDS) is None
    result = find_clock_problem(kept, after(120 * SECOND), BOUNDS)
    assert result is not None
    assert TOO_LONG_AGO == result.problem


@pytest.mark.parametrize(("gap_us", "noticed"), [(SECOND, False), (SECOND + 1, True)])
def test_a_gap_above_a_second_between_turns_removes_the_trust(gap_us: int, noticed: bool) -> None:
    state = turn(checked(AGREEING), after(2_000), BOUNDS)
    check = after(2_000 + gap_us)
    state = notice(state, check, BOUNDS)
    result = find_clock_problem(state, check, BOUNDS)
    assert noticed == (result is not None)
    assert int(noticed) == state.pauses
    assert noticed == is_check_due(state, check, AGREEING, BOUNDS)


@pytest.mark.parametrize("step_us", [-3 * SECOND, 126_000, 3 * SECOND])
def test_a_step_of_the_wall_clock_removes_the_trust_at_the_next_check(step_us: int) -> None:
    check = after(100_000, wall_step_us=step_us)
    state = notice(checked(AGREEING), check, BOUNDS)
    result = find_clock_problem(state, check, BOUNDS)
    assert result is not None
    assert (Doubt.STEPPED.value, step_us) == (result.problem, result.by_us)
    assert 1 == state.steps


def test_small_steps_add_up_until_they_are_noticed() -> None:
    state = checked(AGREEING)
    for step in range(1, 4):
        state = notice(state, after(100_000, wall_step_us=60_000 * step), BOUNDS)
    assert Doubt.STEPPED == state.doubt


def test_a_check_that_notices_nothing_changes_nothing() -> None:
    state = checked(AGREEING)
    assert notice(state, after(200_000), BOUNDS) is state


def test_a_wide_bound_notices_steps_from_a_second_on_and_a_narrow_one_from_a_quarter_of_it() -> None:
    assert (SECOND, 125_000) == (Bounds(max_skew_us=60 * SECOND).step_us_max, Bounds().step_us_max)


def test_now_does_not_follow_a_step_of_the_wall_clock() -> None:
    state = checked(AGREEING)
    assert WALL + 100_000 == now_us(state, after(100_000, wall_step_us=-3 * SECOND), 0)


def test_now_never_goes_backwards() -> None:
    state = checked(AGREEING)
    assert WALL + 5 * SECOND == now_us(state, after(SECOND), WALL + 5 * SECOND)


def test_a_check_that_began_before_the_step_does_not_give_the_trust_back() -> None:
    stepped = notice(begin(START), after(10_000, wall_step_us=2 * SECOND), BOUNDS)
    state = conclude(
        stepped,
        started=after(5_000),
        ended=after(15_000, wall_step_us=2 * SECOND),
        readings={"a": reading("a", 0, at_us=5_000)},
        given_us=0,
        bounds=BOUNDS,
    )
    assert Doubt.STEPPED == state.doubt


def test_a_step_in_the_middle_of_a_check_is_noticed_when_it_ends() -> None:
    state = conclude(
        turn(begin(START), after(0), BOUNDS),
        started=after(0),
        ended=after(2_000, wall_step_us=3 * SECOND),
        readings={"a": reading("a", 0)},
        given_us=0,
        bounds=BOUNDS,
    )
    assert Doubt.STEPPED == state.doubt


def test_a_clock_set_wrong_while_we_run_does_not_move_ours() -> None:
    wrong_us = 30 * SECOND
    state = notice(checked(AGREEING), after(100_000, wall_step_us=wrong_us), BOUNDS)
    state = conclude(
        state,
        started=after(200_000, wrong_us),
        ended=after(202_000, wrong_us),
        readings={"a": reading("a", 0, at_us=200_000)},
        given_us=0,
        bounds=BOUNDS,
    )
    assert WALL - BOOT == state.offset_us
    assert find_clock_problem(state, after(202_000, wrong_us), BOUNDS) is None


def test_a_machine_that_was_stopped_takes_its_fixed_wall_clock_over() -> None:
    """A12: a virtual machine that stood still for 20 s with all its clocks, and had its wall clock corrected."""
    stopped_us = 20 * SECOND
    check = after(100_000, wall_step_us=stopped_us)
    state = notice(checked(AGREEING), check, BOUNDS)
    assert Doubt.STEPPED == state.doubt
    state = conclude(
        state,
        started=check,
        ended=after(102_000, stopped_us),
        readings={"a": reading("a", stopped_us, at_us=100_000)},
        given_us=0,
        bounds=BOUNDS,
    )
    assert find_clock_problem(state, after(102_000, stopped_us), BOUNDS) is None
    assert WALL + 102_000 + stopped_us == now_us(state, after(102_000, stopped_us), 0)


def test_a_machine_that_was_stopped_and_not_fixed_is_out_of_bounds_at_the_next_check() -> None:
    stopped_us = 20 * SECOND
    state = checked(dict.fromkeys("abc", stopped_us), state=checked(AGREEING), at_us=60 * SECOND)
    result = find_clock_problem(state, after(60 * SECOND + 2_000), BOUNDS)
    assert result is not None
    assert stopped_us == result.by_us


@pytest.mark.parametrize(
    ("moved_us", "noticed"), [(129_000, True), (-129_000, True), (125_000, False), (-125_000, False)]
)
def test_a_machine_that_was_stopped_with_both_clocks_is_in_doubt_at_the_next_probe(
    moved_us: int, noticed: bool
) -> None:
    state, at_us = checked(AGREEING), 5 * SECOND
    result = probed(state, reading("b", AGREEING["b"] + moved_us, at_us=at_us), after(at_us + 2_000), BOUNDS)
    assert (Doubt.MOVED if noticed else None) == result.doubt
    assert noticed == (find_clock_problem(result, after(at_us + 2_000), BOUNDS) is not None)
    assert noticed == is_check_due(result, after(at_us + 2_000), "abc", BOUNDS)


def test_a_probe_that_was_answered_slowly_or_by_a_node_that_always_differed_proves_nothing() -> None:
    state, at_us = checked({"a": 0, "b": 240_000, "c": 0}), 5 * SECOND
    slow = reading("a", 140_000, at_us=at_us, round_trip_us=40_000)
    for each in (slow, reading("b", 240_000, at_us=at_us), reading("unknown", SECOND, at_us=at_us)):
        assert state == probed(state, each, after(at_us + 40_000), BOUNDS)


def test_one_node_that_is_within_is_asked_in_turn_every_four_seconds() -> None:
    state = checked({"a": 0, "b": 10 * SECOND, "c": 0})
    assert [None] == [decide_probe(state, after(4 * SECOND - 1), 0, BOUNDS)]
    assert ["a", "c", "a"] == [decide_probe(state, after(4 * SECOND), turns, BOUNDS) for turns in range(3)]
    assert decide_probe(begin(START), after(60 * SECOND), 0, BOUNDS) is None


def test_a_time_given_before_the_clock_was_set_back_is_out_of_bounds_until_it_is_caught_up() -> None:
    ahead_us = 10 * SECOND
    given_us = WALL + ahead_us
    too_early = checked(AGREEING, given_us=given_us)
    caught_up = checked(AGREEING, at_us=ahead_us, given_us=given_us)
    assert find_clock_problem(too_early, after(2_000), BOUNDS) is not None
    assert find_clock_problem(caught_up, after(ahead_us + 2_000), BOUNDS) is None


def test_a_queue_with_a_narrower_bound_is_refused_where_others_are_served() -> None:
    state = checked({"a": 40_000, "b": 0, "c": 0})
    assert find_clock_problem(state, after(2_000), BOUNDS, 100_000) is None
    result = find_clock_problem(state, after(2_000), BOUNDS, 50_000)
    assert result is not None
    assert ("a", 25_000) == (result.node, result.bound_us)
    assert ("differ too much" in result.problem, SET_THE_CLOCKS) == (True, result.remedy)


def slowly_answered() -> ClockState:
    """A check in which the only node took 60 ms to answer, so that its clock may be 62.5 ms off, or not at all."""
    readings: dict[str, ClockReading | None] = {"a": reading("a", -32_000, round_trip_us=60_000)}
    return conclude(begin(START), started=START, ended=after(60_000), readings=readings, given_us=0, bounds=BOUNDS)


def test_an_answer_that_is_too_slow_for_a_narrow_bound_blames_no_clock() -> None:
    result = find_clock_problem(slowly_answered(), after(61_000), BOUNDS, 100_000)
    assert result is not None
    assert (TOO_SLOWLY, "a", 62_500, 50_000) == (result.problem, result.node, result.by_us, result.bound_us)
    assert find_clock_problem(slowly_answered(), after(61_000), BOUNDS) is None


def test_after_an_answer_that_is_too_slow_for_somebody_here_nodes_are_asked_every_second() -> None:
    times = (SECOND - 1, SECOND)
    narrow, wide = BOUNDS.serving(100_000), BOUNDS.serving(200_000)
    assert [False, True] == [is_check_due(slowly_answered(), after(each), ["a"], narrow) for each in times]
    assert [False, False] == [is_check_due(slowly_answered(), after(each), ["a"], wide) for each in times]


@given(
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-300_000, 300_000)), min_size=1),
    st.integers(2_000, 130 * SECOND),
    st.one_of(st.none(), st.integers(0, 700_000)),
    st.booleans(),
)
def test_what_is_judged_once_for_a_state_names_what_would_be_judged_at_each_use(
    ahead_us: dict[str, int | None], later_us: int, bound_us: int | None, doubted: bool
) -> None:
    state = checked(ahead_us)
    if doubted:
        state = notice(state, after(5 * SECOND), BOUNDS)
    result, check = trust(state, BOUNDS), after(later_us)
    fit = result is not None and check.boot_us < result.until_boot_us
    if result is not None and bound_us is not None:
        fit = fit and bound_us >= result.bound_us_min
    assert fit == (find_clock_problem(state, check, BOUNDS, bound_us) is None)


def test_bounds_that_serve_several_judge_nodes_by_the_widest_and_steps_by_the_narrowest() -> None:
    both = Bounds().serving(4 * SECOND).serving(100_000)
    assert (4 * SECOND, 25_000) == (both.max_skew_us, both.step_us_max)
    assert (500_000, 125_000) == (Bounds().serving(500_000).max_skew_us, Bounds().serving(500_000).step_us_max)
    assert 5_000 == Bounds().serving(60 * SECOND).serving(20_000).serving(1 * SECOND).step_us_max


def test_trust_that_was_judged_once_ends_two_minutes_after_its_check_began() -> None:
    result = trust(checked(AGREEING), BOUNDS)
    assert result is not None
    assert (BOOT + 120 * SECOND, True) == (result.until_boot_us, result.bound_us_min >= 20_000)
