"""bench-counters runs on a real server beside native counter columns, in a bounded time; how fast is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.counters import CASES, NATIVE_NAME
from tests.system.timeline.quick_bench import quick_run


@pytest.mark.slow
def test_a_quick_run_measures_every_part_beside_counter_columns_with_each_count_read_back(tmp_path: Path) -> None:
    run = quick_run("counters", tmp_path)
    assert {case.title for case in CASES.values()} <= run.measured
    lost = next(figure for figure in run.result["figures"] if "not answered" in figure["case"])
    assert (0, f"{NATIVE_NAME}, sent again") == (lost["value"]["median"], lost["baseline"]["contender"])
    assert lost["baseline"]["median"] > 0, "what counter columns count wrong after time-outs stands beside it"
    assert ("a key of 20 live mutators", "p99 of a request") in run.promised
    assert any(case.startswith("collecting ") for case in run.measured)
    assert "a fresh reader read every acknowledged increment, and no other" in run.checked
