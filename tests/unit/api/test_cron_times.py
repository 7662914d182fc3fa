"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.api.values.cron import CRON, due_after, due_before, is_due, shortest_gap_minutes
from tests.golden.cron.keeping import COUNT, read_cases

MONDAY = datetime(2026, 11, 16, 0, 0, tzinfo=UTC)


def due_in_week(schedule: str) -> list[str]:
    """The minutes of one week, from a Monday on, as `day hour:minute`."""
    minutes = (MONDAY + timedelta(minutes=number) for number in range(7 * 24 * 60))
    return [minute.strftime("%a %H:%M") for minute in minutes if is_due(schedule, minute)]


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        ("*/5 * * * *", 7 * 24 * 12),
        ("@hourly", 7 * 24),
        ("0 2 * * *", 7),
        ("0,30 2-3 * * *", 28),
        ("0 2 * * mon-fri", 5),
        ("10/20 5 * * *", 21),
        ("0 0 31 2 *", 0),
    ],
)
def test_a_schedule_is_due_as_often_as_it_states(schedule: str, times: int) -> None:
    assert times == len(due_in_week(schedule))


def test_names_and_numbers_of_days_are_the_same_and_sunday_is_zero() -> None:
    assert ["Sun 04:00"] == due_in_week("0 4 * * 0") == due_in_week("0 4 * * SUN")


def test_a_day_of_the_month_or_one_of_the_week_is_enough_where_both_are_reported() -> None:
    assert ["Tue 00:00", "Fri 00:00"] == due_in_week("0 0 17 * fri")


def test_a_month_that_is_not_reported_is_not_due() -> None:
    assert [] == due_in_week("0 0 * jan *")


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [
        ("* * * * *", 1),
        ("*/5 * * * *", 5),
        ("7-59/20 * * * *", 20),
        ("0,58 * * * *", 2),
        ("@hourly", 60),
        ("0 2,3 * * *", 60),
        ("0 2 * * *", 24 * 60),
        ("30 23 * * mon", 24 * 60),
        ("10 0,23 * * *", 60),
    ],
)
def test_the_shortest_gap_of_a_schedule_is_seen_across_hours_and_midnight(schedule: str, minutes: int) -> None:
    assert minutes == shortest_gap_minutes(schedule)


@pytest.mark.parametrize(
    ("schedule", "after", "before"),
    [
        ("*/5 * * * *", "2026-11-16 00:05", "2026-11-16 00:00"),
        ("0 2 * * *", "2026-11-16 02:00", "2026-11-15 02:00"),
        ("30 23 * * sun", "2026-11-22 23:30", "2026-11-15 23:30"),
        ("0 0 29 2 *", "2028-02-29 00:00", "2024-02-29 00:00"),
        ("0 0 31 2 *", None, None),
    ],
)
def test_the_next_and_the_last_time_are_found(schedule: str, after: str | None, before: str | None) -> None:
    time = MONDAY + timedelta(seconds=30)
    matches = [due_after(schedule, time), due_before(schedule, time)]
    assert [minute and minute.strftime("%Y-%m-%d %H:%M") for minute in matches] == [after, before]


def test_the_search_checks_no_further_than_it_was_reported() -> None:
    assert due_after("0 2 * * *", MONDAY, within=timedelta(hours=1)) is None
    assert due_before("0 2 * * *", MONDAY, within=timedelta(hours=1)) is None


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "10/20 5 * * *", "0 2 * * mon-fri", "0,30 2-3 1 * wed"])
def test_the_search_finds_what_a_walk_over_each_minute_finds(schedule: str) -> None:
    minutes = [MONDAY + timedelta(minutes=number) for number in range(4 * 24 * 60)]
    walked = [minute for minute in minutes if is_due(schedule, minute)]
    result, time = [], MONDAY - timedelta(minutes=1)
    while (minute := due_after(schedule, time)) is not None and minute <= minutes[-1]:
        result.append(minute)
        assert due_before(schedule, minute + timedelta(seconds=59)) == minute
        time = minute
    assert result == walked


@pytest.mark.parametrize(
    ("schedule", "days"),
    [
        ("0 0 */2 * mon", ["Mon 00:00", "Tue 00:00", "Thu 00:00", "Sat 00:00"]),
        ("0 0 */1 * mon", ["Mon 00:00"]),
        ("0 0 17,* * mon", ["Mon 00:00"]),
        ("0 0 17,*/7 * mon", ["Mon 00:00", "Tue 00:00", "Sun 00:00"]),
        ("0 0 17 * ?/3", ["Tue 00:00", "Wed 00:00", "Sat 00:00", "Sun 00:00"]),
    ],
)
def test_a_star_with_a_step_is_a_restriction_and_a_star_without_one_is_none(schedule: str, days: list[str]) -> None:
    assert sorted(days) == sorted(due_in_week(schedule))


def test_the_next_times_of_random_schedules_are_those_of_kubernetes() -> None:
    cases = list(read_cases())
    assert COUNT == len(cases)
    assert [] == [schedule for _, schedule, _ in cases if not CRON.accepts(schedule)]
    differing = [
        (schedule, start, next_time, result)
        for start, schedule, next_time in cases
        if (result := due_after(schedule, start)) != next_time
    ]
    assert [] == differing
