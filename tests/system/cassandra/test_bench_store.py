"""bench-store runs on real servers, all of it, in a bounded time; how fast anything is, is not judged here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.store import BATCH_100, CASES, PARTS
from tests.system.timeline.quick_bench import quick_run

SECONDS_MAX = 240
"""Twice what a quick run is to take: other tests share the machine."""


@pytest.mark.slow
def test_a_quick_run_measures_every_case_beside_the_bare_driver_with_receipts_checked(tmp_path: Path) -> None:
    started = time.monotonic()
    run = quick_run("store", tmp_path, seconds_max=SECONDS_MAX)
    assert time.monotonic() - started < SECONDS_MAX
    assert {case.name for case in CASES} <= run.measured
    for part in PARTS[1:]:
        assert {f"{case.name}, {part.label(kind)}" for case in part.cases for kind in part.kinds} <= run.measured
    assert {(BATCH_100.name, "client CPU per row")} == run.promised
    assert ("INVALID" in run.printed) == run.is_invalid
    assert not [mark for mark in run.result["marks"] if "requests failed" in mark["text"]]
