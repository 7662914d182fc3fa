"""The writes that producers and owners owe the summary, as docs/internals/protocols/summary.md decides."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.documents import overview_document
from headgate.cli.top import format_queues, rank_queues
from headgate.client.catalogue.overview import QueueOverview
from headgate.engines.summary.decide_figures import (
    COUNT_EVERY_US_MIN,
    NOT_COUNTED,
    Figures,
    LaneStand,
    OwnersRow,
    Rate,
    decide_figures,
    fresh,
    has_to_count,
    is_owed,
    next_count_us,
    with_total,
)
from headgate.engines.summary.decide_marks import AT_ONCE_US, PARTS_MAX, LastPut, LaterMark, Mark, Owed
from headgate.engines.summary.reading import COLUMNS, QueueFigures, combined, owners_of
from headgate.engines.summary.rows import NEXT_DUE, mark_statement

SECOND = 1_000_000
PART = 60 * SECOND
NOW = 100 * PART
QUEUE = UUID(int=7)


def write(owed: Owed, now_us: int) -> list[Mark]:
    """Write the owed marks."""
    marks = owed.marks(now_us)
    for mark in marks:
        owed.is_written(mark)
    return marks


def later(due_us: int) -> LaterMark:
    """The mark of the part that a message is due in."""
    return LaterMark(due_us, (due_us // PART + 1) * PART)


# ---- marks


def test_the_last_put_is_marked_with_the_time_at_which_it_is_due_and_once() -> None:
    owed = Owed(PART)
    owed.add([NOW + SECOND], sent_us=NOW)
    owed.add([NOW + SECOND // 2, NOW + 2 * SECOND], sent_us=NOW)
    assert [LastPut(NOW + 2 * SECOND)] == write(owed, NOW)
    assert [] == write(owed, NOW + SECOND)
    owed.add([NOW + SECOND], sent_us=NOW)
    assert [] == write(owed, NOW + SECOND)


def test_of_what_is_due_later_the_earliest_is_marked_and_the_next_when_its_time_has_come() -> None:
    owed = Owed(PART)
    first, second, third = NOW + 5 * PART, NOW + 7 * PART, NOW + 9 * PART
    owed.add([second, third], sent_us=NOW)
    assert [later(second)] == write(owed, NOW)
    owed.add([first], sent_us=NOW)
    assert [later(first)] == write(owed, NOW), "and the second, which it overwrites, is owed again"
    assert [] == owed.marks(first - 1)
    assert first == owed.next_us(NOW)
    assert [LastPut(first + PART), later(second)] == write(owed, first)
    owed.add([first + 30 * SECOND], sent_us=first)
    assert [] == write(owed, first + SECOND), "the last put covers the rest of that part"
    assert [LastPut(second + PART), later(third)] == write(owed, second)
    assert None is owed.next_us(second)
    assert [] == write(owed, third + PART), "nothing overwrites the last one"


def test_a_mark_becomes_a_last_put_before_it_is_overwritten_and_wakes_whom_it_woke() -> None:
    owed = Owed(PART)
    first, second = NOW + PART + 1, NOW + 3 * PART
    owed.add([first, second], sent_us=NOW)
    assert [later(first)] == write(owed, NOW)
    put, _ = owed.marks(first)
    before = QueueFigures(later=(later(first),))
    after = QueueFigures(put_us=put.due_us, later=(later(second),))
    for slept_us in (first - 1, first, NOW + 2 * PART - 1, NOW + 2 * PART):
        assert before.wakes(slept_us, now_us=first) == after.wakes(slept_us, now_us=first)
    owed.is_written(put)
    assert [later(second)] == owed.marks(first), "what could not be written is owed"


def test_one_mark_a_part_is_enough_also_for_what_comes_after_its_earliest_has_passed() -> None:
    owed = Owed(PART)
    owed.add([NOW + 10 * SECOND], sent_us=NOW)
    assert [later(NOW + 10 * SECOND)] == write(owed, NOW)
    owed.add([NOW + 50 * SECOND], sent_us=NOW + 20 * SECOND)
    assert [] == write(owed, NOW + 20 * SECOND)
    woken = QueueFigures(later=(LaterMark(NOW + 10 * SECOND, NOW + PART),))
    assert woken.wakes(NOW + 15 * SECOND, now_us=NOW + 20 * SECOND)
    assert not woken.wakes(NOW + PART, now_us=NOW + PART)


def test_what_was_not_the_earliest_and_falls_due_unmarked_is_reported_as_a_put() -> None:
    owed = Owed(PART)
    due_us = NOW + AT_ONCE_US + 1
    owed.add([due_us], sent_us=NOW)
    assert [LastPut(due_us)] == write(owed, due_us + SECOND)


def test_of_too_many_parts_the_furthest_are_forgotten() -> None:
    owed = Owed(PART)
    owed.add([NOW + part * PART for part in range(1, PARTS_MAX + 10)], sent_us=NOW)
    assert PARTS_MAX == len(owed.later)
    assert (NOW + 2 * PART, NOW + (PARTS_MAX + 1) * PART) == (min(owed.later), max(owed.later))


DELAYS = st.lists(st.integers(0, 6 * PART), min_size=1, max_size=8)


@given(
    puts=st.lists(st.tuples(st.integers(0, 30 * SECOND), DELAYS), min_size=1, max_size=12),
    slept=st.integers(0, 8 * PART),
)
def test_whenever_a_queue_fell_asleep_what_falls_due_afterwards_wakes_it(
    puts: list[tuple[int, list[int]]], slept: int
) -> None:
    """The table at the due time of each message: it has to wake a reader that had not read until then."""
    owed, now_us = Owed(PART), NOW
    dues: list[int] = []
    put_us, row = 0, None
    due_and_observed: list[tuple[int, QueueFigures]] = []
    steps = sorted({NOW + sum(gap for gap, _ in puts[: at + 1]) for at in range(len(puts))})
    by_step = {NOW + sum(gap for gap, _ in puts[: at + 1]): delays for at, (_, delays) in enumerate(puts)}
    for now_us in range(NOW, NOW + 14 * PART, SECOND):
        for step in [each for each in steps if now_us <= each < now_us + SECOND]:
            dues += [step + delay for delay in by_step[step]]
            owed.add([step + delay for delay in by_step[step]], sent_us=step)
        for mark in write(owed, now_us + SECOND):
            if isinstance(mark, LastPut):
                put_us = max(put_us, mark.due_us)
            else:
                row = mark
        observed = QueueFigures(put_us=put_us, later=(row,) if row else ())
        due_and_observed += [(due, observed) for due in dues if now_us <= due < now_us + SECOND]
    for due_us, observed in due_and_observed:
        slept_us = min(NOW + slept, due_us - 1)
        assert observed.wakes(slept_us, now_us=due_us + SECOND)


def test_of_two_puts_the_later_stays_and_of_two_marks_of_a_writer_the_one_written_last() -> None:
    def stamp(mark: Mark, stamp_us: int = NOW) -> int:
        statement = mark_statement(
            QUEUE, NEXT_DUE, mark, retention_us=60 * SECOND, stamp_us=stamp_us, last_expiry_s=2**31 - 2
        )
        return statement.timestamp_us

    assert stamp(LastPut(NOW + 1), NOW) > stamp(LastPut(NOW), NOW + 1)
    assert NOW + 1 == stamp(later(NOW + 5 * PART), NOW + 1)


# ---- figures

STAND = LaneStand(1, waiting=3, in_flight=2, oldest_us=50, answered=0, is_held=False, is_unread=False)


def test_figures_are_sums_over_lanes_and_the_oldest_is_the_least() -> None:
    stands = [
        STAND,
        replace(STAND, number=0, oldest_us=40, is_held=True),
        replace(STAND, oldest_us=None, is_unread=True),
    ]
    report = decide_figures(stands, 2.5)
    assert Figures(9, 6, 40, 2.5, 3, 1, 1, 0, NOT_COUNTED, 0) == report
    assert Figures() == decide_figures([], 2.5)


def test_rows_set_aside_are_summed_and_an_owner_of_an_earlier_release_reports_none() -> None:
    report = decide_figures([replace(STAND, unreadable=2), replace(STAND, unreadable=1)], 0.0)
    assert 3 == report.unreadable
    cells = dict.fromkeys(COLUMNS) | asdict(report) | {"at_us": NOW}
    rows = [SimpleNamespace(**cells), SimpleNamespace(**(cells | {"unreadable": None}))]
    assert (2, 3) == (len(owners_of(rows)), combined(rows, now_us=NOW).unreadable)


def test_the_rate_is_that_of_the_last_ten_seconds_over_lanes_that_come_and_go() -> None:
    rate = Rate()
    assert 0.0 == rate.at(0, {"a": 0})
    for second in range(1, 11):
        last = rate.at(second * SECOND, {"a": 10 * second, "b": 5 * second})
    assert 15.0 == last
    assert 13.5 == rate.at(11 * SECOND, {"c": 0})
    for second in range(12, 22):
        last = rate.at(second * SECOND, {"c": 0})
    assert 0.0 == last


def test_a_row_is_written_when_it_changes_and_else_only_so_that_it_does_not_expire() -> None:
    own = decide_figures([STAND], 0.0)
    assert is_owed(own, None, written_us=0, now_us=NOW)
    assert not is_owed(own, own, written_us=NOW, now_us=NOW + 5 * SECOND)
    assert is_owed(own, own, written_us=NOW, now_us=NOW + 6 * SECOND)
    assert is_owed(replace(own, backlog=4), own, written_us=NOW, now_us=NOW + SECOND)


def test_a_process_that_holds_no_lane_reports_it_once_and_then_nothing() -> None:
    assert not is_owed(Figures(), None, written_us=0, now_us=NOW)
    assert is_owed(Figures(), decide_figures([STAND], 0.0), written_us=NOW, now_us=NOW + SECOND)
    assert not is_owed(Figures(), Figures(), written_us=NOW, now_us=NOW + 60 * SECOND)


def other(figures: Figures, at_us: int = NOW) -> OwnersRow:
    """The row of another owner."""
    return OwnersRow("other", at_us, figures)


def test_one_owner_counts_the_queue_where_books_do_not_report_all_of_it() -> None:
    low, high = Figures(lanes=2, lowest=0), Figures(lanes=2, lowest=2)
    assert not has_to_count(low, [other(high)], lanes=4)
    behind = replace(high, unread=1)
    assert has_to_count(low, [other(behind)], lanes=4)
    assert not has_to_count(behind, [other(low)], lanes=4)
    assert has_to_count(low, [other(high)], lanes=5), "a lane that nobody holds"
    assert not has_to_count(Figures(), [], lanes=5)


def test_an_owner_whose_row_is_old_or_that_holds_nothing_is_none() -> None:
    low = Figures(lanes=1, lowest=0)
    assert [other(low)] == fresh([other(low), other(low, NOW - 15 * SECOND), other(Figures())], NOW)


@given(took_us=st.integers(0, 600 * SECOND))
def test_counting_takes_at_most_a_twentieth_of_the_time(took_us: int) -> None:
    again_us = next_count_us(NOW, NOW + took_us)
    assert 20 * took_us <= again_us - NOW
    assert again_us - NOW - took_us >= COUNT_EVERY_US_MIN


def test_a_count_replaces_the_row_until_the_next() -> None:
    assert Figures(lanes=1, total=12, total_oldest_us=9) == with_total(Figures(lanes=1), 12, 9)
    assert Figures(total=0, total_oldest_us=0) == with_total(Figures(), 0, None)


# ---- top


def shown(name: str, **figures: object) -> QueueOverview:
    """One queue, as `headgate top` gets it."""
    return QueueOverview(name, replace(QueueFigures(), **figures), NOW)  # type: ignore[arg-type]


QUEUES = [
    shown("shop/idle", workers=1, lanes=4, backlog=0),
    shown("shop/asleep", put_us=NOW - 60 * SECOND, later=(LaterMark(NOW + 90 * SECOND, NOW + 2 * PART),)),
    shown(
        "shop/behind", workers=2, lanes=4, backlog=700, in_flight=32, oldest_us=NOW - 75 * SECOND, rate=12.5, held=1
    ),
    shown("shop/busy", workers=1, lanes=4, backlog=0, in_flight=3),
]


def test_what_is_behind_comes_first_and_nobodys_queues_before_idle_ones() -> None:
    assert ["behind", "busy", "asleep", "idle"] == [each.name.removeprefix("shop/") for each in rank_queues(QUEUES)]


def test_top_shows_a_line_a_queue_and_states_where_nobody_is_at_work() -> None:
    lines = format_queues(rank_queues(QUEUES))
    assert 5 == len(lines)
    assert ["shop/behind", "700", "32", "1m15s", "12.5", "2", "4", "1", "-"] == lines[1].split()
    assert lines[3].endswith("no active workers, last put 1m ago")
    assert "1m30s" in lines[3].split()
    assert ["no queues"] == format_queues([])


def test_top_reports_programs_all_that_is_known() -> None:
    document = overview_document(QUEUES[2])
    assert ("shop/behind", 700, 75.0, 12.5) == tuple(
        document[name] for name in ("queue", "backlog", "oldest_age_s", "rate_per_s")
    )
    assert overview_document(QUEUES[1])["next_due_at"].endswith("Z")
