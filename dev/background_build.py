"""All that a local Kubernetes is made of, built by a process of its own while the demo shows messages.

`python3 -m dev.background_build` builds and prints its steps; the first failure ends it, with one line on standard
error. `BackgroundBuild` is that process as the demo knows it: started, waited for, or ended with all its children.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

from dev.cluster import lifecycle
from dev.cluster.choice import Choice
from dev.cluster.docker_build import obstacle
from dev.cluster.golang import Program
from dev.cluster.helm import helm_program
from dev.cluster.image import build_images
from dev.cluster.programs import FOR_A_NODE, HELM, SPARK_OPERATOR, is_built
from dev.cluster.state import state_root
from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.local.processes import Identity, wait_until
from headgate.local.progress import print_progress

ROOT = Path(__file__).resolve().parent.parent
NAME = "kubernetes"
COMMAND = (sys.executable, "-m", "dev.background_build")
ENDED_WITHIN_S = 10


def works_of(*, own_cluster: bool, spark: bool) -> list[Callable[[], object]]:
    """What is done side by side: programs are compiled, images are for the most part downloaded and unpacked."""
    if not own_cluster:
        return [helm_program]
    extras = [HELM, SPARK_OPERATOR] if spark else [HELM]
    works: list[Callable[[], object]] = [lambda: lifecycle.build(extras=extras)]
    if obstacle() is None:
        targets = ["headgate", "headgate-spark"] if spark else ["headgate"]
        works.append(lambda: build_images(targets))
    return works


def list_unbuilt(choice: Choice, *, spark: bool) -> list[str]:
    """The programs that have to be compiled first, which takes minutes."""
    programs: list[Program] = [HELM]
    if choice.mode == "node":
        programs += [*FOR_A_NODE, *([SPARK_OPERATOR] if spark else [])]
    return [each.name for each in programs if not is_built(each)]


class BackgroundBuild:
    """The process that builds; its lines are shown under a name of their own."""

    def __init__(self, show: Callable[[str, str], None], command: Sequence[str] = COMMAND) -> None:
        self._show = show
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, *, own_cluster: bool, spark: bool) -> None:
        """Begin. It is a session of its own, so that its end is the end of all that it has started."""
        words = [*(["--own-cluster"] if own_cluster else []), *(["--spark"] if spark else [])]
        self._process = subprocess.Popen(
            [*self._command, *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _keep(self._process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def is_running(self) -> bool:
        """Whether it still builds."""
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Until everything is built; a failure is its own line."""
        assert self._process is not None
        assert self._reader is not None
        self._reader.join()
        assert self._process.stderr is not None
        lines = self._process.stderr.read().strip().splitlines() or ["no reason was printed"]
        code = self._process.wait()
        _pid_file().unlink(missing_ok=True)
        if code != 0:
            raise EnvironmentProblem(
                "Kubernetes could not be built", remedy="fix this and repeat make demo", reason=lines[-1]
            )

    def end(self) -> None:
        """End it with all that it has started, if it runs."""
        if self._process is not None:
            end_left_over()
            self._process.wait()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._show(NAME, line.rstrip())


def end_left_over() -> bool:
    """End a build that an interrupted demo has left; whether there was one."""
    file = _pid_file()
    if not file.exists():
        return False
    pid, started = map(int, file.read_text().split())
    runs = Identity(pid, started).alive()
    if runs:
        os.killpg(pid, signal.SIGTERM)
        wait_until(lambda: not Identity(pid, started).alive(), timeout_s=ENDED_WITHIN_S + 5)
    file.unlink(missing_ok=True)
    return runs


def _keep(pid: int) -> None:
    result = Identity.of(pid)
    if result is not None:
        _pid_file().parent.mkdir(parents=True, exist_ok=True)
        _pid_file().write_text(f"{result.pid} {result.started}\n")


def _pid_file() -> Path:
    return state_root() / "demo-build.pid"


class _Ended(BaseException):
    """The demo ends this build."""


def main(arguments: Sequence[str]) -> int:
    """Build; whatever fails first ends all of it."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.background_build")
    parser.add_argument("--own-cluster", action="store_true", help="all of a Kubernetes, and the image of this tree")
    parser.add_argument("--spark", action="store_true", help="also what a bulk job needs")
    asked = parser.parse_args(arguments)
    if os.getpgrp() != os.getpid():
        os.setpgrp()
    os.nice(5)
    signal.signal(signal.SIGTERM, _raise_ended)
    works = works_of(own_cluster=asked.own_cluster, spark=asked.spark)
    pool = ThreadPoolExecutor(len(works))
    running = [pool.submit(work) for work in works]
    try:
        done, _ = wait(running, return_when=FIRST_EXCEPTION)
        for each in done:
            each.result()
    except (HeadgateError, OSError) as error:
        print_progress(str(error).replace("\n", " "), to=sys.stderr)
        _end_children(running)
        return 1
    except _Ended:
        _end_children(running)
        return 1
    return 0


def _raise_ended(number: int, frame: object) -> None:
    raise _Ended


def _refuse_programs(event: str, arguments: object) -> None:
    # What fails because it is ended would otherwise be tried by another program, such as apt-get install.
    if event == "subprocess.Popen":
        raise EnvironmentProblem("the build ends", remedy="repeat make demo")


def _end_children(running: Sequence[Future[object]]) -> None:
    """End every program that a thread waits for; none is started in its place."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.addaudithook(_refuse_programs)
    for _ in range(ENDED_WITHIN_S):
        os.killpg(0, signal.SIGTERM)
        if not wait(running, timeout=1).not_done:
            return
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
