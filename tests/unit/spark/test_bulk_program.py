"""The program of bulk jobs takes what the operator gives it, and what people write; what is wrong is one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkRuntimeError

from headgate.api.resources.bulk import Bulk
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import Entry, EntryState, Name, StoragePlace
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.manifests.spark_application import arguments
from headgate_operator.model.names import Key
from headgate_operator.observe.bulk_runs import job_id as operators_job_id
from headgate_spark import bulk_program
from headgate_spark.jobs import show_progress
from headgate_spark.jobs.request import JobRequest, SinkRequest, job_id
from headgate_spark.process import session, worker_connection

CREATION = UUID("11111111-2222-4333-8444-555555555555")
NIGHTLY = {"name": "nightly", "mode": "move", "schedule": "0 2 * * *", "target": "other", "rate": "500/s"}
UID = "0b2c1a6e-9b53-4d4c-8a7e-3f1f0c9a7d11"


def entry_of(name: str, spec: dict[str, Any], *, owner: str = "cli/me") -> Entry:
    """As the catalogue has a queue."""
    document = {"kind": "Queue", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}
    place = StoragePlace("dc1", "headgate", "dedicated")
    return Entry(Name("Queue", "shop", name), CREATION, owner, EntryState.ACTIVE, 1, document, place, first(3), 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[JobRequest]:
    """The jobs that the program would run, for a queue with one job."""
    matches: list[JobRequest] = []

    def run(_options: dict[str, Any], request: Callable[[Any], JobRequest]) -> None:
        matches.append(request(entry_of("emails", {"bulk": [NIGHTLY]})))

    monkeypatch.setattr(bulk_program, "_run", run)
    return matches


def test_what_the_operator_gives_is_a_job_of_the_catalogue(asked: list[JobRequest]) -> None:
    bulk = Bulk.model_validate(NIGHTLY)
    report = arguments(ChildOwner(Key("Queue", "shop", "emails"), UID), bulk, "emails-nightly-1a2b")
    done = CliRunner().invoke(bulk_program.command, report)
    assert (0, "") == (done.exit_code, done.output)
    assert [JobRequest("shop/emails", "nightly", "move", target="shop/other", rate=500.0)] == asked


def test_the_operator_searches_for_the_figures_where_the_job_reports_them() -> None:
    entry = entry_of("emails", {"bulk": [NIGHTLY]}, owner=f"operator/some-cluster/{UID}")
    assert operators_job_id(UID, "nightly") == job_id(entry, "nightly")
    by_hand = entry_of("emails", {}, owner="cli/me")
    assert UUID(UID) != by_hand.id
    assert operators_job_id(str(by_hand.id), "nightly") == job_id(by_hand, "nightly")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "drain shop/emails --handler m:f --batch-size 500 --visibility 2m --where attempt>3",
            {
                "name": "drain",
                "mode": "drain",
                "handler": "m:f",
                "where": "attempt>3",
                "batch_messages": 500,
                "reservation_s": 120.0,
            },
        ),
        (
            "export shop/emails --sink parquet:s3a://b/x --sink-option a=b --name history",
            {
                "name": "history",
                "mode": "export",
                "sink": SinkRequest("parquet", "s3a://b/x", {"a": "b"}),
            },
        ),
        ("redrive shop/emails --rate 60/m", {"name": "redrive", "mode": "redrive", "rate": 1.0}),
        (
            "replay shop/emails --to other --since 24h",
            {"name": "replay", "mode": "replay", "target": "shop/other", "from_": "24h"},
        ),
    ],
)
def test_what_people_write_is_read(asked: list[JobRequest], line: str, wanted: dict[str, Any]) -> None:
    done = CliRunner().invoke(bulk_program.command, line.split())
    assert (0, "") == (done.exit_code, done.output)
    assert [JobRequest("shop/emails", **wanted)] == asked


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("drain shop/emails", "drain needs one of a handler, a sink and a target"),
        ("export shop/emails --sink parquet", "A sink must be FORMAT:PATH"),
        ("export shop/emails --sink parquet:x --sink-option compression", "An option of a sink must be KEY=VALUE"),
        ("run shop/emails weekly", "there=nightly"),
        ("move shop/emails --to emails", "A queue cannot be its own target"),
        ("drain shop/emails --handler m:f --rate fast", "rate"),
    ],
)
def test_what_is_wrong_is_one_line(
    asked: list[JobRequest],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    message: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["bulk.py", *line.split()])
    with pytest.raises(SystemExit) as left:
        bulk_program.main()
    text = capsys.readouterr().err
    assert (2, 1) == (left.value.code, len(text.splitlines()))
    assert message in text
    assert [] == asked


class Connection:
    """One to a catalogue in which a queue has one job."""

    def __init__(self, _environment: dict[str, str]) -> None:
        self.environment: dict[str, str] = {}

    def queue(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(entry=entry_of(name.partition("/")[2], {"bulk": [NIGHTLY]}))

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[UUID, str]]:
    """The reports of refused jobs, and the job of each."""
    matches: list[tuple[UUID, str]] = []

    class Row:
        def __init__(self, _local: object, job: UUID, _title: str) -> None:
            self._job = job

        def report(self, message: str) -> None:
            matches.append((self._job, message))

    monkeypatch.setattr(worker_connection, "WorkerConnection", Connection)
    monkeypatch.setattr(show_progress, "JobProgress", Row)
    return matches


def ended(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """The exit code of the program, and its output."""
    monkeypatch.setattr(sys, "argv", ["bulk", *line.split()])
    with pytest.raises(SystemExit) as left:
        bulk_program.main()
    return left.value.code, capsys.readouterr().err.splitlines()


def test_a_job_that_cannot_begin_reports_it_where_the_operator_reads_it(
    refusals: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = ended("run shop/emails weekly", monkeypatch, capsys)
    assert (2, 1) == (code, len(message))
    assert [(job_id(entry_of("emails", {}), "weekly"), message[0])] == refusals
    assert "there=nightly" in message[0]


def test_spark_that_does_not_start_is_one_line_and_reported(
    refusals: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    monkeypatch.setattr(session, "open_session", fails)
    code, message = ended("run shop/emails nightly", monkeypatch, capsys)
    assert (1, 1) == (code, len(message))
    assert "JAVA_GATEWAY_EXITED" in message[0]
    assert "JAVA_HOME" in message[0]
    assert [(job_id(entry_of("emails", {}), "nightly"), message[0].removeprefix("headgate: "))] == refusals


@pytest.mark.parametrize("line", ["run shop/emails nightly", "gc shop/views"])
def test_without_spark_it_is_reported_what_to_install(
    refusals: list[tuple[UUID, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
) -> None:
    monkeypatch.setattr(bulk_program, "find_spec", lambda _name: None)
    code, message = ended(line, monkeypatch, capsys)
    assert (1, ["headgate: Spark is not installed; pip install 'headgate[spark]'"]) == (code, message)
    assert [] == refusals


@pytest.mark.parametrize(
    ("raised", "code", "message"), [(EOFError(), 1, "Spark's JVM ended"), (KeyboardInterrupt(), 130, "interrupted")]
)
def test_a_job_that_is_broken_off_shows_by_what(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
    message: str,
) -> None:
    def run(*_: object) -> None:
        raise raised

    monkeypatch.setattr(bulk_program, "_run", run)
    monkeypatch.setattr(sys, "argv", ["bulk", "drain", "shop/emails", "--to", "other"])
    with pytest.raises(SystemExit) as ended:
        bulk_program.main()
    assert code == ended.value.code
    assert message in capsys.readouterr().err
