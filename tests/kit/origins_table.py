"""Reads docs/internals/origins.md as rows and reports their faults.

Knows the form of the page and the places of tests; whether a row is true is for its reader. A fault is one line
that names the row. It takes the text, so that a test can hand it a wrong one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

COLUMNS = ("id", "statement", "what becomes of it", "where it lives", "issue", "test", "state")
ISSUES = frozenset(
    {
        "Ground",
        "Store",
        "Timeline",
        "Workers",
        "Counters",
        "Operator",
        "Cluster",
        "Spark",
        "Bucket",
        "Extent",
        "Gateway",
        "SQS",
    }
)
STATES = frozenset(("open", "shown"))
VERDICTS = ("as it is", "replaced by", "not taken")
NO_TEST = "—"

_ID = re.compile(r"(?P<series>[A-D](?:-[ft])?)(?P<number>[1-9]\d*)")
_CODE = re.compile(r"`([^`]+)`")
_SPLIT = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Row:
    """One statement of an origin and what becomes of it."""

    line: int
    id: str
    statement: str
    becomes: str
    lives: tuple[str, ...]
    issues: tuple[str, ...]
    tests: tuple[str, ...]
    state: str

    @property
    def series(self) -> str:
        """A, B, C or D, or with -f a failure and with -t a thing to try of that origin."""
        return self.id.rstrip("0123456789")


def read_rows(text: str) -> tuple[list[Row], list[str]]:
    """The rows of all tables of the page, and a line for each table line that is not one."""
    rows, faults = [], []
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            in_table = False
            continue
        cells = tuple(cell.strip() for cell in _SPLIT.split(line)[1:-1])
        if not in_table:
            in_table = True
            if cells != COLUMNS:
                faults.append(f"line {number}: a table with other columns: {', '.join(cells)}")
        elif set("".join(cells)) <= {"-", ":"}:
            continue
        elif len(cells) != len(COLUMNS):
            faults.append(f"line {number}: {len(cells)} cells where {len(COLUMNS)} are due")
        else:
            rows.append(_row(number, cells))
    return rows, faults


def _row(line: int, cells: Sequence[str]) -> Row:
    identity, statement, becomes, lives, issues, tests, state = cells
    return Row(
        line,
        identity,
        statement,
        becomes,
        tuple(_CODE.findall(lives)),
        tuple(name.strip() for name in issues.split(",") if name.strip()),
        () if tests == NO_TEST else tuple(_CODE.findall(tests) or [tests]),
        state,
    )


def faults_of(text: str, root: Path) -> list[str]:
    """Everything that is wrong with the page, held against the tests and files under `root`."""
    rows, faults = read_rows(text)
    for row in rows:
        faults += [f"line {row.line}: {row.id}: {fault}" for fault in _faults_of_row(row, root)]
    return faults + list(_faults_of_ids(rows))


def _faults_of_row(row: Row, root: Path) -> Iterator[str]:
    if not row.statement:
        yield "no statement"
    if not row.becomes.startswith(VERDICTS):
        yield f"what becomes of it begins with none of {', '.join(VERDICTS)}"
    if row.becomes.startswith(VERDICTS[1:]) and " because " not in row.becomes:
        yield "gives no reason (because)"
    if not row.lives:
        yield "lives nowhere"
    if row.state not in STATES:
        yield f"unknown state {row.state!r}"
    if not row.issues:
        yield "no issue"
    yield from (f"unknown issue {name!r}" for name in row.issues if name not in ISSUES)
    yield from (f"no such test: {name}" for name in row.tests if not test_exists(name, root))
    if row.state == "shown":
        if not row.tests:
            yield "shown, but by no test"
        yield from (f"lives where nothing is: {path}" for path in row.lives if not (root / path).exists())


def _faults_of_ids(rows: Sequence[Row]) -> Iterator[str]:
    """Ids of a series stand together and count up by one, so none is there twice and none is missing."""
    observations: set[str] = set()
    for series, group in groupby(rows, key=lambda row: row.series):
        if series in observations:
            yield f"the rows {series} do not stand together"
        observations.add(series)
        for due, row in enumerate(group, 1):
            if not _ID.fullmatch(row.id):
                yield f"line {row.line}: {row.id!r} is no id"
            elif row.id != f"{series}{due}":
                yield f"line {row.line}: {row.id} where {series}{due} is due"


def test_exists(name: str, root: Path) -> bool:
    """`tests/unit/test_x.py::test_claim`, or `::TestClass::test_claim`: the file defines it."""
    path, *inner = name.split("::")
    file = root / path
    if not path.startswith("tests/") or not inner or not file.is_file() or not inner[-1].startswith("test_"):
        return False
    scope: Sequence[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for part in inner:
        matches = [
            node
            for node in scope
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
        if not matches:
            return False
        scope = matches[0].body
    return True
