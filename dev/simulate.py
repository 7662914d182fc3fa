"""Run many seeds of the simulation: `make simulate SEEDS=10000`, or one again: `make simulate SEED=17`.

A seed is a whole life of a queue under faults (tests/simulation/timeline/timeline_weather.py), of a counter with
`--of counters` (counter_weather.py; `make simulate OF=counters`), or of the operator with `--of operator`
(operator_weather.py). `--of steady` asks whether a queue keeps working under an even load; `--soak` gives it a day.
A failure is printed with the one command that replays it and shows its history, which is kept
in a file as well; `STATEMENTS=1` shows each statement too. `MINUTES=60` limits a run by the CPU time of the lives.
`FIRST=n` continues an earlier run, which prints that number.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from headgate.local.cache import cache_root
from headgate.local.progress import duration, print_progress

PROGRESS_EVERY_S = 20.0
FAILURES_MAX = 5
PROBLEM_LINES_MAX = 40
AHEAD = 4
"""Seeds given to each process at a time: enough to keep it busy, few enough to end soon."""


@dataclass(frozen=True)
class Tried:
    """How one seed ended."""

    seed: int
    problem: str | None
    about: str
    history: str
    cpu_s: float


LIVES = {
    "queues": "tests.simulation.timeline.timeline_weather",
    "steady": "tests.simulation.timeline.steady",
    "soak": "tests.simulation.timeline.soak",
    "counters": "tests.simulation.counters.counter_weather",
    "operator": "tests.simulation.operator.operator_weather",
}


def try_seed(seed: int, *, of: str = "queues", statements: bool = False, keep_history: bool = False) -> Tried:
    """Run one seed."""
    logging.disable(logging.CRITICAL)  # log lines of a simulated world's processes would describe no machine of ours
    live = importlib.import_module(LIVES[of]).live

    began_s = time.process_time()
    ended = live(seed, statements=statements)
    history = ended.history if keep_history or ended.problem else ""
    return Tried(seed, ended.problem, ended.plan.describe(), history, time.process_time() - began_s)


def main() -> int:
    """One with its history, or many side by side."""
    parser = argparse.ArgumentParser(prog="python -m dev.simulate")
    parser.add_argument("--of", choices=sorted(LIVES), default="queues", help="which simulation")
    parser.add_argument("--soak", action="store_true", help="one day of a queue, with hours of quiet")
    parser.add_argument("--seed", type=int, help="only this seed, with its history")
    parser.add_argument("--statements", action="store_true", help="with every statement in the history")
    parser.add_argument("--seeds", type=int, help="number of seeds")
    parser.add_argument("--minutes", type=float, help="as many seeds as fit into this CPU time")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--failures", type=int, default=FAILURES_MAX, help="stop after this number of failures")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.soak:
        asked.of, asked.seeds = "soak", asked.seeds or 1
    if asked.seed is not None:
        return print_one(try_seed(asked.seed, of=asked.of, statements=asked.statements, keep_history=True))
    seeds = None if asked.seeds is None and asked.minutes is not None else asked.seeds or 1000
    run = Run(asked.first, seeds, asked.minutes, asked.failures, of=asked.of)
    return run.run(asked.processes)


def print_one(tried: Tried) -> int:
    """Its history, and the broken invariants."""
    print_progress(tried.history)
    print_progress(f"\nseed {tried.seed}: {tried.about}")
    print_progress(tried.problem or f"seed {tried.seed}: passed")
    return 1 if tried.problem else 0


def keep_history(tried: Tried, of: str = "queues") -> Path:
    """Where the history of a seed that failed can be read; the next failure of that seed overwrites it."""
    path = cache_root() / "simulate" / f"{'' if of == 'queues' else f'{of}-'}seed-{tried.seed}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{tried.history}\n\nseed {tried.seed} ({tried.about}):\n{tried.problem}\n")
    return path


class Run:
    """Many seeds, in the order of their numbers; they end in any order."""

    def __init__(
        self, first: int, seeds: int | None, minutes: float | None, failures_max: int, *, of: str = "queues"
    ) -> None:
        self._lives = of
        self._again = "make simulate" + (f" OF={of}" if of != "queues" else "")
        self._numbers: Iterator[int] = count(first) if seeds is None else iter(range(first, first + seeds))
        self._of = "" if seeds is None else f" of {seeds}"
        self._cpu_s_max = float("inf") if minutes is None else minutes * 60
        self._failures_max = failures_max
        self._next = first
        self._done = 0
        self._cpu_s = 0.0
        self._failed: list[int] = []
        self._began_s = self._printed_s = time.monotonic()

    def run(self, processes: int) -> int:
        """All of them, until one of the bounds is met."""
        under_way: set[Future[Tried]] = set()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends the children too
        with ProcessPoolExecutor(processes) as pool:
            try:
                while self._goes_on() or under_way:
                    while self._goes_on() and len(under_way) < processes * AHEAD:
                        number = next(self._numbers, None)
                        if number is None:
                            self._failures_max = 0  # no more are started
                            break
                        self._next = number + 1
                        under_way.add(pool.submit(try_seed, number, of=self._lives))
                    ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    for each in ended:
                        self._take(each.result())
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
        return self._close()

    def _goes_on(self) -> bool:
        return len(self._failed) < self._failures_max and self._cpu_s < self._cpu_s_max

    def _take(self, tried: Tried) -> None:
        self._done += 1
        self._cpu_s += tried.cpu_s
        if tried.problem is not None:
            self._failed.append(tried.seed)
            lines = tried.problem.splitlines()
            shown = "\n  ".join(lines[:PROBLEM_LINES_MAX])
            print_progress(f"seed {tried.seed} failed ({tried.about}):\n  {shown}")
            print_progress(
                f"  its history: {keep_history(tried, self._lives)}\n  again: {self._again} SEED={tried.seed}"
            )
        if time.monotonic() - self._printed_s > PROGRESS_EVERY_S:
            self._printed_s = time.monotonic()
            print_progress(f"  {self._done}{self._of} seeds, {len(self._failed)} failed, {self._spent()}")

    def _spent(self) -> str:
        return f"{duration(time.monotonic() - self._began_s)}, {duration(self._cpu_s)} of CPU time"

    def _close(self) -> int:
        print_progress(f"{self._done - len(self._failed)} of {self._done} seeds passed, in {self._spent()}")
        print_progress(f"to continue: {self._again} FIRST={self._next}")
        if self._failed:
            print_progress(f"failed: {', '.join(map(str, sorted(self._failed)))}")
        return 1 if self._failed else 0


if __name__ == "__main__":
    sys.exit(main())
