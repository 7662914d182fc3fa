"""Run the tests: `python3 -m dev.tests all|fast|servers|long|lint`.

`all` needs nothing but this checkout and the programs that the README names. Slow first builds (Kubernetes,
Cassandra's jars) start at once, concurrently with the tests that need no server; the rest waits for them.
`long` runs the slow tests by the same groups, and writes their results into docs/internals/testing.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dev import environment
from headgate.local.cache import cache_root
from headgate.local.progress import duration, print_progress

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
FAST = ("tests/unit", "tests/simulation", "tests/contract")
SERVERS = ("tests/contract", "tests/system", "tests/golden")
_ALONE = "not rings and not kubernetes and not pods and not operators and not spark"
SERVER_GROUPS = {
    "applications": f"servers and applications and {_ALONE}",
    "pods": "servers and pods and not spark",
    "Spark": "servers and spark",
    "rings of Cassandras": "servers and rings and not kubernetes and not pods and not operators and not spark",
    "single Cassandras": f"servers and not applications and {_ALONE}",
    "Kubernetes": "servers and kubernetes and not pods and not operators and not spark",
    "operators": "servers and operators and not pods and not spark",
}
"""Tests that share servers run in one process each; two such processes at a time, in an order by
which the two end together (docs/internals/testing.md has the times)."""
PARALLEL = ("operators",)
"""These wait most of their time for an operator's next check: they run concurrently with the two."""
CLUSTERS = {"pods": "test-pods", "operators": "test-operators"}
"""A cluster of its own for a group that may run concurrently with another that has one."""
RECORD = ROOT / "docs" / "internals" / "testing.md"
RECORD_MARKS = ("<!-- last long run -->\n", "<!-- end of last long run -->\n")
SHORT_LIMITS = ("-o", "timeout=300", "-o", "faulthandler_timeout=290")
LONG_LIMITS = ("-o", "timeout=7200", "-o", "faulthandler_timeout=7100")
NO_TESTS = 5
"""pytest's exit code where none was selected."""
COLD_BUILDS = (
    ("Cassandra", ("dev.servers.cassandra", "fetch", "--with-engine")),
    ("Kubernetes", ("dev.cluster", "build", "--with", "helm")),
    ("the image", ("dev.cluster", "image", "--only-build")),
)


@dataclass
class Part:
    """One part of a run, and its result."""

    name: str
    code: int
    seconds: float
    closing: str = ""


@dataclass
class Report:
    """The results so far; the last lines of the output."""

    parts: list[Part] = field(default_factory=list)

    def close(self) -> int:
        """Print the result of each part, from the runners' own output; the exit code is the worst of them."""
        print_progress("")
        for part in self.parts:
            verdict = "passed" if part.code == 0 else f"FAILED (exit code {part.code})"
            print_progress(f"{part.name}: {verdict} in {duration(part.seconds)}")
            if part.closing:
                print_progress(part.closing)
        return max((part.code for part in self.parts), default=1)


def run(name: str, command: Sequence[str], report: Report) -> None:
    """Run one part, showing its output as it comes, and keep its closing line."""
    print_progress(f"\n== {name}")
    started = time.monotonic()
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet_environment()
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print_progress(line.rstrip("\n"))
            lines.append(line)
    report.parts.append(Part(name, process.returncode, time.monotonic() - started, closing_of("".join(lines))))


def quiet_environment() -> dict[str, str]:
    """Ours, so that tests find the tree, and the same seed of hashing for all workers."""
    return {**os.environ, "PYTHONPATH": "workers:operator:spark:.", "PYTHONUNBUFFERED": "1"}


class ColdBuilds:
    """Slow first builds, run in the background; a log each, shown only when one fails."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._threads = [
            threading.Thread(target=self._build, args=(name, module), daemon=True) for name, module in COLD_BUILDS
        ]

    def start(self) -> None:
        """Begin, all side by side, at a lower priority than the tests."""
        for thread in self._threads:
            thread.start()

    def wait(self) -> bool:
        """Whether everything exists."""
        for thread in self._threads:
            thread.join()
        return not self.failed

    def _build(self, name: str, module: tuple[str, ...]) -> None:
        log = cache_root() / "log" / f"{name.removeprefix('the ')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("w") as output:
            command = ["nice", "-n", "5", sys.executable, "-m", *module]
            done = subprocess.run(
                command, cwd=ROOT, stdout=output, stderr=output, env=quiet_environment(), check=False
            )
        took = duration(time.monotonic() - started)
        if done.returncode == 0:
            print_progress(f"  ✓ {name} is built and cached: {took}")
        else:
            self.failed.append(name)
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
            print_progress(f"  ✗ {name} failed to build after {took}:\n    " + "\n    ".join(last))


def pytest(*arguments: str) -> list[str]:
    """pytest of the environment."""
    return [str(BIN / "python"), "-m", "pytest", "-q", *arguments]


def existing(paths: Sequence[str]) -> list[str]:
    """Those of the paths that exist and contain a test."""
    return [path for path in paths if any((ROOT / path).rglob("test_*.py"))]


def lint(report: Report) -> None:
    """Style, types, and files that are generated."""
    run("ruff", [str(BIN / "ruff"), "check", "."], report)
    run("ruff format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."], report)
    run("mypy", [str(BIN / "mypy")], report)
    run("imports", [str(BIN / "lint-imports"), "--no-cache", "--no-logo"], report)
    run("generated files", [str(BIN / "python"), "-m", "headgate.api.generate", "--check"], report)
    run("generated files of the chart", [str(BIN / "python"), "-m", "dev.chart_files", "--check"], report)
    run("generated files of the SDK", [str(BIN / "python"), "-m", "dev.sync_sdk", "--check"], report)


def fast(report: Report) -> None:
    """Unit tests and simulation; no servers."""
    both_cores = ("-n", "2", "-m", "not slow and not servers", *SHORT_LIMITS)
    run("tests without servers", pytest(*both_cores, *existing(FAST)), report)


def servers(report: Report) -> None:
    """Everything that needs a real server, except slow tests."""
    run_groups({name: f"{which} and not slow" for name, which in SERVER_GROUPS.items()}, SERVERS, report)


def run_groups(groups: Mapping[str, str], paths: Sequence[str], report: Report, *options: str) -> None:
    """Those tests under the paths, by groups; a group's output is printed when it has ended."""
    with ThreadPoolExecutor(2) as two, ThreadPoolExecutor(len(PARALLEL)) as others:
        lanes = {name: others if name in PARALLEL else two for name in groups}
        started = [
            lanes[name].submit(run_quietly, name, "-m", which, *options, *existing(paths))
            for name, which in groups.items()
        ]
        report.parts += [each.result() for each in started]


def run_quietly(name: str, *arguments: str) -> Part:
    """Run one group of tests that share servers, and print its output when it is done."""
    print_progress(f"\n== tests on {name}: started")
    started = time.monotonic()
    command = pytest(*arguments)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=quiet_environment() | ({"HEADGATE_TEST_CLUSTER": CLUSTERS[name]} if name in CLUSTERS else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print_progress(f"\n== tests on {name}\n{done.stdout.rstrip()}")
    code = 0 if done.returncode == NO_TESTS else done.returncode
    return Part(f"tests on {name}", code, time.monotonic() - started, closing_of(done.stdout))


def closing_of(output: str) -> str:
    """The runner's own last line."""
    lines = [line for line in output.splitlines() if " passed" in line or " failed" in line or " error" in line]
    return lines[-1] if lines else ""


def everything(report: Report) -> None:
    """All of it, on a machine that may have nothing yet."""
    builds = ColdBuilds()
    builds.start()
    if not (ROOT / ".venv" / "ready").exists() and environment.main([]) != 0:
        report.parts.append(Part("virtual environment", 1, 0))
        return
    lint(report)
    fast(report)
    if builds.wait():
        servers(report)
    else:
        report.parts.append(Part("builds of " + ", ".join(builds.failed), 1, 0))


def slow(report: Report) -> None:
    """The tests that are too slow for each run, and the record of their result."""
    groups = {name: f"{which} and slow" for name, which in SERVER_GROUPS.items()}
    groups["no server"] = "slow and not servers"
    run_groups(groups, sorted({*FAST, *SERVERS}), report, *LONG_LIMITS)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = RECORD.read_text(encoding="utf-8")
    RECORD.write_text(with_record(page, report, commit.stdout.strip(), datetime.now(UTC)), encoding="utf-8")


def with_record(page: str, report: Report, commit: str, at: datetime) -> str:
    """The page with this run in place of the last one."""
    before, rest = page.split(RECORD_MARKS[0])
    _, after = rest.split(RECORD_MARKS[1])
    rows = [
        f"| {part.name.removeprefix('tests on ')} | {'passed' if part.code == 0 else 'FAILED'} | {counts_of(part)} "
        f"| {duration(part.seconds)} |\n"
        for part in report.parts
    ]
    head = f"{at:%Y-%m-%d}, commit {commit}:\n\n| group | result | tests | time |\n|---|---|---|---|\n"
    return before + RECORD_MARKS[0] + head + "".join(rows) + RECORD_MARKS[1] + after


def counts_of(part: Part) -> str:
    """How many tests passed and failed, from the runner's closing line."""
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", part.closing)
    return ", ".join(counts) or "none"


def main(arguments: list[str]) -> int:
    """Run the named parts."""
    which = {"all": everything, "fast": fast, "servers": servers, "long": slow, "lint": lint}
    if len(arguments) != 1 or arguments[0] not in which:
        print_progress(f"usage: python3 -m dev.tests {'|'.join(which)}", to=sys.stderr)
        return 2
    report = Report()
    which[arguments[0]](report)
    return report.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
