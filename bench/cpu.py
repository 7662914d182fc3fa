"""CPU seconds of processes, as the kernel counts them in /proc/<pid>/stat: all threads, and all children.

The time of an ended child is in its parent's account once the parent has waited for it, and in its own until then, so
the sum over a tree only grows while its root lives. Precise to a tick (10 ms): a window of a second is precise to a
hundredth.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import Unavailable

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessTicks:
    """The relevant fields of one line of /proc/<pid>/stat."""

    pid: int
    parent: int
    own: int
    waited_for: int

    @property
    def ticks(self) -> int:
        """Its own, all threads, and those of children that it has waited for."""
        return self.own + self.waited_for


def parse_stat(text: str) -> ProcessTicks:
    """The name of a program is in parentheses and may contain parentheses and spaces: the fields come after the last
    one."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    user, system, children_user, children_system = (int(field) for field in fields[11:15])
    return ProcessTicks(int(head.partition("(")[0]), int(fields[1]), user + system, children_user + children_system)


def ticks_by_root(processes: Iterable[ProcessTicks], roots: Collection[int]) -> dict[int, int]:
    """The ticks of each root and of all that descends from it."""
    known = list(processes)
    children: dict[int, list[ProcessTicks]] = {}
    for process in known:
        children.setdefault(process.parent, []).append(process)
    by_pid = {process.pid: process for process in known}
    totals = {}
    for root in roots:
        if root not in by_pid:
            raise Unavailable("a measured process ended", pid=root)
        total, waiting = 0, [by_pid[root]]
        while waiting:
            process = waiting.pop()
            total += process.ticks
            waiting += children.get(process.pid, [])
        totals[root] = total
    return totals


def read_cpu_s(roots: Collection[int]) -> dict[int, float]:
    """CPU seconds until now of each process and its children."""
    return {pid: ticks / TICKS_PER_S for pid, ticks in ticks_by_root(_all_processes(), roots).items()}


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still run."""
    return [process.pid for process in _all_processes() if process.parent == pid]


def grown_by(before: Mapping[int, float], after: Mapping[int, float]) -> dict[int, float]:
    """The use of each between two readings."""
    return {pid: after[pid] - before[pid] for pid in before}


def _all_processes() -> Iterable[ProcessTicks]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                yield parse_stat((directory / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # It ended during the reading; the caller checks the processes that count.
