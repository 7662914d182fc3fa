"""The demo's shell: runs our commands and kubectl, shows their output, waits for their results.

Knows nothing of the demo's content (demo_day.py, demo_spark.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.cluster.kubectl import Kubectl
from dev.demo_setup import ROOT, VENV, Connection
from headgate.errors import EnvironmentProblem
from headgate.local.processes import wait_until
from headgate.local.progress import print_progress

NAMESPACE = "shop"


class Shell:
    """On a cluster with the operator, with a way to its Cassandra."""

    def __init__(self, kubectl: Kubectl, connection: Connection) -> None:
        self.kubectl = kubectl.in_namespace(NAMESPACE)
        path = os.pathsep.join([*map(str, folders_of_programs(kubectl.program)), os.environ.get("PATH", "")])
        fields = {"KUBECONFIG": kubectl.kubeconfig, "PATH": path}
        self._environment: Mapping[str, str] = {**os.environ, **connection, **fields}
        self._context = kubectl.context

    def type(self, line: str) -> str:
        """Show a command line, and run exactly it; what it writes."""
        typed = with_context(line, self._context)
        print_progress(f"      $ {typed}")
        return self.run(["bash", "-c", typed])

    def headgate(self, *arguments: str) -> str:
        """A command of ours."""
        return self.run([str(folders_of_programs(self.kubectl.program)[0] / "headgate"), *arguments])

    def run(self, command: Sequence[str]) -> str:
        """A command's output; the last line of its error output is the reason of a failure."""
        done = subprocess.run(
            command, env=dict(self._environment), capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
        )
        if done.returncode != 0:
            output = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"]
            name = command[2] if command[0] == "bash" else f"{Path(command[0]).name} {command[1]}"
            raise EnvironmentProblem(
                "a command of the demo failed", remedy="check its output", command=name, cause=output[-1]
            )
        return done.stdout

    def held(self, queue: str) -> int:
        """Messages in the queue: ready, in flight or delayed."""
        fields: dict[str, Any] = json.loads(self.headgate("stats", queue, "-o", "json"))
        return int(fields["backlog"]) + int(fields["in_flight"]) + int(fields["delayed"])

    def apply(self, line: str, *ready: str, within_s: float) -> None:
        """A line with `kubectl apply`, and these are Ready."""
        print_line(self.type(line))
        how = ("--for=condition=Ready", f"--timeout={within_s:.0f}s")
        self.kubectl.run("wait", *how, *ready, timeout_s=within_s + 30)

    def wait(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Until it holds; else the last state is reported."""
        if not wait_until(holds, timeout_s=within_s, every_s=0.5):
            output = self.kubectl.run("get", "queues,deployments,pods").strip().splitlines()
            raise EnvironmentProblem(
                "the demo's condition was not met in time",
                remedy="run kubectl headgate why queue/emails -n shop; make down stops it",
                waited_for=what,
                seconds=round(within_s),
                object="; ".join(output[-6:]),
            )


def folders_of_programs(kubectl: str) -> list[Path]:
    """Where `headgate` and `python` are (in the environment that runs this, else in the demo's), then `kubectl`."""
    ours = Path(sys.executable).parent
    return [ours if (ours / "headgate").exists() else VENV / "bin", Path(kubectl).parent]


def with_context(line: str, context: str | None) -> str:
    """A command line for a context of the kubeconfig, where one is named. Pure."""
    return f"{line} --context={context}" if context and line.startswith("kubectl ") else line


class Watch:
    """`kubectl get queues -w` in the background: each line is shown that changes more than its age."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._process = subprocess.Popen(kubectl.command("get", "queues", "-w"), stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last: dict[str, list[str]] = {}
        for line in self._process.stdout:
            name, *output = line.split()[:-1]
            if last.get(name) != output:
                print_progress(f"      {line.rstrip()}")
            last[name] = output

    def end(self) -> None:
        """No more of it."""
        self._process.terminate()
        self._process.wait()
        self._reader.join(timeout=5)


def print_line(text: str) -> None:
    """A command's output, below the step that it belongs to."""
    for line in text.rstrip().splitlines():
        print_progress(f"      {line}")
