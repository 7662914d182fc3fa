"""Servers as processes: started, told apart from strangers, ended by id, never by name.

A process is known by its id and the moment it started, both written to a pid file, so that a later command can end
exactly what an earlier one started, and an id that the kernel has given to somebody else is left alone.
Knows nothing of what the servers are.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import Surroundings

_STOPPED_WITHIN_S = 30.0
_GONE = (FileNotFoundError, ProcessLookupError)
_ERROR_LINE = re.compile(r"\b(ERROR|FATAL|Exception|Error|error|panic|cannot|failed)\b|^[EF]\d{4} ")


@dataclass(frozen=True)
class Identity:
    """A process beyond doubt: the kernel reuses ids, but not an id at the same start moment."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Who runs under this id now, if anybody; a zombie is nobody, once the last of its threads has ended.

        The threads of a killed process end one by one, and until the last has, its ports are taken.
        """
        try:
            fields = _stat_fields(Path(f"/proc/{pid}"))
        except _GONE:
            return None
        state, threads, started = fields[0], int(fields[17]), int(fields[19])
        return None if state in "ZX" and threads <= 1 else cls(pid, started)

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Identity.of(self.pid) == self


def stands_still(pid: int) -> bool:
    """Whether each of its threads is stopped, or has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    return all(_state(thread) in "TtZX" for thread in threads)


def _state(thread: Path) -> str:
    try:
        return _stat_fields(thread)[0]
    except _GONE:
        return "X"


def _stat_fields(of: Path) -> list[str]:
    """What the kernel tells of a process or a thread, from its state on: the name before may hold anything."""
    return (of / "stat").read_text().rpartition(")")[2].split()


class Server:
    """One server process: its command, its log, and what may be done to it."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        pid_file: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        namespace: str | None = None,
        ends_with_us: bool = False,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.pid_file = pid_file
        self.env = dict(os.environ if env is None else env)
        self.cwd = cwd
        self.namespace = namespace
        self.ends_with_us = ends_with_us
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity | None:
        """Who it is, also when an earlier command started it."""
        if self._identity is None and self.pid_file is not None and self.pid_file.exists():
            pid, started = self.pid_file.read_text().split()
            self._identity = Identity(int(pid), int(started))
        return self._identity

    @property
    def pid(self) -> int:
        """Its id; asking for that of a process never started is a mistake of the caller."""
        assert self.identity is not None, f"{self.name} was not started"
        return self.identity.pid

    def start(self) -> None:
        """Start it in a session of its own; it writes to its log and reads nothing."""
        if self.alive():
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        argv = self.argv
        if self.namespace is not None:
            argv = ["nsenter", f"--net=/run/netns/{self.namespace}", *argv]
        if self.ends_with_us:
            argv = ["setpriv", "--pdeathsig", "KILL", *argv]
        with self.log.open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    cwd=self.cwd,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise Surroundings(
                    "a program is missing",
                    remedy=f"install it, or put it on PATH, to start {self.name}",
                    program=argv[0],
                ) from None
        self._identity = Identity.of(self._child.pid)
        if self.pid_file is not None and self._identity is not None:
            self.pid_file.parent.mkdir(parents=True, exist_ok=True)
            # Whole or absent: whoever started it may be killed at this very moment.
            partial = self.pid_file.with_name(f".{self.pid_file.name}.partial")
            partial.write_text(f"{self._identity.pid} {self._identity.started}\n")
            partial.rename(self.pid_file)

    def alive(self) -> bool:
        """Whether it runs now."""
        if self._child is not None:
            self._child.poll()
        return self.identity is not None and self.identity.alive()

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Ask it to end, and end it when it has not within `grace_s`."""
        if self.alive():
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            if not wait_until(lambda: not self.alive(), timeout_s=grace_s):
                self._signal(signal.SIGKILL)
        self._forget()

    def kill(self) -> None:
        """kill -9: it gets no chance to say goodbye."""
        self._signal(signal.SIGKILL)
        self._forget()

    def pause(self) -> None:
        """SIGSTOP: alive, and silent from here on.

        The kernel stops the threads one by one, each when it next has its turn: until the last has stopped, a
        request may still be answered.
        """
        self._signal(signal.SIGSTOP)
        if not wait_until(
            lambda: not self.alive() or stands_still(self.pid), timeout_s=_STOPPED_WITHIN_S, every_s=0.001
        ):
            raise Surroundings(
                "a paused process did not resume",
                remedy="check /proc/<pid>/task/*/stack: its threads wait for a hung disk or network mount",
                process=self.name,
                pid=self.pid,
            )

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        self._signal(signal.SIGCONT)

    def last_error_lines(self, count: int = 5) -> str:
        """The end of its log as a person would look for it: the last lines that tell of an error, else the last."""
        if not self.log.exists():
            return f"(no log at {self.log})"
        lines = [line for line in self.log.read_text(errors="replace").splitlines()[-2000:] if line.strip()]
        telling = [line for line in lines if _ERROR_LINE.search(line)]
        return "\n".join((telling or lines)[-count:])

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid, number)

    def _forget(self) -> None:
        wait_until(lambda: not self.alive(), timeout_s=10)
        if self.pid_file is not None:
            self.pid_file.unlink(missing_ok=True)
        self._identity = None
        self._child = None


def wait_until(holds: Callable[[], bool], *, timeout_s: float, every_s: float = 0.05) -> bool:
    """Whether `holds()` became true within the time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def port_taken(host: str, port: int) -> bool:
    """Whether somebody listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def require_program(name: str, *, remedy: str) -> str:
    """The path of a program that has to be there, or one line that tells how to get it."""
    found = shutil.which(name)
    if found is None:
        raise Surroundings("a program is missing", remedy=remedy, program=name)
    return found
