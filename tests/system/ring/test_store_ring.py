"""The store on a ring of three, one node of which is killed, stopped or cut off while clients write.

Nothing acknowledged at LOCAL_QUORUM is lost, no write fails that could be sent again, no lock has two owners,
and the longest time without an acknowledgement is printed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra import HostedRing

FOLDER = Path(__file__).parents[3]
BEFORE, DURING, AFTER = 300, 1500, 600
"""Acknowledged writes before the fault, while it lasts, and after it."""

GAP_S_MAX = 10.0
"""The time that a write is given: with a longer gap some write would have failed."""


class Workload:
    """The process of the writers, standing beside node n1."""

    def __init__(self, ring: HostedRing, order: str) -> None:
        argv = ring.client(near="n1").command([sys.executable, "-m", "tests.system.cassandra.store_workload", order])
        environment = {**ring.environment(), "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=FOLDER, env=environment, text=True
        )
        self.acked = 0

    def wait_for_acks(self, more: int) -> None:
        """Return when this number of further writes is acknowledged."""
        wanted = self.acked + more
        while self.acked < wanted:
            self.acked = int(self.line("acked"))

    def line(self, word: str) -> str:
        """Its next line after this word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            result = re.fullmatch(rf"{word} (.*)\n", line)
            if result is not None:
                return result[1]
        raise AssertionError(f"the workload ended before it printed {word!r}")

    def end(self) -> dict[str, Any]:
        """Let it end, and return what it saw."""
        self.write_line("\n")
        observation: dict[str, Any] = json.loads(self.line("ended"))
        return observation

    def write_line(self, text: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def workload(ring: HostedRing, order: str) -> Iterator[Workload]:
    """A workload that does not outlive its test."""
    started = Workload(ring, order)
    try:
        yield started
    finally:
        started.close()


def _kill(ring: HostedRing) -> None:
    ring.nodes[2].kill()


def _stop(ring: HostedRing) -> None:
    ring.nodes[2].pause()


def _cut_off(ring: HostedRing) -> None:
    ring.cut("n3", "n1")
    ring.cut("n3", "n2")


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(_kill, id="killed"),
        pytest.param(_stop, id="stopped", marks=pytest.mark.slow),
        pytest.param(_cut_off, id="cut off", marks=pytest.mark.slow),
    ],
)
def test_a_node_is_lost_and_no_acknowledged_write_with_it(
    cassandra_hosts: HostedRing, strike: Callable[[HostedRing], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ring = cassandra_hosts
    with workload(ring, "run") as running:
        running.wait_for_acks(BEFORE)
        strike(ring)
        running.wait_for_acks(DURING)
        ring.restore()
        running.wait_for_acks(AFTER)
        observation = running.end()
    with workload(ring, "check") as checking:
        checking.write_line(json.dumps(observation) + "\n")
        missing = json.loads(checking.line("missing"))
    with capsys.disabled():
        report = ("longest_gap_s", "longest_write_s", "verdicts", "resolved", "unknown_lwts", "takes")
        sys.stdout.write(
            f"\n  acknowledged {sum(observation['acked'])}, "
            + ", ".join(f"{key} {observation[key]}" for key in report)
        )
    assert [] == missing
    assert [] == observation["failed"]
    assert [] == observation["double_locks"]
    assert observation["takes"] > 0
    assert observation["longest_gap_s"] < GAP_S_MAX
