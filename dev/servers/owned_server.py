"""A server process of a test: it ends with its starter, may be in a network namespace, and can be paused."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.servers import namespaces
from headgate.errors import EnvironmentProblem
from headgate.local.processes import GONE, Server, read_stat_fields, wait_until

_STOPPED_WITHIN_S = 30.0


class OwnedServer(Server):
    """As `Server`; the kernel kills it when the thread that started it is gone."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        entered = argv if namespace is None else namespaces.enter(namespace, argv)
        super().__init__(name, [*_dying_with_us(), *entered], log=log, env=env, cwd=cwd)

    def pause(self) -> None:
        """SIGSTOP: alive, and silent from now on."""
        pause_server(self)

    def resume(self) -> None:
        """SIGCONT: it resumes as if no time had passed."""
        self.send_signal(signal.SIGCONT)


def pause_server(server: Server) -> None:
    """SIGSTOP. The kernel stops the threads one by one, each when it next has its turn: until the last has stopped, a
    request may still be answered."""
    server.send_signal(signal.SIGSTOP)
    if not wait_until(
        lambda: not server.alive() or stands_still(server.pid), timeout_s=_STOPPED_WITHIN_S, every_s=0.001
    ):
        raise EnvironmentProblem(
            "A paused process did not resume",
            remedy="check /proc/<pid>/task/*/stack: its threads wait for a hung disk or network mount",
            process=server.name,
            pid=server.pid,
        )


def stands_still(pid: int) -> bool:
    """Whether each of its threads is stopped, or has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    return all(_state(thread) in "TtZX" for thread in threads)


def _state(thread: Path) -> str:
    try:
        return read_stat_fields(thread)[0]
    except GONE:
        return "X"


def _dying_with_us() -> tuple[str, ...]:
    """A command's first words, by which the kernel kills it when this process is gone; Linux alone can."""
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "KILL")
