"""Run many seeds of the simulation: `make simulate SEEDS=1000`, or one again: `make simulate SEED=17`.

A seed that fails is named with the one command that replays it; with `--seed` its history is printed, readable.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from penstock.testing.progress import duration, say

WORKERS = 2
TOLD_EVERY_S = 20.0


def try_seed(seed: int, keep_history: bool = False) -> tuple[int, str | None, str]:
    """Run one; what went wrong, if anything did, and its history if it is wanted."""
    from tests.simulation.timeline_weather import live

    try:
        history = live(seed)
    except AssertionError as error:
        return seed, f"{error}" or traceback.format_exc(limit=-2), ""
    except Exception:
        return seed, traceback.format_exc(limit=-3), ""
    return seed, None, history if keep_history else ""


def main() -> int:
    """Run them, two at a time."""
    parser = argparse.ArgumentParser(prog="python -m dev.simulate")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="from which on")
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    asked = parser.parse_args()
    if asked.seed is not None:
        _, problem, history = try_seed(asked.seed, keep_history=True)
        say(history)
        say(problem or f"seed {asked.seed}: all held")
        return 1 if problem else 0
    return run_many(range(asked.first, asked.first + asked.seeds))


def run_many(seeds: range) -> int:
    """All of them; the failing ones are named at once and at the end."""
    started = told = time.monotonic()
    failed = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for number, (seed, problem, _) in enumerate(pool.map(try_seed, seeds, repeat(False), chunksize=4), start=1):
            if problem is not None:
                failed.append(seed)
                say(f"seed {seed} failed: {problem}\n  again: make simulate SEED={seed}")
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                say(f"  {number} of {len(seeds)} seeds, {len(failed)} failed, {duration(told - started)}")
    say(f"{len(seeds) - len(failed)} of {len(seeds)} seeds held, in {duration(time.monotonic() - started)}")
    if failed:
        say(f"failed: {', '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
