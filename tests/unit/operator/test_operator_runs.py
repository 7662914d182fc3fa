"""Runs of bulk jobs, as the operator reads them from SparkApplications and from the row of a job's figures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from headgate.engines.summary.pass_results import BULK_DONE, BULK_RUNS
from headgate.expiry import SECOND_US
from headgate_operator.model.names import GROUP, application_name
from headgate_operator.model.world import BulkRun
from headgate_operator.observe.bulk_runs import CLOCK_SKEW_MAX_US, JobReport, job_id, job_ids_of, runs_of

OWNER = "0b2c1a6e-9b53-4d4c-8a7e-3f1f0c9a7d11"
MADE_US = 1_763_456_400 * SECOND_US
MINUTE = MADE_US // (60 * SECOND_US)
NIGHTLY = job_id(OWNER, "nightly")
EXITED = "driver container failed with ExitCode: 2, Reason: Error"


def application(state: str, minute: int = MINUTE, *, why: str = "", bulk: str = "nightly") -> dict[str, Any]:
    """A SparkApplication of ours, made in the minute that called for it."""
    made = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "SparkApplication",
        "metadata": {
            "name": application_name("emails", bulk, minute),
            "uid": str(uuid4()),
            "labels": {f"{GROUP}/bulk": bulk},
            "ownerReferences": [{"uid": OWNER}],
            "creationTimestamp": made,
        },
        "status": {"applicationState": {"state": state, **({"errorMessage": why} if why else {})}},
    }


def only(document: dict[str, Any], report: JobReport | None) -> BulkRun:
    (run,) = runs_of([document], {} if report is None else {NIGHTLY: report})
    return run


def test_figures_of_a_run_are_those_that_the_job_reported_since_the_run_was_made() -> None:
    record = JobReport(MADE_US + SECOND_US, 70, 5, BULK_RUNS)
    run = only(application("RUNNING"), record)
    assert ("Running", 70, 5, "") == (run.state, run.done, run.failed, run.message)


@pytest.mark.parametrize(
    ("reported_us", "done"), [(MADE_US - CLOCK_SKEW_MAX_US, None), (MADE_US - CLOCK_SKEW_MAX_US + 1, 9), (MADE_US, 9)]
)
def test_what_an_earlier_run_reported_is_not_this_ones_and_clocks_may_be_a_little_apart(
    reported_us: int, done: int | None
) -> None:
    run = only(application("SUBMITTED"), JobReport(reported_us, 9, 0, BULK_DONE))
    assert ("Pending", done) == (run.state, run.done)


def test_of_several_runs_the_last_has_the_figures() -> None:
    values = {NIGHTLY: JobReport(MADE_US + 200 * SECOND_US, 9, 1, BULK_DONE)}
    runs = runs_of(
        [application("RUNNING", MINUTE + 2), application("COMPLETED"), application("FAILED", bulk="x")], values
    )
    assert [("nightly", "Succeeded", None), ("x", "Failed", None), ("nightly", "Running", 9)] == [
        (run.bulk, run.state, run.done) for run in runs
    ]


@pytest.mark.parametrize(
    ("state", "words", "message"),
    [
        ("FAILED", "the sink cannot be written (path=/x)", "the sink cannot be written (path=/x)"),
        ("FAILED", BULK_RUNS, EXITED),
        ("FAILED", BULK_DONE, EXITED),
        ("FAILED", None, EXITED),
        ("RUNNING", "no executor has come", "no executor has come"),
        ("RUNNING", BULK_RUNS, ""),
        ("COMPLETED", BULK_DONE, ""),
    ],
)
def test_a_run_gives_the_reason_it_failed_or_is_held_up_by_the_jobs_own_line_where_there_is_one(
    state: str, words: str | None, message: str
) -> None:
    report = None if words is None else JobReport(MADE_US + SECOND_US, 0, 0, words)
    assert message == only(application(state, why=EXITED if state == "FAILED" else ""), report).message


def test_the_rows_to_read_are_those_of_the_jobs_that_have_runs() -> None:
    deployment = {"kind": "Deployment", "metadata": {"name": "emails-1", "uid": "u"}}
    nobodys = application("RUNNING")
    del nobodys["metadata"]["ownerReferences"]
    of_a_person = application("RUNNING")
    of_a_person["metadata"]["labels"] = {}
    assert frozenset() == job_ids_of([deployment, nobodys, of_a_person])
    assert {NIGHTLY, job_id(OWNER, "x")} == job_ids_of(
        [application("RUNNING"), application("COMPLETED", MINUTE - 1), application("FAILED", bulk="x"), deployment]
    )
