"""bench-timeline runs on real servers, in a bounded time; how fast anything is, is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import docs
from bench.run import EXIT_INVALID
from bench.timeline import BATCHES, LOOPS, PACED, PUTS, SCHEDULED, SINGLE

SECONDS_MAX = 600
"""More than twice what a quick run takes on a quiet machine: other tests share it."""


@pytest.mark.slow
def test_a_quick_run_measures_every_case_beside_its_baseline_with_lwts_and_reads_checked(tmp_path: Path) -> None:
    kept_before = docs.read_results()
    output = tmp_path / "timeline.json"
    ran = subprocess.run(
        [sys.executable, "-m", "bench.run", "timeline", "--quick", "--output", str(output)],
        cwd=docs.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    # A busy machine makes the figures invalid; it must not make the run fail.
    assert ran.returncode in (0, EXIT_INVALID), ran.stdout[-2000:] + ran.stderr[-2000:]
    result = json.loads(output.read_text(encoding="utf-8"))
    measured = {figure["case"] for figure in result["figures"]}
    assert {f"put, {puts.name}" for puts in PUTS} <= measured
    assert {f"put + receive + ack, {loop.name}" for loop in LOOPS[:-1]} <= measured
    assert {f"delivery at 1,000/s, {loop.name}" for loop in PACED[:-1]} <= measured
    promised = {figure["case"] for figure in result["figures"] if figure["target"] is not None}
    assert {f"put, {puts.name}" for puts in (SINGLE, BATCHES, SCHEDULED)} <= promised
    assert "a consumer's memory" in promised
    told = " ".join(result["checked"])
    assert "0 tombstones in each of the three queues" in told
    assert "without a lightweight transaction" in told
    assert docs.read_results() == kept_before
