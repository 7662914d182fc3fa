"""A newcomer's machine: a copy of the checkout, and shells that know nothing but HOME and PATH."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.local.cache import cache_root
from headgate.local.cassandra.installation import find_java
from headgate.local.processes import wait_until

ROOT = Path(__file__).parents[3]
WITHIN_S = 120
ENDS_WITHIN_S = 40
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Newcomer:
    """A person with a clone."""

    home: Path
    clone: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *lines: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Lines typed into a new shell, until one fails."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-ec", "\n".join(lines)],
            cwd=folder or self.home,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )

    @contextmanager
    def terminal(self, line: str) -> Iterator[Terminal]:
        """A line that stays, typed in the clone; whatever of it is left at the end is ended."""
        with subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", f"exec {line}"],
            cwd=self.clone,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            opened = Terminal(process)
            try:
                yield opened
            finally:
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, signal.SIGINT)  # it ends its Cassandra, which has a session of its own
                    process.wait(timeout=ENDS_WITHIN_S)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


class Terminal:
    """A program in the foreground, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    def wait_for(self, pattern: str, *, within_s: float = WITHIN_S) -> None:
        """Until a line has it."""
        wait_until(lambda: self.has(pattern) or self.process.poll() is not None, timeout_s=within_s)
        assert self.has(pattern), "\n".join(self.lines)

    def has(self, pattern: str) -> bool:
        """Whether a line has it."""
        return any(re.search(pattern, line) for line in self.lines)

    def interrupt(self) -> int:
        """Ctrl-C, which reaches every program of the terminal; the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(60)
        self._reading.join(10)
        return code


def newcomer(folder: Path) -> Newcomer:
    """One with a clone of the working tree. Downloads come from this machine's cache; all else is made afresh."""
    clone, home = folder / "clone", folder / "home"
    home.mkdir()
    clone.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    cache = home / ".cache" / "headgate"
    cache.mkdir(parents=True)
    for kept in ("uv", "uv-cache", "cassandra", "cassandra-archive"):
        (cache_root() / kept).mkdir(parents=True, exist_ok=True)
    for entry in cache_root().iterdir():
        if entry.name != "run":
            (cache / entry.name).symlink_to(entry)
    return Newcomer(home, clone, {"HOME": str(home), "PATH": path_of_newcomer()})


def path_of_newcomer() -> str:
    """The usual PATH, and before it the folders of what the README asks for: this Python, Java 17 and Maven."""
    maven = shutil.which("mvn")
    folders = [Path(sys.base_prefix) / "bin", find_java().program.parent, *([Path(maven).parent] if maven else [])]
    return os.pathsep.join([*map(str, folders), PATH])
