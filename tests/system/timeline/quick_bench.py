"""A benchmark run quickly, to see that it runs at all: how fast anything is, is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import docs
from bench.run import EXIT_INVALID

SECONDS_MAX = 600
"""Several times what a quick run takes on a quiet machine: other tests share it."""


@dataclass(frozen=True)
class QuickRun:
    """The result of a run, and its output."""

    result: dict[str, Any]
    printed: str
    is_invalid: bool

    @property
    def measured(self) -> set[str]:
        """The cases that have a figure."""
        return {figure["case"] for figure in self.result["figures"]}

    @property
    def promised(self) -> set[tuple[str, str]]:
        """The cases and metrics with a target."""
        return {
            (figure["case"], figure["metric"]) for figure in self.result["figures"] if figure["target"] is not None
        }

    @property
    def checked(self) -> str:
        """Its report of its receipts."""
        return " ".join(self.result["checked"])


def quick_run(suite: str, folder: Path, *, seconds_max: float = SECONDS_MAX) -> QuickRun:
    """Run it; a result that is kept is not touched by it."""
    kept_before = docs.read_results()
    output = folder / f"{suite}.json"
    ran = subprocess.run(
        [sys.executable, "-m", "bench.run", suite, "--quick", "--output", str(output)],
        cwd=docs.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
    )
    # A busy machine makes the figures invalid; it must not make the run fail.
    assert ran.returncode in (0, EXIT_INVALID), ran.stdout[-2000:] + ran.stderr[-2000:]
    assert docs.read_results() == kept_before
    return QuickRun(json.loads(output.read_text(encoding="utf-8")), ran.stdout, ran.returncode == EXIT_INVALID)
