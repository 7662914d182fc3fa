"""Client processes from the outside: started, called, awaited with a time limit, ended.

Each contender works in a process of its own, so that its CPU time is its own and no two share an interpreter's lock.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.contender import ClientReport, Job, Ran
from headgate.errors import Bug, Unavailable

START_TIMEOUT_S = 60.0
GRACE_S = 10.0
REPORT_WITHIN_S = 2.0
"""For a hanging one, to print its stack."""
LOG_SHOWN = 20_000
ROOT = Path(__file__).resolve().parent.parent


class ClientProcess:
    """A contender in a process of its own; a context manager that ends it."""

    def __init__(self, name: str, module: str, environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        path = os.pathsep.join(str(ROOT / folder) for folder in ("workers", "."))
        with log.open("ab") as text:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.client_main", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=text,
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": path},
            )
        assert self._process.stdout is not None and self._process.stdin is not None
        self._answers = self._process.stdout
        self._questions = self._process.stdin
        os.set_blocking(self._answers.fileno(), False)
        self._unread = b""
        try:
            self._read_reply(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The processes whose CPU seconds count."""
        return self._process.pid

    def prepare(self, job: Job, *, within_s: float) -> int:
        """Create the data that the work reads."""
        self._write_request({"do": "prepare", "job": job})
        return int(self._read_reply(within_s))

    def begin(self, job: Job) -> None:
        """Let it start; `end` waits for it, so that several can work at the same time."""
        self._write_request({"do": "run", "job": job})

    def end(self, *, within_s: float) -> Ran:
        """The work done."""
        return Ran(**self._read_reply(within_s))

    def report(self, *, within_s: float) -> ClientReport:
        """The results computed after it, receipts checked."""
        self._write_request({"do": "report"})
        return ClientReport(**self._read_reply(within_s))

    def stop(self) -> None:
        """End its input, and end it when that does not."""
        with suppress(OSError):
            self._questions.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_request(self, asked: dict[str, Any]) -> None:
        try:
            self._questions.write((json.dumps(asked) + "\n").encode())
            self._questions.flush()
        except OSError:
            raise self._ended() from None

    def _read_reply(self, within_s: float) -> Any:
        text = json.loads(self._line(time.monotonic() + within_s))
        if "failed" in text:
            raise Bug("a benchmark client failed", client=self.name, why=text["failed"])
        return text["ok"]

    def _line(self, deadline: float) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    raise self._hung()
                chunk = os.read(self._answers.fileno(), 65_536)
                if not chunk:
                    raise self._ended()
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _hung(self) -> Unavailable:
        """It prints where it waits; the output follows in the log of the run."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(REPORT_WITHIN_S)
        sys.stderr.write(self._log.read_text(errors="replace")[-LOG_SHOWN:])
        return Unavailable("a benchmark client does not answer", client=self.name)

    def _ended(self) -> Bug:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return Bug("a benchmark client ended", client=self.name, last="; ".join(lines[-2:]) or "no output")
