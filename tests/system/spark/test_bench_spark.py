"""bench-spark runs on a real server and with the real connector; how fast anything is, is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.timeline.quick_bench import quick_run

SECONDS_MAX = 1_300
"""Each part has a Spark of its own, and each Spark takes half a minute to begin on a busy machine."""


@pytest.mark.slow
def test_a_quick_run_reads_every_message_and_works_every_message_by_jobs(tmp_path: Path) -> None:
    run = quick_run("spark", tmp_path, seconds_max=SECONDS_MAX)
    assert {
        ("read a million, packed", "rows per second"),
        ("read a million, one row each", "rows per client CPU second"),
        ("drain a backlog through a handler", "rows per second"),
        ("redrive dead letters", "rows per second"),
        ("a consumer during a drain", "rows per second"),
        ("a consumer during a drain", "p99 of a request"),
        ("plan a live read with 10 parts of history", "p50 of a request"),
        ("plan a batch of a drain with 10 parts of history", "p50 of a request"),
    } == run.promised
    assert "every read returned every message" in run.checked
    assert "every job settled every message of its queue" in run.checked
    assert "the executors were the same from the first message to the last" in run.checked
    assert "every plan covered the backlog, and nothing that was settled" in run.checked
    assert "each message went either to the job or to the consumer, once" in run.checked
