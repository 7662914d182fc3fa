"""Progress: a bar on a terminal with rich, else plain lines; never on standard output."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from headgate.cli.terminal import progress as module
from headgate.cli.terminal.progress import LINE_EVERY_S, LineProgress, show_progress

PROGRAM = """
import sys, time
from headgate.cli.terminal.progress import show_progress
with show_progress("put", 200) as progress:
    for number in range(4):
        progress.advance(50)
        print(number)
        time.sleep(0.15)
"""


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_lines_come_every_ten_seconds() -> None:
    now_s = 0.0
    stream = io.StringIO()
    lines = LineProgress("put", 5_000, stream, now_s=lambda: now_s)
    lines.advance(1_000)
    assert "" == stream.getvalue()
    now_s = LINE_EVERY_S
    lines.advance(1_500)
    lines.advance(1)
    assert "put: 2,500 of 5,000\n" == stream.getvalue()
    unknown = LineProgress("redrive", None, stream, now_s=lambda: now_s)
    now_s *= 2
    unknown.advance(7)
    assert stream.getvalue().endswith("redrive: 7\n")


@pytest.mark.parametrize("reason", ["no terminal", "no rich", "quiet"])
def test_without_a_terminal_or_rich_there_is_no_bar(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(module.sys, "stderr", io.StringIO() if reason == "no terminal" else Terminal())
    if reason == "no rich":
        monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with show_progress("put", 10, quiet=reason == "quiet") as progress:
        progress.advance(10)
        assert isinstance(progress, LineProgress)
    assert "" == module.sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_bar_is_on_standard_error_and_results_stay_whole() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment,
        timeout=30,
        check=False,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    assert (0, "0\n1\n2\n3\n") == (ran.returncode, ran.stdout)
    assert b"/200" in shown
    assert b"put" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def test_rich_is_imported_only_where_it_is_used() -> None:
    program = (
        "import sys, headgate.cli.messages, headgate.cli.top, headgate.cli.apply, headgate.cli.queues\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'rich'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "[]\n" == ran.stdout
