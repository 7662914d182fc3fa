"""A person at a shell, in the demo: runs our commands and kubectl, shows what they say, waits for what they promise.

Knows nothing of what is shown with it (demo_day.py, demo_spark.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.cluster.kubectl import Kubectl
from dev.demo_ground import ROOT, VENV, Connection
from headgate.errors import Surroundings
from headgate.testing.processes import wait_until
from headgate.testing.progress import say

NAMESPACE = "shop"


class Shell:
    """On a cluster with the operator, with a way to its Cassandra."""

    def __init__(self, kubectl: Kubectl, connection: Connection) -> None:
        self.kubectl = kubectl.in_namespace(NAMESPACE)
        path = f"{Path(kubectl.program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        told = {"KUBECONFIG": kubectl.kubeconfig, "PATH": path}
        self._environment: Mapping[str, str] = {**os.environ, **connection, **told}
        self.context = [f"--context={kubectl.context}"] if kubectl.context else []

    def headgate(self, *arguments: str) -> str:
        """A command of ours."""
        return self.run([str(VENV / "bin" / "headgate"), *arguments])

    def run(self, command: Sequence[str]) -> str:
        """What a command writes; the last line of what it says is the reason where it fails."""
        done = subprocess.run(
            command, env=dict(self._environment), capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
        )
        if done.returncode != 0:
            told = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"]
            name = f"{Path(command[0]).name} {command[1]}"
            raise Surroundings("a command of the demo failed", remedy="check its output", command=name, said=told[-1])
        return done.stdout

    def held(self, queue: str) -> int:
        """Messages that are there, due, in hands or later."""
        told: dict[str, Any] = json.loads(self.headgate("stats", "--queue", queue, "--json"))
        return int(told["backlog"]) + int(told["in_flight"]) + int(told["delayed"])

    def apply(self, file: Path, *ready: str, within_s: float) -> None:
        """`kubectl apply -f`, and these are Ready."""
        tell(self.kubectl.run("apply", "-f", str(file)))
        how = ("--for=condition=Ready", f"--timeout={within_s:.0f}s")
        self.kubectl.run("wait", *how, *ready, timeout_s=within_s + 30)

    def wait(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Until it holds; else what is seen is told."""
        if not wait_until(holds, timeout_s=within_s, every_s=0.5):
            told = self.kubectl.run("get", "queues,deployments,pods").strip().splitlines()
            raise Surroundings(
                "the demo's condition was not met in time",
                remedy="run kubectl headgate why queue/emails -n shop; make down stops it",
                waited_for=what,
                seconds=round(within_s),
                seen="; ".join(told[-6:]),
            )


class Watch:
    """`kubectl get queues -w` in the background: each line is shown that says more than its age."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._process = subprocess.Popen(kubectl.command("get", "queues", "-w"), stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last: dict[str, list[str]] = {}
        for line in self._process.stdout:
            name, *told = line.split()[:-1]
            if last.get(name) != told:
                say(f"      {line.rstrip()}")
            last[name] = told

    def end(self) -> None:
        """No more of it."""
        self._process.terminate()
        self._process.wait()
        self._reader.join(timeout=5)


def tell(text: str) -> None:
    """What a command wrote, below the step that it belongs to."""
    for line in text.rstrip().splitlines():
        say(f"      {line}")
