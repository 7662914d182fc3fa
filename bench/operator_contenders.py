"""The two operators of bench-operator as processes, alike from outside: started, queried for the time of decisions,
ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from bench.client_process import ROOT
from headgate.errors import Unavailable

READY_WITHIN_S = 60.0
GRACE_S = 20.0
Changed = tuple[str, str, int]
"""Namespace, name and generation of a change."""


class Contender(ABC):
    """One operator; a context manager that ends it."""

    name: str

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        path = os.pathsep.join(str(ROOT / folder) for folder in ("workers", "operator", "."))
        self._log = log
        with log.open("ab") as text:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=text,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": path},
            )

    @property
    def pid(self) -> int:
        """The processes whose CPU seconds and memory count."""
        return self._process.pid

    def until_ready(self) -> None:
        """It works; without a decision ring, its first object shows it."""
        self.require_alive()

    @abstractmethod
    def decided_at(self, changes: Iterable[Changed]) -> dict[Changed, float]:
        """When it decided about each, in seconds since 1970, as far as it did."""

    def require_alive(self) -> None:
        """It has not ended by itself."""
        if self._process.poll() is not None:
            last = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()][-3:]
            raise Unavailable("an operator ended", which=self.name, last="; ".join(last))

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Ours(Contender):
    """`headgate-operator`, out of the cluster."""

    name = "headgate-operator"

    def __init__(self, kubeconfig: str, namespace: str, log: Path) -> None:
        self._port = _free_port()
        arguments = [
            "headgate_operator.process.main", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}",
            f"--health=127.0.0.1:{self._port}", "--inspection=off",
        ]  # fmt: skip
        super().__init__(arguments, {}, log)

    def until_ready(self) -> None:
        """Its lists are read, and it works."""
        deadline_s = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline_s:
            self.require_alive()
            try:
                if "headgate_operator_leading 1.0" in self._ask("/metrics").splitlines() and self._ask("/readyz"):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise Unavailable("the operator does not lead in time", seconds=READY_WITHIN_S)

    def decided_at(self, changes: Iterable[Changed]) -> dict[Changed, float]:
        """From its ring of decisions."""
        entries = {}
        for namespace, name, generation in changes:
            output = json.loads(self._ask(f"/why/queue/{namespace}/{name}"))["decisions"]
            times = [one["at_us"] / 1e6 for one in output if one["rested_on"].get("generation") == generation]
            if times:
                entries[namespace, name, generation] = min(times)
        return entries

    def _ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            return str(answer.read().decode())


class Minimal(Contender):
    """The minimal kopf operator, in one namespace."""

    name = "minimal kopf operator"

    def __init__(self, kubeconfig: str, namespace: str, log: Path) -> None:
        self._namespace = namespace
        self._report_file = log.with_suffix(".changes")
        self._report_file.touch()
        super().__init__(
            ["bench.operator_minimal", namespace, str(self._report_file)], {"KUBECONFIG": kubeconfig}, log
        )

    def decided_at(self, changes: Iterable[Changed]) -> dict[Changed, float]:
        """As its handler wrote down."""
        wanted = set(changes)
        entries: dict[Changed, float] = {}
        for line in self._report_file.read_text().splitlines():
            name, generation, instant = line.split()
            change = (self._namespace, name, int(generation))
            if change in wanted:
                entries[change] = min(float(instant), entries.get(change, float(instant)))
        return entries


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
