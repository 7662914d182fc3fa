"""The effects of the options of `headgate worker` on the worker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.runtime.startup import worker_process
from headgate.runtime.startup.worker_process import Opening, WorkerOptions


def options_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> WorkerOptions:
    """The options that the command passes to its worker."""
    matches: list[WorkerOptions] = []

    def record(options: WorkerOptions, opening: Opening) -> None:
        matches.append(options)

    monkeypatch.setattr(worker_process, "run_worker", record)
    ran = CliRunner().invoke(main, ["worker", "shop/emails", "--handler", "mailer:send", *arguments])
    assert (0, "") == (ran.exit_code, ran.output)
    return matches[0]


@pytest.mark.parametrize(
    ("arguments", "per_s", "is_shared"),
    [
        ((), None, False),
        (("--rate", "50/s"), 50.0, True),
        (("--rate-per-worker", "600/m"), 10.0, False),
    ],
)
def test_the_rate_is_that_of_the_queue_as_in_the_resource(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], per_s: float | None, is_shared: bool
) -> None:
    terms = options_of(monkeypatch, *arguments).terms
    assert (per_s, is_shared) == (terms.rate_per_s, terms.rate_is_shared)


def test_the_old_name_of_the_shared_rate_is_gone() -> None:
    ran = CliRunner().invoke(main, ["worker", "shop/emails", "--handler", "m:f", "--rate-shared", "5/s"])
    assert 2 == ran.exit_code
    assert "No such option" in ran.output
    assert "--rate-shared" in ran.output
