"""Schedules: what a CronJob takes, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.values.cron import CRON
from tests.unit.api.api_cases import WRONG

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@pytest.mark.parametrize(
    "text",
    [
        "*/5 * * * *",
        "0 2 * * *",
        "0 2 * * MON-FRI",
        "0,15,30,45 9-17 * * 1-5",
        "5-59/10 0-23/2 1-31 1-12 0-6",
        "0 0 1 jan,jul ?",
        "@hourly",
        "@daily",
        "00 02 01 01 0",
        "9-10 * * * *",
        "7-7 * * * *",
    ],
)
def test_a_schedule_that_a_cron_job_takes_is_taken(text: str) -> None:
    assert CRON.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        *WRONG[CRON],
        "",
        "* * * * * *",
        "* * * * 7",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "@every 5m",
        "*/5 * * * *\n",
        "1-2-3 * * * *",
        "* * * feb-jan *",
        "* * * * mon-jan",
        "TZ=UTC * * * * *",
        "0," * 60 + "0 * * * *",
    ],
)
def test_a_schedule_that_a_cron_job_refuses_is_refused(text: str) -> None:
    assert not CRON.accepts(text)


@given(st.integers(0, 59), st.integers(0, 59), st.sampled_from(["{}", "{:02d}"]))
def test_a_range_of_numbers_runs_forward(first: int, last: int, written: str) -> None:
    assert CRON.accepts(f"{written.format(first)}-{written.format(last)} * * * *") == (first <= last)


@given(st.integers(0, 11), st.integers(0, 11))
def test_a_range_of_months_runs_forward(first: int, last: int) -> None:
    assert CRON.accepts(f"0 0 1 {MONTHS[first]}-{MONTHS[last]} *") == (first <= last)


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_range_of_days_runs_forward(first: int, last: int) -> None:
    assert CRON.accepts(f"0 0 * * {DAYS[first]}-{DAYS[last].upper()}") == (first <= last)
