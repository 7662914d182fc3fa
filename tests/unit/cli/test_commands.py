"""The commands of `make`: nothing has to be made before `make test`, and coverage is printed package by package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dev.coverage_report import by_package

ROOT = Path(__file__).parents[3]


def steps_of(target: str) -> list[str]:
    """The commands that make would run where there is no virtual environment."""
    output = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target, "PYTHON=python3", "VENV=not-there"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return output.stdout.splitlines()


def test_make_test_needs_nothing_that_somebody_made_before() -> None:
    assert ["python3 -m dev.tests all"] == steps_of("test")
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "import dev.tests"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'workers'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (0, "") == (ran.returncode, ran.stderr)


def test_coverage_is_given_by_package() -> None:
    def file(covered: int, total: int, branches: int = 0) -> dict[str, dict[str, int]]:
        summary = {"covered_lines": covered, "num_statements": total}
        return {"summary": summary | {"covered_branches": branches, "num_branches": 2 * branches}}

    report = {
        "files": {
            "workers/headgate/store/model/cql.py": file(8, 10, 2),
            "workers/headgate/store/schema.py": file(1, 2),
            "workers/headgate/errors.py": file(3, 3),
        }
    }
    assert {"headgate": (3, 3), "headgate.store": (11, 16)} == by_package(report)
    assert [".venv/bin/python -m dev.coverage_report"] == [
        step.replace("not-there", ".venv") for step in steps_of("coverage") if "coverage_report" in step
    ]
