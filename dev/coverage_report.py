"""The fast tests' coverage, package by package: `make coverage`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from dev.tests import FAST, ROOT, existing, quiet_environment


def package_of(file: str) -> str:
    """`workers/headgate/store/model/cql.py` belongs to `headgate.store`; a package's own modules to the package."""
    parts = Path(file).parts[1:-1]
    return ".".join(parts[:2]) or file


def by_package(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, tuple[int, int]]:
    """Covered and all lines and branches of each package."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, facts in report["files"].items():
        summary = facts["summary"]
        totals[package_of(file)][0] += summary["covered_lines"] + summary.get("covered_branches", 0)
        totals[package_of(file)][1] += summary["num_statements"] + summary.get("num_branches", 0)
    return {package: (covered, total) for package, (covered, total) in sorted(totals.items())}


def main() -> int:
    """Run the fast tests under coverage and print a line a package."""
    coverage = [sys.executable, "-m", "coverage"]
    environment = {**quiet_environment(), "COVERAGE_PROCESS_START": "pyproject.toml"}
    subprocess.run([*coverage, "erase"], cwd=ROOT, check=True)
    tests = ["-m", "pytest", "-q", "-m", "not slow and not servers", *existing(FAST)]
    ran = subprocess.run([*coverage, "run", *tests], cwd=ROOT, env=environment, check=False)
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, check=True)
    subprocess.run([*coverage, "json", "--quiet", "-o", ".coverage.json"], cwd=ROOT, check=True)
    packages = by_package(json.loads((ROOT / ".coverage.json").read_text()))
    (ROOT / ".coverage.json").unlink()
    print(f"\n{'package':32} {'covered':>9} {'of':>9}")
    for package, (covered, total) in packages.items():
        print(f"{package:32} {100 * covered / total if total else 100:8.1f}% {total:9}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
