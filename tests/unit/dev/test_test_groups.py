"""Every test that needs a server is run by `make test` once: whatever it is marked with, one group has it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from dev.tests import CLUSTERS, RECORD, RECORD_MARKS, ROOT, SERVER_GROUPS, Part, Report, with_record

MARKS = ("applications", "kubernetes", "operators", "pods", "rings", "spark")


def takes(which: str, marks: frozenset[str]) -> bool:
    """As pytest reads an expression of only `and` and `not`."""
    terms = which.split(" and ")
    return all((term.removeprefix("not ") in marks) is not term.startswith("not ") for term in terms)


def test_whatever_a_test_is_marked_with_one_group_has_it() -> None:
    for count in range(len(MARKS) + 1):
        for marks in combinations(MARKS, count):
            marked = frozenset({"servers", *marks})
            assert 1 == len([name for name, which in SERVER_GROUPS.items() if takes(which, marked)]), marks


def test_groups_that_may_meet_have_clusters_of_their_own() -> None:
    assert set(CLUSTERS) <= set(SERVER_GROUPS)
    kinds = {"kubernetes", "operators", "pods"}
    on_clusters = [name for name, which in SERVER_GROUPS.items() if kinds & set(which.split(" and "))]
    assert len(on_clusters) == len({CLUSTERS.get(name) for name in on_clusters})


def test_the_page_has_the_last_long_run_alone() -> None:
    page = "before\n" + RECORD_MARKS[0] + "an old run\n" + RECORD_MARKS[1] + "after\n"
    parts = [
        Part("tests without servers", 0, 61, "7 passed, 3 skipped, 90 deselected in 61.00s"),
        Part("tests on pods", 1, 600, "1 failed, 22 passed in 600.00s"),
        Part("tests on Kubernetes", 0, 5),
    ]
    expected = """before
<!-- last long run -->
2026-11-20, commit abc1234:

| group | result | tests | time |
|---|---|---|---|
| tests without servers | passed | 7 passed, 3 skipped | 61 s |
| pods | FAILED | 1 failed, 22 passed | 10 min |
| Kubernetes | passed | none | 5 s |
<!-- end of last long run -->
after
"""
    assert expected == with_record(page, Report(parts), "abc1234", datetime(2026, 11, 20, tzinfo=UTC))


def test_the_page_of_the_record_has_its_marks_and_every_group() -> None:
    page = RECORD.read_text(encoding="utf-8")
    assert [1, 1] == [page.count(mark) for mark in RECORD_MARKS]
    assert [] == [name for name in SERVER_GROUPS if f"| {name} |" not in page]


def test_a_test_that_hangs_fails_by_name_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / "test_hang.py").write_text(
        "import threading\ndef test_it_waits(): threading.Event().wait()\ndef test_next(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=1", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert 1 == done.returncode
    assert "threading.Event().wait()" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "test_hang.py::test_it_waits - Failed: Timeout" in done.stdout


def test_every_test_has_a_limit_and_shows_its_stacks_before() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert 0 < options["faulthandler_timeout"] < options["timeout"]
