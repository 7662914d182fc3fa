"""A first queue without a YAML file of one's own: `headgate init`, and `headgate dev --queue --handler`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from headgate.api.read.loader import load_files
from headgate.api.resources.queues import QueueResource
from headgate.cli.main import main
from headgate.local import stack
from headgate.local.first_queue import format_first_queue


def run(*arguments: str) -> Result:
    """A command."""
    return CliRunner().invoke(main, arguments)


def test_init_writes_a_file_that_is_valid_and_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("init", "--queue", "shop/emails", "--handler", "mailer:send")
    assert (0, "wrote queues.yaml: queue shop/emails, handled by mailer:send\nnext: headgate dev queues.yaml\n") == (
        done.exit_code,
        done.output,
    )
    emails, dead = load_files([tmp_path / "queues.yaml"])
    assert isinstance(emails, QueueResource)
    assert ("shop", "emails", "emails-dead") == (
        emails.metadata.namespace,
        emails.metadata.name,
        emails.spec.dead_letter,
    )
    assert ["mailer:send"] == [str(each.handler) for each in emails.spec.consumers or ()]
    assert ("shop", "emails-dead") == (dead.metadata.namespace, dead.metadata.name)
    assert 0 == run("validate", "queues.yaml").exit_code


def test_init_leaves_a_file_that_exists_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("mine\n")
    done = run("init", str(file))
    assert (2, "mine\n") == (done.exit_code, file.read_text())
    assert "The file exists" in done.output


@pytest.mark.parametrize(
    ("queue", "handler", "message"),
    [
        ("shop/Emails", "mailer:send", "metadata.name"),
        ("Shop/emails", "mailer:send", "metadata.namespace"),
        ("shop/emails", "mailer.send", "handler"),
        ("shop/emails", "mailer:send\n  image: x", "handler"),
        ("shop/e'mails: {", "mailer:send", "metadata.name"),
        ("", "mailer:send", "metadata.name"),
    ],
)
def test_a_name_that_cannot_be_one_is_one_line(tmp_path: Path, queue: str, handler: str, message: str) -> None:
    file = tmp_path / "queues.yaml"
    done = run("init", str(file), "--queue", queue, "--handler", handler)
    assert (2, False, 1) == (done.exit_code, file.exists(), len(done.output.splitlines()))
    assert message in done.output


def test_a_queue_without_a_namespace_is_in_the_default_one() -> None:
    first = next(yaml.safe_load_all(format_first_queue("emails", "m:f", file="queues.yaml")))
    assert "default" == first["metadata"]["namespace"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--queue", "shop/emails"),
        ("--handler", "mailer:send"),
        ("queues.yaml", "--queue", "shop/emails", "--handler", "mailer:send"),
    ],
    ids=["nothing", "no handler", "no queue", "both"],
)
def test_dev_needs_files_or_a_queue_with_its_handler(arguments: Sequence[str]) -> None:
    done = run("dev", *arguments)
    assert 2 == done.exit_code
    assert "name FILES, or give both --queue and --handler" in done.output


def test_dev_runs_a_queue_without_a_file_and_finds_its_data_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    begun: list[Sequence[Path]] = []

    class Recorded:
        def __init__(self, files: Sequence[Path], environment: object, **options: object) -> None:
            begun.append(files)

        async def run(self) -> None:
            """Nothing."""

    monkeypatch.setattr(stack, "Stack", Recorded)
    for handler in ("mailer:send", "mailer:send_later"):
        assert 0 == run("dev", "--queue", "shop/emails", "--handler", handler).exit_code
    first, second = begun
    assert stack.state_directory(first) == stack.state_directory(second)
    assert "send_later" in second[0].read_text()
