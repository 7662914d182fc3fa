"""Run one benchmark: `python -m bench.run NAME [--rounds N] [--seconds S] [--quick] [--output FILE]`.

Exit code 0: it was measured, and counts, whether targets were met or missed (both are said: a missed target is a
result). 3: it was measured, and does not count. 1: it could not be measured. 2: it was asked for wrongly.
A run that does not count, and a quick one, never take the place of a result that is kept.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

from bench import docs
from bench.machine import describe, read_load_average
from bench.measurement import Plan, Results, quick_plan
from bench.report import Document, as_text, document
from penstock.errors import PenstockError, SpecError
from penstock.testing.cassandra.jars import VERSION as CASSANDRA_VERSION
from penstock.testing.progress import say

BENCHMARKS = {"store": "bench.store"}
"""Each module has `measure(plan) -> Results`."""

EXIT_FAILED, EXIT_USAGE, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 3, 130


def parse(arguments: list[str]) -> tuple[str, Plan, Path | None]:
    """What to measure, how long, and where else to write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="measure one capability")
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="interleaved rounds a case (5)")
    parser.add_argument("--seconds", type=float, help="length of one contender's window in a round (1.0)")
    parser.add_argument("--quick", action="store_true", help="see that it works; the figures mean little")
    parser.add_argument("--output", type=Path, help="write the result there, also if it is quick or invalid")
    told = parser.parse_args(arguments)
    run = uuid.uuid4().hex
    plan = quick_plan(run) if told.quick else Plan(run)
    rounds = plan.rounds if told.rounds is None else told.rounds
    seconds = plan.seconds if told.seconds is None else told.seconds
    return told.name, replace(plan, rounds=rounds, seconds=seconds), told.output


def commit() -> str:
    """Which state of the tree was measured; a change since the commit is said."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    said = subprocess.run(asked, cwd=docs.ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def measure(name: str, plan: Plan) -> Document:
    """The result as it is kept."""
    machine = describe()
    before = read_load_average()
    if before > int(str(machine["cores"])):
        say(f"the machine is busy (load {before}): figures by wall clock will be low")
    results: Results = importlib.import_module(BENCHMARKS[name]).measure(plan)
    surroundings = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "versions": {
            "cassandra": CASSANDRA_VERSION,
            "cassandra-driver": importlib.metadata.version("cassandra-driver"),
            "penstock": importlib.metadata.version("penstock"),
        },
        "load_average": {"before": before, "after": read_load_average()},
    }
    return document(name, plan, results, machine, surroundings)


def keep(kept: Document, output: Path | None) -> None:
    """Write it where it was asked for, and among the results if it counts."""
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if kept["valid"] and not kept["quick"]:
        docs.RESULTS.mkdir(exist_ok=True)
        (docs.RESULTS / f"{kept['name']}.json").write_text(text, encoding="utf-8")
        docs.write()
        say(f"kept in bench/results/{kept['name']}.json and docs/benchmarks.md")
    else:
        say(f"not kept in bench/results: {'a quick run' if kept['quick'] else 'the run does not count'}")


def main(arguments: list[str]) -> int:
    """Measure, tell, keep."""
    try:
        name, plan, output = parse(arguments)
        kept = measure(name, plan)
        say("\n".join(as_text(kept)))
        keep(kept, output)
    except SpecError as error:
        say(str(error), to=sys.stderr)
        return EXIT_USAGE
    except PenstockError as error:
        say(str(error), to=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("interrupted; nothing was kept", to=sys.stderr)
        return EXIT_INTERRUPTED
    return 0 if kept["valid"] else EXIT_INVALID


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
