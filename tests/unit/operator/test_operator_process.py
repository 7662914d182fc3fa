"""The operator's process, as it is begun from the command line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.command_line.exit_codes import ExitCode
from headgate.process.event_loop import new_loop
from headgate_operator.process import main as process


@pytest.fixture(autouse=True)
def own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging is the whole process's, and here that is pytest's."""
    monkeypatch.setattr(process, "log_to", lambda **_: None)


def test_it_runs_on_the_fastest_loop_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[type] = []

    async def run(_given: Any) -> None:
        loops.append(type(asyncio.get_running_loop()))

    monkeypatch.setattr(process, "run", run)
    ended = CliRunner().invoke(process.main, [])
    expected = new_loop()
    expected.close()
    assert (0, [type(expected)]) == (ended.exit_code, loops)


def test_a_cluster_that_is_not_known_is_one_line_and_an_exit_code() -> None:
    ended = CliRunner().invoke(process.main, ["--kubeconfig", "/nonexistent"])
    assert (ExitCode.FAILED, 1) == (ended.exit_code, len(ended.output.strip().splitlines()))
