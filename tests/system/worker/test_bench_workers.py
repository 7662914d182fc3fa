"""bench-workers runs on a real server with real workers, in a bounded time; how fast anything is, is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workers import MANY
from tests.system.timeline.quick_bench import quick_run


@pytest.mark.slow
def test_a_quick_run_measures_path_lanes_and_idling_with_every_message_handled(tmp_path: Path) -> None:
    run = quick_run("workers", tmp_path)
    assert {
        ("put + handle + settle", "rows per second"),
        *((each.name, "longest wait of the worst lane") for each in MANY),
        ("an idle worker with 12 lanes", "share of a core"),
        ("an idle worker with 12 lanes", "resident"),
    } == run.promised
    assert "every message was handled" in run.checked
