"""Rule R6: a reader that waits until a generation is over misses nothing that was still written to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.store.catalogue.decide_generation import (
    NOTICE_US,
    ChangeUnderWay,
    Generation,
    GenerationBroken,
    Generations,
    decide_next,
    decide_sure,
    first,
    is_over,
    knowledge,
    retired,
    shards_in_force,
    turned,
    written_at,
)
from headgate.store.catalogue.entry import generation_cells

NOW = 1_750_000_000_000_000
SKEW = 500_000
SECOND = 1_000_000


def announced(shards: int = 12, *, at_us: int = NOW) -> Generations:
    """Six shards, and more of them announced."""
    before = first(6)
    result = decide_next(before, shards, now_us=at_us, skew_us=SKEW)
    assert result is not None
    return replace(before, next=result)


def sure(generations: Generations, acknowledged_us: int = NOW) -> Generations:
    """With the time from which on the old one is written no more."""
    assert generations.next is not None
    return replace(generations, sure_us=decide_sure(generations.next, acknowledged_us=acknowledged_us, skew_us=SKEW))


@given(
    skew_us=st.integers(0, 5 * SECOND),
    landed_after_us=st.integers(0, 300 * SECOND),
    known_after_us=st.integers(0, 300 * SECOND),
    read_at_us=st.integers(-120 * SECOND, 700 * SECOND),
    wrote_after_us=st.integers(0, 120 * SECOND),
    clocks=st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)),
)
def test_nobody_writes_to_a_generation_that_is_over_for_anybody(
    skew_us: int,
    landed_after_us: int,
    known_after_us: int,
    read_at_us: int,
    wrote_after_us: int,
    clocks: tuple[float, float, float],
) -> None:
    """A producer, the operator and a reader, each with a clock of its own; times are true time."""
    operator_us, producer_us, reader_us = (round(each * skew_us) for each in clocks)
    before = first(6)
    announced_ = decide_next(before, 12, now_us=NOW + operator_us, skew_us=skew_us)
    assert announced_ is not None
    landed_us = NOW + landed_after_us
    acknowledged_us = landed_us + known_after_us
    sure_us = decide_sure(announced_, acknowledged_us=acknowledged_us + operator_us, skew_us=skew_us)
    after = replace(before, next=announced_, sure_us=sure_us)

    read_us = NOW + read_at_us
    wrote_us = read_us + wrote_after_us
    known = after if read_us >= landed_us else before
    if not knowledge(read_us + producer_us).still_holds(wrote_us + producer_us):
        return
    if written_at(known, wrote_us + producer_us).number == 1:
        assert not is_over(after, now_us=wrote_us + reader_us, skew_us=skew_us)


def test_without_the_wait_beyond_sure_a_producer_with_a_slow_clock_would_be_missed() -> None:
    """Why `is_over` waits for the clocks' difference on top: `sure` is the exact time at which the next begins."""
    generations = sure(announced(), acknowledged_us=NOW - 10 * SECOND)
    assert generations.next is not None
    assert generations.next.from_us == generations.sure_us
    slow_us = generations.sure_us - SKEW
    assert 1 == written_at(generations, slow_us).number
    assert not is_over(generations, now_us=generations.sure_us, skew_us=SKEW)
    assert is_over(generations, now_us=generations.sure_us + SKEW, skew_us=SKEW)


def test_an_announcement_that_landed_late_moves_the_time_and_not_the_beginning() -> None:
    """A8 (i): meant to begin in a minute, it landed 100 s later; an earlier reader knows the old one for a while."""
    late = sure(announced(), acknowledged_us=NOW + 100 * SECOND)
    assert NOW + 100 * SECOND + NOTICE_US + 2 * SKEW == late.sure_us


def test_the_next_generation_begins_when_everybody_can_know_of_it() -> None:
    assert Generation(2, 12, NOW + NOTICE_US + 2 * SKEW) == announced().next


def test_the_same_number_of_shards_makes_no_generation() -> None:
    assert decide_next(first(6), 6, now_us=NOW, skew_us=SKEW) is None
    assert decide_next(announced(12), 12, now_us=NOW, skew_us=SKEW) is None


def test_a_second_change_waits_for_the_first_and_shows_how_long() -> None:
    with pytest.raises(ChangeUnderWay, match=r"to=12, sure=True, left_s=62"):
        decide_next(sure(announced()), 8, now_us=NOW, skew_us=SKEW)
    with pytest.raises(ChangeUnderWay, match=r"sure=False, left_s=unknown"):
        decide_next(announced(), 8, now_us=NOW, skew_us=SKEW)


def test_until_it_is_sure_nothing_is_over_however_late_it_is() -> None:
    assert not is_over(announced(), now_us=NOW + 10**12, skew_us=SKEW)


def test_producers_write_to_the_next_from_its_beginning_on() -> None:
    generations = sure(announced())
    assert generations.next is not None
    begins_us = generations.next.from_us
    assert [1, 2] == [written_at(generations, time).number for time in (begins_us - 1, begins_us)]


def test_after_the_turn_the_old_one_waits_to_be_retired_with_its_times() -> None:
    before = sure(announced())
    assert before.next is not None
    after = turned(before)
    assert Generation(2, 12, before.next.from_us) == after.current
    assert [(1, before.next.from_us, before.sure_us), (2, None, None)] == [
        (window.number, window.until_us, window.sure_us) for window in after.windows()
    ]
    assert [2] == [window.number for window in retired(after, 1).windows()]


def test_all_windows_that_may_hold_messages_are_reported_oldest_first() -> None:
    assert [(1, 6), (2, 12)] == [(window.number, window.shards) for window in sure(announced()).windows()]
    assert 12 == shards_in_force(announced())


@pytest.mark.parametrize(
    "broken",
    [
        lambda: Generation(0, 4),
        lambda: Generation(1, 0),
        lambda: Generations(Generation(1, 4), Generation(3, 8)),
        lambda: Generations(Generation(1, 4), None, 17),
        lambda: turned(first(4)),
        lambda: turned(announced()),
        lambda: retired(first(4), 1),
    ],
)
def test_generations_that_cannot_be_are_bugs(broken: object) -> None:
    assert callable(broken)
    with pytest.raises(GenerationBroken):
        broken()


def test_the_cells_of_a_row_hold_all_of_it() -> None:
    cells = generation_cells(turned(sure(announced())))
    assert (2, 12, None, None) == tuple(
        cells[name] for name in ("generation", "shards", "next_generation", "sure_us")
    )
    assert isinstance(cells["earlier"], str)
    assert cells["earlier"].startswith("[[1, 6, 0, ")
