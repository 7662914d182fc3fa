"""Servers as processes: started, distinguished from strangers, ended by id, never by name.

A process is known by its id and its start time, both written to a pid file. So a later command can end exactly the
process that an earlier one started, and an id that the kernel has reused is left alone. It knows nothing of the
servers.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import EnvironmentProblem

GONE = (FileNotFoundError, ProcessLookupError)
_PROC = Path("/proc")
"""Linux has it; elsewhere `ps` knows the same, at a hundred times the price."""
PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections: a stopped server finds its port free again."""
_ERROR_LINE = re.compile(r"\b(ERROR|FATAL|Exception|Error|error|panic|cannot|failed)\b|^[EF]\d{4} ")


@dataclass(frozen=True)
class Identity:
    """A unique process: the kernel reuses ids, but not an id with the same start time."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that runs under this id now, if any; a zombie is none, once the last of its threads has ended.

        The threads of a killed process end one by one, and until the last has, its ports are taken.
        """
        if not _PROC.is_dir():
            return _identity_by_ps(pid, cls)
        try:
            fields = read_stat_fields(_PROC / str(pid))
        except GONE:
            return None
        state, threads, started = fields[0], int(fields[17]), int(fields[19])
        return None if state in "ZX" and threads <= 1 else cls(pid, started)

    def alive(self) -> bool:
        return Identity.of(self.pid) == self


def _identity_by_ps(pid: int, made: type[Identity]) -> Identity | None:
    """As `Identity.of`, on macOS and the BSDs. The start is known to a second there."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    detail = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    state, _, started = detail.stdout.strip().partition(" ")
    if not started or state.startswith("Z"):
        return None
    return made(pid, round(time.mktime(time.strptime(started.strip(), "%a %b %d %H:%M:%S %Y"))))


def read_stat_fields(of: Path) -> list[str]:
    """The kernel's status of a process or a thread, from its state on: the name before may contain anything."""
    return (of / "stat").read_text().rpartition(")")[2].split()


class Server:
    """One server process: its command, its log, and its operations."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        pid_file: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.pid_file = pid_file
        self.env = dict(os.environ if env is None else env)
        self.cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity | None:
        """Its identity, also when an earlier command started it."""
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
        with self.log.open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    cwd=self.cwd,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise EnvironmentProblem(
                    "A program is missing",
                    remedy=f"install it, or put it on PATH, to start {self.name}",
                    program=self.argv[0],
                ) from None
        self._identity = Identity.of(self._child.pid)
        if self.pid_file is not None and self._identity is not None:
            self.pid_file.parent.mkdir(parents=True, exist_ok=True)
            # Whole or absent: its creator may be killed at any time.
            partial = self.pid_file.with_name(f".{self.pid_file.name}.partial")
            partial.write_text(f"{self._identity.pid} {self._identity.started}\n")
            partial.rename(self.pid_file)

    def alive(self) -> bool:
        if self._child is not None:
            self._child.poll()
        return self.identity is not None and self.identity.alive()

    def stop(self, *, grace_s: float = 10.0) -> bool:
        """Request its end, and kill it when it has not ended within `grace_s`; whether it ended by itself."""
        ended = True
        if self.alive():
            self.send_signal(signal.SIGCONT)
            self.send_signal(signal.SIGTERM)
            ended = wait_until(lambda: not self.alive(), timeout_s=grace_s)
            if not ended:
                self.send_signal(signal.SIGKILL)
        self._forget()
        return ended

    def kill(self) -> None:
        """kill -9: it cannot clean up."""
        self.send_signal(signal.SIGKILL)
        self._forget()

    def last_error_lines(self, count: int = 5) -> str:
        """The relevant end of its log: the last lines with an error, else the last lines."""
        if not self.log.exists():
            return f"(no log at {self.log})"
        lines = [line for line in self.log.read_text(errors="replace").splitlines()[-2000:] if line.strip()]
        errors = [line for line in lines if _ERROR_LINE.search(line)]
        return "\n".join((errors or lines)[-count:])

    def send_signal(self, number: signal.Signals) -> None:
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


def port_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def server_ports(count: int, addresses: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """`count` different ports, each free on every one of the addresses now."""
    for address in addresses:
        require_own_address(address)
    chosen: list[int] = []
    for port in random.sample(PORTS, 2_000):
        if not any(port_taken(address, port) for address in addresses):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise EnvironmentProblem(
        "No free port",
        remedy="stop a program that listens on one",
        at=" and ".join(addresses),
        between=f"{PORTS.start}-{PORTS.stop}",
    )


def require_own_address(address: str) -> None:
    """Refuse, with one line, an address that is not this machine's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise EnvironmentProblem(
            "Not an address of this machine", remedy="run `ip address` to list them", address=address, why=error
        ) from None


def require_program(name: str, *, remedy: str) -> str:
    """The path of a required program, or one line with the way to get it."""
    path = shutil.which(name)
    if path is None:
        raise EnvironmentProblem("A program is missing", remedy=remedy, program=name)
    return path
