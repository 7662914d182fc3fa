"""bench-timeline runs on real servers, in a bounded time; how fast anything is, is not judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.timeline import BATCHES, LOOPS, PACED, PUTS, SCHEDULED, SINGLE
from bench.timeline_lanes import QUICK_MANY, name_of
from tests.system.timeline.quick_bench import quick_run


@pytest.mark.slow
def test_a_quick_run_measures_every_case_beside_its_baseline_with_lwts_and_reads_checked(tmp_path: Path) -> None:
    run = quick_run("timeline", tmp_path)
    assert {f"put, {puts.name}" for puts in PUTS} <= run.measured
    assert {f"put + receive + ack, {loop.name}" for loop in LOOPS[:-1]} <= run.measured
    assert {f"delivery at 1,000/s, {loop.name}" for loop in PACED[:-1]} <= run.measured
    assert {name_of(lanes) for lanes in QUICK_MANY} <= run.measured
    promised = {case for case, _ in run.promised}
    assert {f"put, {puts.name}" for puts in (SINGLE, BATCHES, SCHEDULED)} <= promised
    assert "a consumer's memory" in promised
    assert "0 tombstones in each of the three queues" in run.checked
    assert "without a lightweight transaction" in run.checked
