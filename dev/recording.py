"""Record docs/pictures/terminal.svg, the terminals that README shows: `make recording`.

Two shells run in pseudo-terminals: `headgate dev` in the first, and commands of a user in the second. Their output is
drawn with the times at which it came, where pauses are cut short. Nothing of it is written by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dev.terminal_picture import Line, Pane, build_picture
from headgate.local.cache import cache_root

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS = 100
PROMPT = "\x1b]0;prompt\x07$ "
"""A title of the terminal comes before the prompt, so that a `$` of some output is not taken for it."""

WITHIN_S = 180.0
PAUSE_S = 1.2
READY = "ready after"
HANDLER = """async def send(mail: dict) -> None:
    print("sent to", mail["to"], flush=True)
"""
DEV = "headgate dev --queue shop/mail --handler mailer:send --fresh"
NO_ADDRESS = '{"no": "address"}'
HANDLED_S = 3.0
DEAD_LETTERED_S = 20.0
"""After five receives with backoff."""
COMMANDS = (
    """headgate put shop/mail '{"to": "ann@example.org"}'""",
    """headgate put shop/mail '{"to": "ben@example.org"}' --delay 1h""",
    "headgate stats shop/mail",
    f"headgate put shop/mail '{NO_ADDRESS}'",
    "headgate peek shop/mail-dead",
)
"""One after the other, with a pause in which the worker handles what was put."""

HANDLED = "sent to ann"
_ESCAPES = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


@dataclass
class Shell:
    """A shell in a pseudo-terminal, and everything that it printed, with the times."""

    folder: Path
    process: int = 0
    descriptor: int = -1
    printed: list[tuple[float, str]] = field(default_factory=list)

    def start(self) -> None:
        """Start it, and wait for its prompt."""
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.chdir(self.folder)
            programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            changed = {"PS1": PROMPT, "PATH": programs, "TERM": "xterm"}
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | changed
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)  # noqa: S606
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        self.wait_for(PROMPT)

    def type(self, command: str) -> None:
        """Send a line."""
        os.write(self.descriptor, f"{command}\n".encode())

    def wait_for(self, words: str, *, since: int = 0) -> None:
        """Read until these words are printed after that place."""
        deadline_s = time.monotonic() + WITHIN_S
        while words not in self.text[since:]:
            if not self.read(0.2) and time.monotonic() > deadline_s:
                raise SystemExit(f"{words!r} was not printed within {WITHIN_S:g} s:\n{self.text}")

    def read(self, seconds: float) -> bool:
        """Note what is printed within a time."""
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if not ready:
            return False
        self.printed.append((time.monotonic(), os.read(self.descriptor, 65_536).decode(errors="replace")))
        return True

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self.printed)

    def end(self) -> None:
        """Interrupt its command, and end the shell; closing its terminal ends a command that is left."""
        with contextlib.suppress(OSError, SystemExit):
            place = len(self.text)
            os.write(self.descriptor, b"\x03")
            self.wait_for(PROMPT, since=place)
        os.close(self.descriptor)
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def lines(self) -> Iterator[Line]:
        """What a person sees, each line with the time of its last character."""
        text, at_s = "", 0.0
        for at_s, part in self.printed:
            text += part
            *done, text = text.split("\n")
            yield from (Line(at_s, self._shown(line)) for line in done)
        if text.strip():
            yield Line(at_s, self._shown(text))

    def _shown(self, line: str) -> str:
        """A line without control characters and folders of this machine, cut where the terminal ends."""
        plain = _ESCAPES.sub("", line).rstrip().replace(str(self.folder), "~")
        plain = plain.replace(str(cache_root()), "~/.cache/headgate")
        return plain if len(plain) <= COLUMNS else f"{plain[: COLUMNS - 1]}…"


def record(folder: Path) -> tuple[Shell, Shell]:
    """Run both shells to their end."""
    (folder / "mailer.py").write_text(HANDLER, encoding="utf-8")
    first, second = Shell(folder), Shell(folder)
    first.start()
    try:
        print(DEV, flush=True)
        first.type(DEV)
        first.wait_for(READY)
        first.wait_for("/env")
        first.read(1.0)
        (entry,) = re.findall(r"\. (\S*/env)", first.text)
        second.start()
        try:
            for command in (f". {entry}", *COMMANDS):
                place = len(second.text)
                print(command, flush=True)
                second.type(command)
                second.wait_for(PROMPT, since=place)
                _read_both(first, second, DEAD_LETTERED_S if NO_ADDRESS in command else HANDLED_S)
            first.wait_for(HANDLED)
        finally:
            place = len(second.printed)
            second.end()
            del second.printed[place:]
    finally:
        place = len(first.printed)
        first.end()
        del first.printed[place:]
    return first, second


def _read_both(first: Shell, second: Shell, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        first.read(0.05)
        second.read(0.05)


def with_short_pauses(panes: Sequence[Pane]) -> list[Pane]:
    """The same from the time 0, where nothing happens for `PAUSE_S` at most."""
    times = sorted({line.at_s for pane in panes for line in pane.lines})
    shown_s = {}
    now_s = 0.0
    for before, at_s in zip([times[0], *times], times, strict=False):
        now_s += min(at_s - before, PAUSE_S)
        shown_s[at_s] = now_s
    return [Pane(pane.title, [Line(shown_s[line.at_s], line.text) for line in pane.lines]) for pane in panes]


def main() -> None:
    """Record, and write the picture."""
    if shutil.which("bash") is None:
        raise SystemExit("bash is needed")
    with tempfile.TemporaryDirectory() as folder:
        first, second = record(Path(folder))
    panes = [
        Pane("Terminal 1: a Cassandra, a queue and a worker", list(first.lines())),
        Pane("Terminal 2", list(second.lines())),
    ]
    PICTURE.write_text(build_picture(with_short_pauses(panes)), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
