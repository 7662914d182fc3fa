"""A program `kubectl` for tests: it answers from a table and records its arguments and its input.

The table is a list of (words that the call must contain, in their order; answer). The first that fits answers,
and those that are to be used up are; so what changes over time is a row after a row. It is run as a program of its
own, on PATH, by `sys.executable -S`, so that a call costs little.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python} -SE
import fcntl, json, sys
folder = {folder!r}
words = sys.argv[1:]
with open(folder + "/lock", "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    rows = json.load(open(folder + "/rows"))
    given = sys.stdin.read() if words[-1] == "-" or "-f" in words else ""
    with open(folder + "/calls", "a") as calls:
        calls.write(json.dumps([words, given]) + "\\n")
    def fits(wanted):
        rest = iter(words)
        return all(any(word == each or each.endswith("*") and word.startswith(each[:-1]) for word in rest)
                   for each in wanted)
    for row in rows:
        if row["left"] and fits(row["words"]):
            row["left"] -= 1
            json.dump(rows, open(folder + "/rows", "w"))
            break
    else:
        sys.exit("fake kubectl: no answer is set for " + " ".join(words))
if row["waits"]:
    with open(folder + "/waiting", "w") as waiting:
        waiting.write("x")
    import time
    time.sleep(row["waits"])
sys.stdout.write(row["out"])
sys.stdout.flush()
if row["holds"]:
    import os, signal
    with open(folder + "/held", "a") as held:
        held.write(str(os.getpid()) + "\\n")
    signal.pause()
sys.stderr.write(row["err"])
sys.exit(row["code"])
"""


@dataclass(frozen=True)
class Call:
    """One call."""

    words: list[str]
    given: str

    @property
    def document(self) -> Any:
        """Its standard input, as JSON."""
        return json.loads(self.given)


@dataclass
class FakeKubectl:
    """Answers for the fake command, and the calls that it got."""

    folder: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def answers(
        self,
        *words: str,
        out: str | dict[str, Any] = "",
        err: str = "",
        times: int = 99,
        waits_s: float = 0.0,
        holds: bool = False,
    ) -> None:
        """To a call with these words, in this order; a word may end with a star. If it holds, it stays until somebody
        ends it."""
        text = json.dumps(out) if isinstance(out, dict) else out
        code = 1 if err else 0
        row = {"words": words, "out": text, "err": err, "code": code, "left": times, "waits": waits_s, "holds": holds}
        self.rows.append(row)
        (self.folder / "rows").write_text(json.dumps(self.rows))

    def refuses(self, *words: str, message: str, times: int = 99) -> None:
        """The same, with an error."""
        self.answers(*words, err=message, times=times)

    @contextmanager
    def expecting_a_wait(self, within_s: float = 30.0) -> Iterator[Callable[[], None]]:
        """Yields a function that returns once a call has begun to wait."""
        server = os.open(self.folder / "waiting", os.O_RDONLY | os.O_NONBLOCK)

        def until_it_waits() -> None:
            assert select.select([server], [], [], within_s)[0], "nothing waits"

        try:
            yield until_it_waits
        finally:
            os.close(server)

    @property
    def calls(self) -> list[Call]:
        """All calls so far."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Call(*json.loads(line)) for line in lines]

    def still_held(self) -> list[int]:
        """Processes of calls that were to stay, and that nobody has ended."""
        path = self.folder / "held"
        held = [int(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [pid for pid in held if Path(f"/proc/{pid}").exists()]

    def called(self, *words: str) -> list[Call]:
        """Those with these words, in this order."""

        def fits(call: Sequence[str]) -> bool:
            rest = iter(call)
            return all(word in rest for word in words)

        return [call for call in self.calls if fits(call.words)]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    """First on PATH, for as long as a test lasts."""
    folder = tmp_path / "kubectl-calls"
    folder.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "kubectl"
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    os.mkfifo(folder / "waiting")
    fake = FakeKubectl(folder)
    (folder / "rows").write_text("[]")
    return fake
