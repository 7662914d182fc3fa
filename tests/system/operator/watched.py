"""Objects of a kind as a watch reports them, with the time of each change: what is measured needs no polling."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dev.cluster.kubectl import Kubectl

Object = dict[str, Any]


@dataclass
class Watched:
    """All reports, in order; `at_s` is monotonic."""

    events: list[tuple[float, Object]] = field(default_factory=list)
    more: threading.Condition = field(default_factory=threading.Condition)

    def add(self, document: Object) -> None:
        """One more."""
        with self.more:
            self.events.append((time.monotonic(), document))
            self.more.notify_all()

    def first(
        self, name: str, holds: Callable[[Object], bool], *, what: str, since_s: float = 0.0, timeout_s: float = 60
    ) -> float:
        """When a condition first held for an object, in a report after that time."""
        matches: list[float] = []

        def observed() -> bool:
            matches.extend(
                at_s
                for at_s, one in self.events
                if at_s >= since_s and one["metadata"]["name"] == name and holds(one)
            )
            return bool(matches)

        with self.more:
            if not self.more.wait_for(observed, timeout_s):
                last = next((one for _, one in reversed(self.events) if one["metadata"]["name"] == name), None)
                raise AssertionError(f"{name}: not {what} within {timeout_s:g} s: {json.dumps(last)}")
        return matches[0]

    def of(self, name: str) -> list[Object]:
        """All reports of an object so far."""
        with self.more:
            return [one for _, one in self.events if one["metadata"]["name"] == name]


@contextmanager
def watched(namespaced: Kubectl, kind: str) -> Iterator[Watched]:
    """From now on, by one kubectl."""
    watching = Watched()
    process = subprocess.Popen(
        namespaced.command("get", kind, "-w", "-o", "json", "--show-managed-fields"),
        stdout=subprocess.PIPE,
        text=True,
    )
    reading = threading.Thread(target=_read, args=(process, watching), daemon=True)
    reading.start()
    try:
        yield watching
    finally:
        process.terminate()
        process.wait(timeout=30)
        reading.join(timeout=30)


def _read(process: subprocess.Popen[str], watching: Watched) -> None:
    """kubectl writes one indented document after another."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("}"):
            watching.add(json.loads("".join(lines)))
            lines = []
