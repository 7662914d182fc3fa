"""Every statement of the origins keeps its row, and no row claims a test that is not there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.kit.origins_table import COLUMNS, ISSUES, faults_of, read_rows

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "internals" / "origins.md").read_text(encoding="utf-8")

# As many rows as there were when the page was begun: a statement may get further rows, but never lose its own.
AT_LEAST = dict.fromkeys(("A-f", "A-t", "D-f", "D-t"), 6)
AT_LEAST |= {"A": 60, "B": 110, "B-f": 5, "B-t": 13, "C": 85, "C-f": 3, "C-t": 10, "D": 61}

HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
GOOD = "| A1 | it queues | as it is | `workers/headgate/` | Ground | — | open |\n"
SHOWN = (
    "| A1 | it queues | as it is | `workers/headgate/` | Ground | `tests/unit/docs/test_origins.py::{}` | shown |\n"
)


def test_every_row_of_the_page_is_right() -> None:
    assert faults_of(PAGE, ROOT) == []


def test_no_origin_has_lost_a_row() -> None:
    rows, _ = read_rows(PAGE)
    count = Counter(row.series for row in rows)
    assert {series: count[series] for series in AT_LEAST if count[series] < AT_LEAST[series]} == {}
    assert set(count) == set(AT_LEAST)


def test_every_issue_brings_something() -> None:
    rows, _ = read_rows(PAGE)
    assert {issue for row in rows for issue in row.issues} == ISSUES


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        GOOD + GOOD.replace("A1", "A2") + GOOD.replace("A1", "A-f1") + GOOD.replace("A1", "D-t1"),
        GOOD.replace("as it is", "replaced by a lane, because a lock on one row is one Paxos key"),
        GOOD.replace("Ground", "Timeline, Operator"),
        SHOWN.format("test_every_row_of_the_page_is_right"),
    ],
)
def test_a_right_table_has_no_faults(body: str) -> None:
    assert faults_of(HEAD + body, ROOT) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (GOOD + GOOD, "A1 where A2 is due"),
        (GOOD + GOOD.replace("A1", "A3"), "A3 where A2 is due"),
        (GOOD.replace("A1", "A2"), "A2 where A1 is due"),
        (GOOD + GOOD.replace("A1", "B1") + GOOD.replace("A1", "A2"), "the rows A do not stand together"),
        (GOOD.replace("A1", "E1"), "'E1' is no id"),
        (GOOD.replace("A1", "A01"), "'A01' is no id"),
        (GOOD.replace(" it queues ", " "), "no statement"),
        (GOOD.replace("as it is", "kept"), "begins with none of"),
        (GOOD.replace("as it is", "replaced by a lane"), "gives no reason"),
        (GOOD.replace("as it is", "not taken"), "gives no reason"),
        (GOOD.replace("`workers/headgate/`", ""), "lives nowhere"),
        (GOOD.replace("open", "done"), "unknown state 'done'"),
        (GOOD.replace("Ground", ""), "no issue"),
        (GOOD.replace("Ground", "Ground, Later"), "unknown issue 'Later'"),
        (GOOD.replace("open", "shown"), "shown, but by no test"),
        (SHOWN.format("test_that_is_not_there"), "no such test"),
        (SHOWN.format("HEAD"), "no such test"),
        (
            SHOWN.format("test_every_row_of_the_page_is_right").replace("test_origins.py", "test_gone.py"),
            "no such test",
        ),
        (SHOWN.format("test_every_row_of_the_page_is_right").replace("headgate/", "gone/"), "lives where nothing is"),
        (GOOD.replace("| open |", "|"), "6 cells where 7 are due"),
        ("\n| id | state |\n|---|---|\n", "a table with other columns"),
    ],
)
def test_a_wrong_table_is_found(body: str, fault: str) -> None:
    assert [one for one in faults_of(HEAD + body, ROOT) if fault in one] != []
