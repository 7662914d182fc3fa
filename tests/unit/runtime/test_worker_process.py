"""A worker as a process: the effect of signals, and the report of mistakes. On a queue in memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from headgate.local.processes import wait_until
from headgate.runtime.drain import drain
from headgate.runtime.startup.drain_files import DEFAULT, DrainFiles

ROOT = Path(__file__).parents[3]


class Report:
    """A worker process and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def until(self, what: str) -> dict[str, Any]:
        """Read on until it prints something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            document: dict[str, Any] = json.loads(line)
            self.lines.append(document)
            if document.get("event", document.get("message")) == what:
                return document
        raise AssertionError(f"it ended without printing {what!r}: {self.lines}")

    def rest(self) -> list[dict[str, Any]]:
        """Everything, once it has ended."""
        assert self.process.stdout is not None
        self.lines += [json.loads(line) for line in self.process.stdout]
        self.process.wait(30)
        return self.lines

    def count(self, what: str) -> int:
        """How often it printed that."""
        return sum(line.get("event") == what for line in self.lines)


@contextmanager
def worker(
    handler: str, *arguments: object, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Report]:
    """A worker process; killed at the end if it still runs."""
    command = [sys.executable, "-m", "tests.unit.runtime.worker_program", f"tests.unit.runtime.killers:{handler}"]
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'workers'}{os.pathsep}{ROOT}", **environment}
    with subprocess.Popen(
        [*command, *map(str, arguments)], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Report(process)
        finally:
            process.kill()


def test_sigterm_finishes_what_runs_gives_back_the_rest_and_ends_well() -> None:
    with worker("slow", 10, "1.5", 20) as report:
        report.until("open")
        report.process.send_signal(signal.SIGTERM)
        report.rest()
        assert 0 == report.process.returncode
        assert (2, 2) == (report.count("ack"), report.count("nack"))
        closed = next(line for line in report.lines if line.get("event") == "closed")
        assert {"event": "closed", "live": 8, "deliveries": 4} == closed


def test_what_a_thread_does_past_the_grace_ends_with_the_process_and_stays_hidden() -> None:
    with worker("slow", 2, "60", 1) as report:
        report.until("open")
        began_s = time.monotonic()
        report.process.send_signal(signal.SIGTERM)
        report.rest()
        assert (0, 0, 0) == (report.process.returncode, report.count("ack"), report.count("nack"))
        assert time.monotonic() - began_s < 10


def test_a_second_sigterm_ends_at_once() -> None:
    with worker("slow", 2, "60", 60) as report:
        report.until("open")
        report.process.send_signal(signal.SIGTERM)
        report.until("shutdown requested")
        began_s = time.monotonic()
        report.process.send_signal(signal.SIGTERM)
        report.rest()
        assert 128 + signal.SIGTERM == report.process.returncode
        assert time.monotonic() - began_s < 2
        assert 0 == report.count("closed")


def test_a_second_sigterm_is_heard_while_the_event_loop_hangs_and_the_log_states_where_it_does() -> None:
    with worker("hang_the_loop", 1, "60", 60) as report:
        line = report.until("event loop is blocked")
        assert "time.sleep(float(payload))" in line["stack"]
        report.process.send_signal(signal.SIGTERM)
        # Python hears a signal between two steps; one that comes in the midst of the first's handling is heard after
        # the call that blocks, so a third may be needed.
        ended = wait_until(lambda: report.process.send_signal(signal.SIGTERM) or report.process.poll(), timeout_s=10)
        assert ended
        assert 128 + signal.SIGTERM == report.process.returncode


def hook(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The preStop hook, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headgate.runtime.drain"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "workers"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_hook_returns_once_all_is_given_back_and_the_signal_after_it_ends_the_worker_well(tmp_path: Path) -> None:
    environment = {"HEADGATE_DRAIN": str(tmp_path / "drain")}
    with worker("slow", 10, "5", 20, environment=environment) as variables:
        variables.until("open")
        done = hook(environment)
        assert (0, "") == (done.returncode, done.stderr)
        closed = variables.until("closed")
        assert 2 == variables.count("nack"), "what was not begun"
        assert 10 - variables.count("ack") == closed["live"], "what was begun ended"
        assert variables.process.poll() is None, "its container ends after the hook"
        variables.process.send_signal(signal.SIGTERM)
        variables.rest()
        assert 0 == variables.process.returncode


def test_what_was_left_of_another_worker_reports_a_new_one_nothing(tmp_path: Path) -> None:
    environment = {"HEADGATE_DRAIN": str(tmp_path / "drain")}
    for name in ("drain", "drain.done"):
        (tmp_path / name).touch()
    with worker("slow", 1, "0.3", 20, environment=environment) as variables:
        variables.until("ack")
        assert {"drain.worker"} == {each.name for each in tmp_path.iterdir()}


def test_the_hook_returns_at_once_where_no_worker_runs(tmp_path: Path) -> None:
    began_s = time.monotonic()
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert 0 == hook({"HEADGATE_DRAIN": str(tmp_path / "drain")}).returncode
    (tmp_path / "drain.worker").write_text(json.dumps({"pid": gone.pid, "grace_s": 60}))
    assert 0 == hook({"HEADGATE_DRAIN": str(tmp_path / "drain")}).returncode
    assert 0 == hook({}).returncode
    assert time.monotonic() - began_s < 30


def test_the_hook_ends_with_the_grace_and_reports_that_the_worker_has_not(tmp_path: Path) -> None:
    files = DrainFiles(tmp_path / "drain")
    files.begin(grace_s=20)
    clock = Ticking()
    assert not drain({"HEADGATE_DRAIN": str(files.asking)}, now_s=clock.now_s, pause=clock.pause)
    assert 23 <= clock.at_s < 24
    assert files.is_asked()
    files.finish()
    assert drain({"HEADGATE_DRAIN": str(files.asking)}, now_s=clock.now_s, pause=clock.pause)


class Ticking:
    """A clock that advances while somebody waits."""

    at_s = 0.0

    def now_s(self) -> float:
        """Now."""
        return self.at_s

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.at_s += seconds


def test_only_under_an_operator_or_where_it_is_reported_is_a_file_searched_for() -> None:
    assert DrainFiles.of({}) is None
    assert DrainFiles(Path(DEFAULT)) == DrainFiles.of({"HEADGATE_OPERATOR_VERSION": "1.0.0"})
    values = {"HEADGATE_OPERATOR_VERSION": "1.0.0", "HEADGATE_DRAIN": "/run/x"}
    assert DrainFiles(Path("/run/x")) == DrainFiles.of(values)


def test_a_worker_that_is_newer_than_its_operator_reports_it_in_one_line() -> None:
    ran = command("a/b", "--handler", "tests.unit.runtime.killers:slow", HEADGATE_OPERATOR_VERSION="0.0.9")
    assert 2 == ran.returncode
    assert 1 == len(ran.stderr.splitlines()), ran.stderr
    assert "upgrade the operator first" in ran.stderr
    assert "operator=0.0.9" in ran.stderr


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`headgate worker`, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "worker", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'workers'}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop/emails"], "A worker needs a handler; give either --handler MODULE:FUNCTION or --http URL"),
        (["shop/emails", "--handler", "x.y:z", "--http", "http://h"], "A worker needs a handler"),
        (["shop/emails", "--handler", "nowhere.tasks:send"], "The module does not exist"),
        (["shop/emails", "--handler", "send"], "A handler is named MODULE:FUNCTION"),
        (
            ["shop/emails", "--handler", "tests.unit.runtime.broken_module:send"],
            "The handler's module fails on import",
        ),
        (["shop/emails", "--handler", "tests.unit.runtime.killers:gone"], "The module has no such function"),
        (["shop/emails", "--http", "ftp://h/x"], "--http must be the URL of a handler"),
        (["shop/emails", "--handler", "tests.unit.runtime.killers:slow", "--rate", "5"], "is not a rate"),
        (["shop/emails", "--handler", "tests.unit.runtime.killers:slow", "--health", "x"], "--health must be"),
        (
            ["a/b", "--http", "http://h", "--rate", "5/s", "--rate-per-worker", "5/s"],
            "A worker has one rate",
        ),
    ],
)
def test_a_mistake_is_one_clear_line_before_anything_is_connected(arguments: list[str], message: str) -> None:
    ran = command(*arguments)
    assert 2 == ran.returncode
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len([line for line in ran.stderr.splitlines() if line and not line.startswith(("Usage", "Try"))]) == 1


def test_a_worker_that_meets_a_mistake_states_where_it_is() -> None:
    ran = command("a/b", "--handler", "tests.unit.runtime.broken_module:send")
    assert "error=ZeroDivisionError: " in ran.stderr
    assert "broken_module.py:" in ran.stderr
