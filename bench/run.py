"""Run one benchmark: `python -m bench.run NAME [--only PARTS] [--rounds N] [--seconds S] [--quick] [--output FILE]`.

Exit code 0: it was measured, and counts, whether targets were met or missed (both are reported: a missed target is a
result). 3: it was measured, and does not count. 1: it could not be measured. 2: the request was invalid. A run that
does not count, and a quick one, never replace a kept result. A run of some parts alone is kept if the others were
measured on the same machine and of committed code, and count. They are joined, and each states its commit if that is
not the last.
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
from bench.joining import are_joinable, joined
from bench.machine import describe, read_load_average
from bench.measurement import Plan, Results, quick_plan
from bench.report import Document, as_text, document
from headgate.errors import HeadgateError, InvalidRequest
from headgate.local.cassandra.installation import VERSION as CASSANDRA_VERSION
from headgate.local.progress import print_progress

BENCHMARKS = {name: f"bench.{name}" for name in ("counters", "operator", "spark", "store", "timeline", "workers")}
"""Each module has `measure(plan) -> Results`; one that has PARTS can measure some of them alone."""

EXIT_FAILED, EXIT_USAGE, EXIT_INVALID, EXIT_INTERRUPTED = 1, 2, 3, 130


def parse(arguments: list[str]) -> tuple[str, Plan, Path | None]:
    """The parts to measure, the time limit, and the additional output file."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="measure one capability")
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="interleaved rounds per case (5)")
    parser.add_argument("--seconds", type=float, help="length of one contender's window in a round (1.0)")
    parser.add_argument("--only", default="", help="measure these parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="check that it works; the figures mean little")
    parser.add_argument("--output", type=Path, help="write the result to this file, also if it is quick or invalid")
    answer = parser.parse_args(arguments)
    run = uuid.uuid4().hex
    plan = quick_plan(run) if answer.quick else Plan(run)
    rounds = plan.rounds if answer.rounds is None else answer.rounds
    seconds = plan.seconds if answer.seconds is None else answer.seconds
    only = tuple(part for part in answer.only.split(",") if part)
    parts: tuple[str, ...] = getattr(importlib.import_module(BENCHMARKS[answer.name]), "PARTS", ())
    if unknown := [part for part in only if part not in parts]:
        remedy = f"one of {', '.join(parts)}" if parts else "measure all of it"
        raise InvalidRequest("unknown part", remedy=remedy, parts=", ".join(unknown))
    return answer.name, replace(plan, rounds=rounds, seconds=seconds, only=only), answer.output


def commit() -> str:
    """The measured state of the tree; a change since the commit is reported."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    output = subprocess.run(asked, cwd=docs.ROOT, capture_output=True, text=True, check=False)
    return output.stdout.strip() or "unknown"


def measure(name: str, plan: Plan) -> Document:
    """The result as it is kept."""
    machine = describe()
    before = read_load_average()
    if before > int(str(machine["cores"])):
        print_progress(f"the machine is busy (load {before}): wall-clock figures will be low")
    results: Results = importlib.import_module(BENCHMARKS[name]).measure(plan)
    surroundings = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "versions": {
            "cassandra": CASSANDRA_VERSION,
            "cassandra-driver": importlib.metadata.version("cassandra-driver"),
            "headgate": importlib.metadata.version("headgate"),
        },
        "load_average": {"before": before, "after": read_load_average()},
    }
    return document(name, plan, results, machine, surroundings)


def keep(kept: Document, output: Path | None) -> None:
    """Write it to the requested file, and among the results if it counts."""
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if not kept["valid"] or kept["quick"]:
        print_progress(f"not kept in bench/results: {'a quick run' if kept['quick'] else 'the run does not count'}")
        return
    file = docs.RESULTS / f"{kept['name']}.json"
    whole = kept
    if kept["only"] and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if not are_joinable(before, kept):
            print_progress(
                "not kept in bench/results: the other parts are from another machine, or from uncommitted code"
            )
            return
        whole = joined(before, kept)
    docs.RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    docs.write()
    print_progress(f"kept in bench/results/{kept['name']}.json and docs/internals/benchmarks.md")


def main(arguments: list[str]) -> int:
    """Measure, report, keep."""
    try:
        name, plan, output = parse(arguments)
        kept = measure(name, plan)
        print_progress("\n".join(as_text(kept)))
        keep(kept, output)
    except InvalidRequest as error:
        print_progress(str(error), to=sys.stderr)
        return EXIT_USAGE
    except HeadgateError as error:
        print_progress(str(error), to=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print_progress("interrupted; nothing was kept", to=sys.stderr)
        return EXIT_INTERRUPTED
    return 0 if kept["valid"] else EXIT_INVALID


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
