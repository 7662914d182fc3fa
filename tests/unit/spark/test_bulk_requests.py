"""Requests of bulk jobs: those that a resource makes, and those that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.store.catalogue.entry import Entry, Name
from headgate_spark.jobs.request import (
    JobRequest,
    JobWrong,
    SinkRequest,
    bulk_of,
    bulk_of_entry,
    parse_time_us,
    rate_of,
    request_of,
)

NOW_US = 1_800_000_000_000_000


def job(**fields: Any) -> dict[str, Any]:
    """A job that would run at night."""
    return {"name": "nightly", "schedule": "0 2 * * *", **fields}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"mode": "drain", "handler": "m:f"}, {"mode": "drain", "handler": "m:f"}),
        ({"mode": "move", "target": "b", "rate": "60/m"}, {"mode": "move", "target": "shop/b", "rate": 1.0}),
        (
            {"mode": "drain", "sink": {"format": "headgate", "path": "other/b"}},
            {"mode": "drain", "target": "other/b"},
        ),
        (
            {"mode": "export", "sink": {"format": "json", "path": "s3a://b/x", "options": {"a": "b"}}},
            {"mode": "export", "sink": SinkRequest("json", "s3a://b/x", {"a": "b"})},
        ),
        ({"mode": "redrive", "where": "attempt > 3"}, {"mode": "redrive", "where": "attempt > 3"}),
    ],
)
def test_a_job_of_a_resource_is_read(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert request_of("shop/emails", bulk_of(job(**fields))) == JobRequest("shop/emails", "nightly", **wanted)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "drain"}, "drain needs one of"),
        ({"mode": "drain", "handler": "m:f", "target": "b"}, "drain needs one of"),
        ({"mode": "move"}, "move needs a target"),
        ({"mode": "redrive", "handler": "m:f"}, "redrive needs neither"),
        ({"mode": "export", "target": "b"}, "export needs a sink"),
        ({"mode": "export", "sink": {"format": "jdbc", "path": "jdbc:x"}}, "An export writes files"),
        ({"mode": "move", "target": "emails"}, "A queue cannot be its own target"),
        ({"mode": "drain", "handler": "not an entry point"}, "handler"),
        ({"mode": "burn"}, "mode"),
        ({"mode": "drain", "handler": "m:f", "rate": "fast"}, "rate"),
    ],
)
def test_a_job_that_cannot_be_done_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobWrong) as refused:
        request_of("shop/emails", bulk_of(job(**fields)))
    assert message in str(refused.value)
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize(
    ("path", "is_taken"), [("b", True), ("shop/b", True), ("evil/b", False), ("/b", False), ("shop/x/b", False)]
)
def test_a_job_of_the_catalogue_puts_into_no_other_namespace(path: str, is_taken: bool) -> None:
    jobs = [job(mode="drain", sink={"format": "headgate", "path": path})]
    entry = cast(Entry, SimpleNamespace(spec={"bulk": jobs}, name=Name("Queue", "shop", "emails")))
    if is_taken:
        assert "shop/b" == request_of("shop/emails", bulk_of_entry(entry, "nightly")).target
    else:
        with pytest.raises(JobWrong, match="a queue of another namespace"):
            bulk_of_entry(entry, "nightly")


def test_times_are_reported_or_counted_back() -> None:
    assert NOW_US - 86_400_000_000 == parse_time_us("24h", NOW_US)
    assert NOW_US - 95_000_000 == parse_time_us("1m35s", NOW_US)
    assert 1_767_225_600_000_000 == parse_time_us("2026-01-01T00:00:00Z", NOW_US)
    assert None is parse_time_us(None, NOW_US)


@pytest.mark.parametrize("text", ["", "yesterday", "24", "2026-13-45T00:00:00Z"])
def test_what_is_no_time_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(JobWrong, match=rf"given={text}\); write 2026-11-18T09:00:00Z"):
        parse_time_us(text, NOW_US)


def test_rates_are_a_second() -> None:
    assert [500.0, 10.0, 1.0, None] == [rate_of(each) for each in ("500/s", "600/m", "3600/h", None)]
