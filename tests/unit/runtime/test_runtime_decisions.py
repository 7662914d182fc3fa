"""Decisions of the worker runtime: retries, answers, rates, beats, health, endings. Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.contract import Ack, DeadLetterDelivery, Delivery, NackDelivery, Settle
from headgate.errors import InvalidRequest
from headgate.process.pacing import TokenBucket
from headgate.runtime.handler.decide_response import Response, decide_response, retry_after_s
from headgate.runtime.handler.decide_retry import (
    REJECT,
    Backoff,
    Reject,
    Retry,
    RetryPolicy,
    bounded_reason,
    decide_retry,
    delay_after,
)
from headgate.runtime.policy.decide_health import (
    DrainState,
    DrainStep,
    WorkerStatus,
    decide_liveness_problem,
    decide_readiness_problem,
)
from headgate.runtime.policy.decide_pace import Pace, Prefetch
from headgate.runtime.policy.decide_version import decide_version_problem
from headgate.runtime.policy.decide_visibility import beat_every_s, decide_beats

SECOND = 1_000_000

# ---- retries


@given(attempt=st.integers(1, 10_000), rng=st.floats(0, 1), first_s=st.floats(0, 100), cap_s=st.floats(100, 86_400))
def test_a_delay_is_never_above_its_bound_nor_the_cap(attempt: int, rng: float, first_s: float, cap_s: float) -> None:
    backoff = Backoff(first_s, 2.0, cap_s)
    assert 0 <= delay_after(backoff, attempt, rng) <= round(cap_s * SECOND)
    assert backoff.bound_s(attempt) <= backoff.bound_s(attempt + 1)


def test_the_bound_doubles_until_the_cap() -> None:
    assert [1, 2, 4, 8, 10, 10] == [Backoff(1, 2, 10).bound_s(attempt) for attempt in range(1, 7)]


@pytest.mark.parametrize("wrong", [(-1, 2, 5), (5, 2, 1), (1, 0.5, 5), (1, 2, math.inf), (math.nan, 2, 5)])
def test_a_backoff_that_cannot_be_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidRequest):
        Backoff(*wrong)


def delivered(attempt: int) -> Delivery:
    """That delivery of a message."""
    return Delivery("m1", b"", {}, None, attempt, 0, 0, 1, 0, "r")


def judged(error: BaseException, attempt: int = 1) -> Settle:
    """With everything drawn at its bound."""
    policy = RetryPolicy(
        Backoff(1, 2, 100), {LookupError: Backoff(50, 1, 50), KeyError: REJECT, ConnectionError: Backoff(0, 1, 0)}
    )
    return decide_retry(policy, error, delivered(attempt), jitter=1.0, reason="why")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ValueError(), NackDelivery("r", 4 * SECOND, "why")),
        (IndexError(), NackDelivery("r", 50 * SECOND, "why")),
        (KeyError(), DeadLetterDelivery("r", "why", 4 * SECOND)),
        (BrokenPipeError(), NackDelivery("r", 0, "why")),
        (Retry(after=3), NackDelivery("r", 3 * SECOND, "why")),
        (Retry(after=timedelta(minutes=2)), NackDelivery("r", 120 * SECOND, "why")),
        (Retry(), NackDelivery("r", 4 * SECOND, "why")),
        (Reject("no"), DeadLetterDelivery("r", "why", 4 * SECOND)),
        (SystemExit(3), NackDelivery("r", 4 * SECOND, "why")),
    ],
)
def test_the_most_specific_entry_of_the_table_counts(error: BaseException, verdict: Settle) -> None:
    assert verdict == judged(error, attempt=3)


def test_a_time_to_wait_is_not_negative() -> None:
    with pytest.raises(InvalidRequest):
        Retry(after=-1)


@given(first=st.text(max_size=300), rest=st.text(max_size=3_000), bytes_max=st.integers(50, 2_000))
def test_a_reason_is_bounded_and_ends_as_what_it_reports(first: str, rest: str, bytes_max: int) -> None:
    report = bounded_reason(first, rest, bytes_max=bytes_max)
    assert len(report.encode(errors="replace")) <= bytes_max
    if len(first.encode()) + len(rest.encode()) + 1 <= bytes_max:
        assert report == (f"{first}\n{rest}" if rest else first)


def test_of_a_long_traceback_the_end_is_kept() -> None:
    text = bounded_reason("ValueError: x", "\n".join(f"line {number}" for number in range(5_000)))
    assert text.startswith("ValueError: x\n[...]\n") and text.endswith("line 4999")
    assert 4_000 < len(text) <= 4_096


# ---- answers over HTTP


def answered(status: int, **more: str) -> Settle:
    """With everything drawn at its bound, at half past noon on a day in 2026."""
    response = Response(status, **more)
    now_s = 1_794_918_600.0  # Tue, 17 Nov 2026 12:30:00 GMT
    return decide_response(response, delivered(2), jitter=1.0, now_s=now_s, backoff=Backoff(1, 2, 100))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_done_whatever_the_headers_state(status: int) -> None:
    assert Ack("r") == answered(status, reject="no", retry_after="7")


@pytest.mark.parametrize(
    ("status", "retry_after", "delay_s"),
    [
        (429, "7", 7),
        (503, " 7 ", 7),
        (503, "Tue, 17 Nov 2026 12:31:00 GMT", 60),
        (503, "Tue, 17 Nov 2026 12:29:00 GMT", 0),
        (503, "99999999", 86_400),
        (503, "-7", 2),
        (503, "soon", 2),
        (503, "\u0667", 2),
        (503, None, 2),
        (500, "7", 2),
        (301, "7", 2),
        (404, None, 2),
    ],
)
def test_429_and_503_state_when_and_anything_else_is_a_failure(
    status: int, retry_after: str | None, delay_s: float
) -> None:
    verdict = answered(status, **({"retry_after": retry_after} if retry_after is not None else {}))
    assert NackDelivery("r", round(delay_s * SECOND), f"the handler answered {status}") == verdict


def test_a_handler_may_reject() -> None:
    assert DeadLetterDelivery("r", "rejected: gone\nbody", 2 * SECOND) == answered(410, reject="gone", body="body")


@given(st.text(max_size=40))
def test_no_retry_after_breaks_anything(signals: str) -> None:
    result = retry_after_s(signals, 0.0)
    assert result is None or 0 <= result <= 86_400


# ---- the rate


@given(
    per_s=st.floats(0.01, 1_000),
    steps=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 3)), max_size=60),
)
def test_never_more_than_the_rate_and_one_second_of_it_at_once(per_s: float, steps: list[tuple[int, float]]) -> None:
    bucket = TokenBucket(per_s)
    now_s = given_out = 0.0
    for wanted, passes_s in steps:
        now_s += passes_s
        given_out += bucket.take(wanted, now_s)
        assert given_out <= bucket.most + per_s * now_s + 0.001 * len(steps)


def test_what_was_not_used_is_there_again_and_after_the_wait_one_may_go() -> None:
    bucket = TokenBucket(5.0)
    assert 5 == bucket.take(9, 10.0)
    assert 0 == bucket.take(1, 10.0)
    assert bucket.wait_s() == pytest.approx(0.2)
    assert 1 == bucket.take(9, 10.0 + bucket.wait_s())
    bucket.give_back(1, 0, 10.0 + 0.2)
    assert 1 == bucket.take(9, 10.2)


def test_a_process_that_waited_long_for_what_he_may_take_takes_no_more_than_a_second_brings() -> None:
    bucket = TokenBucket(5.0)
    assert 5 == bucket.take(9, 10.0)
    bucket.give_back(5, 5, 10.9)
    assert 0 == bucket.take(9, 10.9)
    assert 1 == bucket.take(9, 11.1)


# ---- the version

UPGRADE = "upgrade the operator first, or build the image with the operator's version"
REBUILD = "build the image again with the operator's version"


@pytest.mark.parametrize(
    ("own", "operators", "expected"),
    [
        ("1.4.0", "1.4.2", None),
        ("1.4.2", "1.4.0", None),
        ("1.2.9", "1.4.0", None),
        ("1.1.9", "1.4.0", REBUILD),
        ("1.5.0", "1.4.9", UPGRADE),
        ("0.9.0", "1.0.0", REBUILD),
        ("2.0.0", "1.9.0", UPGRADE),
        ("0.1.0.dev3+g1", "0.1.0", None),
        ("v1.4", "1.4.0-rc1", None),
    ],
)
def test_a_worker_is_at_most_two_minors_older_than_its_operator_and_never_newer(
    own: str, operators: str, expected: str | None
) -> None:
    assert expected == decide_version_problem(own, operators)


@pytest.mark.parametrize(("own", "operators"), [("unknown", "1.0.0"), ("1.0.0", "latest"), ("1", "1.0")])
def test_what_is_no_version_fits_nothing(own: str, operators: str) -> None:
    assert "is not a version" in (decide_version_problem(own, operators) or "")


# ---- the pace while everything fails


def test_a_process_that_fails_at_everything_takes_one_at_a_time_with_longer_and_longer_pauses_until_one_is_done() -> (
    None
):
    pace = Pace.of(concurrency=16)
    assert [False] * 31 + [True] == [pace.went_wrong(100.0) for _ in range(32)]
    assert (0.5, 1, 0, 0) == (pace.rest_s(100.0), pace.slots_free(40, 0), pace.slots_free(39, 1), pace.rest_s(100.5))
    pauses = []
    for _ in range(7):
        assert not pace.went_wrong(200.0)
        pauses.append(pace.rest_s(200.0))
    assert [1, 2, 4, 8, 10, 10, 10] == pauses
    assert pace.went_well()
    assert (40, 0.0) == (pace.slots_free(40, 0), pace.rest_s(200.0))


def test_some_failures_among_what_is_done_slow_nobody_down() -> None:
    pace = Pace.of(concurrency=1)
    for _ in range(100):
        assert not any(pace.went_wrong(1.0) for _ in range(19))
        assert not pace.went_well()
    assert 5 == pace.slots_free(5, 90)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_a_tenant_whose_messages_all_fail_slows_nobody_down_after_a_thousand_messages(share: float) -> None:
    """A run of 32 failures comes every 280 messages where 90 % fail."""
    rng, pace, slowed = random.Random(7), Pace.of(concurrency=16), []
    for number in range(50_000):
        if rng.random() >= share:
            pace.went_well()
        elif pace.went_wrong(0.0):
            slowed.append(number)
    assert [] == [each for each in slowed if each >= 1_000]


def test_an_outage_slows_down_also_after_another_and_after_hours_of_success() -> None:
    pace = Pace.of(concurrency=16)
    for successes, failures_before in [(1, 32), (1, 200), (10_000, 32), (0, 200)]:
        for _ in range(successes):
            pace.went_well()
        assert failures_before >= next(number for number in range(1, 2_000) if pace.went_wrong(0.0))
        for _ in range(8):
            pace.went_wrong(0.0)
        pace.went_well()


# ---- beats


@dataclass
class Hand:
    """A message in flight."""

    until_s: float
    deadline_s: float = math.inf
    lost: bool = False
    overdue: bool = False


def test_what_is_past_its_half_is_extended_and_what_is_past_its_end_is_lost() -> None:
    deliveries = [
        Hand(106),
        Hand(104),
        Hand(100),
        Hand(99),
        Hand(108, 100),
        Hand(104, lost=True),
        Hand(99, overdue=True),
    ]
    beats = decide_beats(deliveries, now_s=100.0, visibility_s=8.0)
    assert ([1], [2, 3], [4]) == (beats.extend, beats.lost, beats.overdue)


@given(st.floats(0.1, 7 * 86_400))
def test_an_extension_can_be_tried_several_times_before_the_end(visibility_s: float) -> None:
    assert beat_every_s(visibility_s) <= max(visibility_s / 8, 0.05)


# ---- endings and health


def test_it_works_finishes_gives_back_and_a_second_word_ends_it_at_once() -> None:
    ending = DrainState(grace_s=10)
    assert DrainStep.WORK is ending.step(open_messages=5, now_s=0)
    report = ending.count_signal(100)
    assert DrainStep.FINISH is report.step(open_messages=5, now_s=109)
    assert DrainStep.GIVE_BACK is report.step(open_messages=0, now_s=101)
    assert DrainStep.GIVE_BACK is report.step(open_messages=5, now_s=110)
    assert DrainStep.END_AT_ONCE is report.count_signal(101).step(open_messages=5, now_s=101)
    assert 100 == report.count_signal(105).first_signal_s


def test_a_restart_is_asked_for_only_where_it_would_help() -> None:
    fine = WorkerStatus(turned_ago_s=1, slots=4, stuck=3, is_receiving=True, is_ending=False)
    assert (None, None) == (decide_liveness_problem(fine), decide_readiness_problem(fine))
    stuck = WorkerStatus(turned_ago_s=1, slots=4, stuck=4, is_receiving=True, is_ending=False)
    assert "all 4 handlers run past their timeout and cannot be stopped" == decide_liveness_problem(stuck)
    still = WorkerStatus(turned_ago_s=31, slots=4, stuck=0, is_receiving=True, is_ending=False)
    assert (
        "the receiving loop has made no progress for 31 s"
        == decide_liveness_problem(still)
        == decide_readiness_problem(still)
    )
    stopped = WorkerStatus(turned_ago_s=1, slots=4, stuck=0, is_receiving=True, is_ending=False, stops=1)
    assert (
        "a lane was taken from it: its loop hung, or another process owned it (1 times)"
        == decide_liveness_problem(stopped)
    )
    reasons = ("the loop of lanes has ended",)
    dead = WorkerStatus(turned_ago_s=1, slots=4, stuck=0, is_receiving=True, is_ending=False, dead_loops=reasons)
    assert "the loop of lanes has ended" == decide_liveness_problem(dead) == decide_readiness_problem(dead)
    ending = WorkerStatus(turned_ago_s=31, slots=4, stuck=4, is_receiving=False, is_ending=True)
    assert (None, "the worker is stopping") == (decide_liveness_problem(ending), decide_readiness_problem(ending))
    early = WorkerStatus(turned_ago_s=0, slots=4, stuck=0, is_receiving=False, is_ending=False)
    assert (None, "the worker does not receive yet") == (
        decide_liveness_problem(early),
        decide_readiness_problem(early),
    )


# ---- prefetch


def test_a_process_that_handles_nothing_yet_or_slowly_holds_as_many_messages_as_it_handles_at_once() -> None:
    prefetch = Prefetch(16)
    assert 16 == prefetch.wanted(0, 0.1)
    assert 16 == prefetch.wanted(50, 1.0)
    assert 16 == prefetch.wanted(100, 2.0)


def test_a_process_that_handles_fast_holds_what_it_handles_in_fifty_milliseconds_up_to_a_bound() -> None:
    prefetch = Prefetch(16)
    prefetch.wanted(0, 1.0)
    assert 200 == prefetch.wanted(4_000, 2.0)
    assert 200 == prefetch.wanted(4_100, 2.1), "a window is not judged before it is over"
    assert 1_000 == prefetch.wanted(104_000, 3.0)


def test_a_process_that_becomes_slow_holds_less_from_the_next_window_on() -> None:
    prefetch = Prefetch(4)
    prefetch.wanted(0, 1.0)
    prefetch.wanted(10_000, 2.0)
    assert 4 == prefetch.wanted(10_001, 2.3)
