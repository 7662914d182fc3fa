"""`headgate dev --memory`: queues and workers in one process. The other commands cannot reach queues in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import main

HANDLER = """
import headgate

async def send(mail: dict) -> None:
    if "to" not in mail:
        raise headgate.Reject("no address")
    print("sent to", mail["to"], flush=True)
"""
WITHIN_S = 60.0


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command, in a folder with a handler."""
    (folder / "mailer.py").write_text(HANDLER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = ["dev", "--memory", "--queue", "shop/emails", "--handler", "mailer:send", *options]
    return subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_first_message_is_handled_without_a_server(tmp_path: Path) -> None:
    command = start(tmp_path, "--put", '{"to": "ann"}', "--until-handled")
    output, errors = command.communicate(timeout=WITHIN_S)
    assert 0 == command.returncode, errors
    lines = output.splitlines()
    assert "ready, in memory: 2 queues, 1 worker. Ctrl-C ends it, and its messages." == lines[0]
    assert "sent to ann" in lines


def test_lines_of_the_input_are_put_until_it_is_ended(tmp_path: Path) -> None:
    command = start(tmp_path)
    assert command.stdin is not None and command.stdout is not None
    command.stdin.write('{}\n{"to": "bob"}\n')
    command.stdin.flush()
    lines: list[str] = []
    while "sent to bob\n" not in lines:
        lines.append(command.stdout.readline())
        assert lines[-1], command.communicate()
    assert (
        "A line that you type here is put into shop/emails. Other processes cannot reach queues in memory.\n" in lines
    )
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=WITHIN_S)
    assert (0, True) == (command.returncode, "rejected: no address" in errors), errors


@pytest.mark.parametrize("arguments", ["put shop/emails x", "stats shop/emails", "worker shop/emails --handler a:b"])
def test_other_commands_state_that_they_cannot_reach_it(arguments: str) -> None:
    done = CliRunner().invoke(main, arguments.split(), env={"HEADGATE_CONTACT_POINTS": "memory://"})
    assert (2, True) == (done.exit_code, "cannot be reached from another process; run `headgate dev" in done.output)
