"""Batches of bulk jobs: what they hold, what becomes of their messages, how they are written down and divided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_spark.engines.contract import Pick, RangePlan
from headgate_spark.engines.timeline.ids import TimelineIds
from headgate_spark.jobs.decide_batch import (
    BatchDecision,
    BatchPlan,
    IdUnknown,
    Reported,
    RowOutcomeUnknown,
    all_done,
    decide_outcomes,
    masked,
    pause_s,
    shares_of,
    without_dead,
)
from headgate_spark.jobs.plan_bytes import (
    Committed,
    PlanBroken,
    decode_committed,
    decode_plan,
    encode_committed,
    encode_plan,
)

ROW, OTHER, ELSEWHERE = b"row-of-25-letters--------", b"other-row----------------", b"where-it-was-put-first---"


def plan_of(*masks: int, aliases: dict[bytes, tuple[int, int]] | None = None) -> BatchPlan:
    """One range, a pick for each mask."""
    picks = tuple(Pick(7, b"key-%d" % number, mask) for number, mask in enumerate(masks))
    return BatchPlan((RangePlan("1/0", b"loan", 3, 1_000, picks, aliases or {}, 50),), 900)


class Ids(TimelineIds):
    """The rows of the first two picks have these names."""

    def row_of(self, lane: str, key: bytes) -> bytes:
        return {b"key-0": ROW, b"key-1": OTHER}[key]


IDS = Ids()


def test_what_succeeded_is_settled_what_died_is_dead_and_the_rest_stays() -> None:
    message = [
        Reported(ROW, "done", 0b0011),
        Reported(ROW, "dead", 0b0100, "invalid address"),
        Reported(OTHER, "return", 0b1),
    ]
    decided = decide_outcomes(plan_of(0b1111, 0b11), IDS, message)
    assert decided == BatchDecision(
        done={(0, 0): 0b0011},
        dead={(0, 0): 0b0100},
        reasons={ROW + (2).to_bytes(2, "little"): "invalid address"},
        returned=3,
    )
    assert decided.counts == (2, 1, 3)


@pytest.mark.parametrize("other", ["return", "dead"])
def test_what_was_reported_twice_and_not_alike_stays(other: str) -> None:
    decided = decide_outcomes(plan_of(0b1), IDS, [Reported(ROW, "done", 1), Reported(ROW, other, 1)])
    assert (decided.done, decided.dead, decided.reasons, decided.returned) == ({}, {}, {}, 1)


def test_the_same_reported_twice_counts_once() -> None:
    decided = decide_outcomes(plan_of(0b1), IDS, [Reported(ROW, "done", 1), Reported(ROW, "done", 1)])
    assert decided.counts == (1, 0, 0)


def test_a_copy_is_found_by_the_id_that_it_was_first_given() -> None:
    plan = plan_of(0b1, 0b10, aliases={ELSEWHERE + b"\x05\x00": (1, 1)})
    decided = decide_outcomes(plan, IDS, [Reported(ELSEWHERE, "done", 1 << 5)])
    assert decided.done == {(0, 1): 0b10}


def test_a_copy_of_a_message_whose_first_row_is_in_the_batch_too_is_distinguished_from_it() -> None:
    plan = plan_of(0b01, 0b1, aliases={ROW + b"\x01\x00": (1, 0)})
    decided = decide_outcomes(plan, IDS, [Reported(ROW, "done", 0b11)])
    assert decided.done == {(0, 0): 0b01, (0, 1): 0b1}


@pytest.mark.parametrize("mask", [0b10, 0b11])
def test_an_id_that_was_not_given_out_settles_nothing(mask: int) -> None:
    with pytest.raises(IdUnknown):
        decide_outcomes(plan_of(0b01), IDS, [Reported(ROW, "done", mask)])


def test_an_outcome_that_is_none_settles_nothing() -> None:
    with pytest.raises(RowOutcomeUnknown, match="done, return, dead"):
        decide_outcomes(plan_of(0b01), IDS, [Reported(ROW, "ok", 1)])


def test_without_a_dead_letter_queue_what_died_stays() -> None:
    decided = decide_outcomes(plan_of(0b11), IDS, [Reported(ROW, "done", 1), Reported(ROW, "dead", 2, "why")])
    assert without_dead(decided) == BatchDecision(done={(0, 0): 1}, returned=1)


def test_a_part_of_a_plan_keeps_its_aliases_under_their_new_numbers() -> None:
    plan = plan_of(0b11, 0b111, aliases={b"a": (0, 1), b"b": (1, 2), b"c": (1, 0)})
    part = masked(plan, {(0, 1): 0b100})
    assert part.ranges[0].picks == (Pick(7, b"key-1", 0b100),)
    assert part.ranges[0].aliases == {b"b": (0, 2)}


MASKS = st.lists(st.integers(1, 2**70), min_size=0, max_size=30)


@given(st.lists(MASKS, max_size=4), st.integers(0, 2**62))
def test_a_plan_comes_back_from_its_bytes_as_it_was(lanes: list[list[int]], time_us: int) -> None:
    ranges = tuple(
        replace(plan_of(*masks, aliases={b"id": (0, 3)}).ranges[0], lane=f"1/{number}", deadline_us=time_us)
        for number, masks in enumerate(lanes)
    )
    plan = BatchPlan(ranges, time_us)
    assert decode_plan(encode_plan(plan)) == plan
    committed = Committed(plan, masked(plan, {}), {b"id": "weil"}, "4-attempt")
    assert decode_committed(encode_committed(committed)) == committed


@pytest.mark.parametrize("stored", [b"", b"\x02abc", b"\x01abc", encode_plan(plan_of(1, 2))[:-1]])
def test_a_plan_that_cannot_be_read_is_refused(stored: bytes) -> None:
    with pytest.raises(PlanBroken):
        decode_plan(stored)


@given(st.lists(MASKS, max_size=4), st.integers(1, 12))
def test_tasks_get_every_pick_once_in_order_and_about_as_much_each(lanes: list[list[int]], tasks: int) -> None:
    plan = BatchPlan(tuple(replace(plan_of(*masks).ranges[0], lane=f"1/{lane}") for lane, masks in enumerate(lanes)))
    shares = shares_of(plan, tasks)
    given_out = [(lane, pick) for share in shares for lane, picks in share for pick in picks]
    assert given_out == [(one.lane, pick) for one in plan.ranges for pick in one.picks]
    largest = max((pick.messages for one in plan.ranges for pick in one.picks), default=0)
    wanted = -(-plan.messages // tasks)
    for share in shares:
        messages = sum(pick.messages for _, picks in share for pick in picks)
        assert messages < wanted + largest
    assert len(shares) <= tasks


def test_a_sink_takes_all_of_a_batch() -> None:
    plan = plan_of(0b101, 0b1)
    assert masked(plan, all_done(plan).done) == plan


def test_a_rate_is_kept_by_waiting() -> None:
    assert (pause_s(500, 100.0, 2.0), pause_s(500, 100.0, 9.0), pause_s(500, None, 0.0)) == (3.0, 0.0, 0.0)
