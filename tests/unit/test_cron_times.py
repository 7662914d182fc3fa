"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.api.cron_times import is_due

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
def test_a_schedule_is_due_as_often_as_it_says(schedule: str, times: int) -> None:
    assert times == len(due_in_week(schedule))


def test_names_and_numbers_of_days_are_the_same_and_sunday_is_zero() -> None:
    assert ["Sun 04:00"] == due_in_week("0 4 * * 0") == due_in_week("0 4 * * SUN")


def test_a_day_of_the_month_or_one_of_the_week_is_enough_where_both_are_told() -> None:
    assert ["Tue 00:00", "Fri 00:00"] == due_in_week("0 0 17 * fri")


def test_a_month_that_is_not_told_is_not_due() -> None:
    assert [] == due_in_week("0 0 * jan *")
