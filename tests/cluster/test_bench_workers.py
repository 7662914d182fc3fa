"""bench-workers runs on a real server with real workers, in a bounded time; how fast anything is, is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import docs
from bench.run import EXIT_INVALID
from bench.workers import MANY

SECONDS_MAX = 600
"""Several times what a quick run takes on a quiet machine: other tests share it."""


@pytest.mark.slow
def test_a_quick_run_measures_path_lanes_and_idling_with_every_message_handled(tmp_path: Path) -> None:
    kept_before = docs.read_results()
    output = tmp_path / "workers.json"
    ran = subprocess.run(
        [sys.executable, "-m", "bench.run", "workers", "--quick", "--output", str(output)],
        cwd=docs.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    # A busy machine makes the figures invalid; it must not make the run fail.
    assert ran.returncode in (0, EXIT_INVALID), ran.stdout[-2000:] + ran.stderr[-2000:]
    result = json.loads(output.read_text(encoding="utf-8"))
    promised = {(figure["case"], figure["metric"]) for figure in result["figures"] if figure["target"] is not None}
    assert {
        ("put + handle + settle", "rows a second"),
        *((each.name, "longest wait of the worst lane") for each in MANY),
        ("an idle worker with 12 lanes", "share of a core"),
        ("an idle worker with 12 lanes", "resident"),
    } == promised
    assert "every message that was put was handled" in " ".join(result["checked"])
    assert docs.read_results() == kept_before
