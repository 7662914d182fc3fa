"""The rule of docs/chart.md: what a version has stored, the next two read.

Files of tests/golden/stored stand for what users have; each is written once.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from tests.golden.stored.keeping import KEPT, READ_BACK, READERS, ROOT, narrowed, this_version, unread

FILES = {path.stem: yaml.safe_load(path.read_text()) for path in KEPT[-READ_BACK:]}


@pytest.mark.parametrize("version", FILES)
def test_what_a_version_has_stored_is_read(version: str) -> None:
    assert [] == list(unread(FILES[version]))


def test_what_this_version_stores_is_kept() -> None:
    assert this_version() in FILES, "run `python -m tests.golden.stored --write` when a version is released"


@pytest.mark.parametrize("version", FILES)
def test_every_format_of_the_page_is_among_what_is_kept(version: str) -> None:
    page = (ROOT / "docs" / "internals" / "formats.md").read_text()
    headings = {re.sub(r" \(.*", "", report) for report in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    kept = {name.partition(":")[0] for name in FILES[version]["bytes"]}
    assert headings == kept == {name.partition(":")[0] for name in READERS}


def changed(**parts: Any) -> dict[str, Any]:
    """The data that this version keeps, with a change that it would not read."""
    kept = copy.deepcopy(FILES[this_version()])
    for part, change in parts.items():
        change(kept[part])
    return kept


def test_bytes_of_another_meaning_are_found() -> None:
    kept = changed(bytes=lambda report: report["The packed row"].update(reads="something else"))
    (fault,) = unread(kept)
    assert fault.startswith("The packed row: something else is read as ")


def test_a_format_without_a_reader_is_found() -> None:
    kept = changed(bytes=lambda report: report.update({"A format": {"stored": "00", "reads": "x"}}))
    assert ["A format: x is read as nothing: its reader is gone"] == list(unread(kept))


def test_a_document_that_loses_something_is_found() -> None:
    kept = changed(documents=lambda report: report["plain queue"]["spec"].update(priority=3))
    assert ["document plain queue: .spec.priority was 3, is None"] == list(unread(kept))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"left": "text regular"}, "table catalogue: column left is gone"),
        ({"name": "blob regular"}, "table catalogue: column name was blob regular, is "),
    ],
)
def test_a_table_that_could_not_be_fixed_is_found(change: dict[str, str], fault: str) -> None:
    (result,) = unread(changed(tables=lambda report: report["catalogue"].update(change)))
    assert result.startswith(fault)


def test_a_table_that_nobody_knows_is_found() -> None:
    kept = changed(tables=lambda report: report.update(old={"key": "text partition_key 0"}))
    assert ["table old: nobody knows it any more"] == list(unread(kept))


OLD = {
    "type": "object",
    "properties": {
        "shards": {"type": "integer", "minimum": 1, "maximum": 9},
        "engine": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 9}},
    },
}


@pytest.mark.parametrize(
    ("path", "change", "fault"),
    [
        (
            ("properties", "shards"),
            {"type": "string", "minimum": 1, "maximum": 9},
            "spec.shards was integer, is string",
        ),
        (("properties", "shards"), {"type": "integer", "minimum": 2, "maximum": 9}, "minimum was 1, is 2"),
        (("properties", "shards"), {"type": "integer", "minimum": 1, "maximum": 8}, "maximum was 9, is 8"),
        (("properties", "engine"), {"type": "string", "enum": ["a"]}, "spec.engine: b is gone"),
        (("properties", "list", "items", "properties"), {}, "spec.list[].x is gone"),
        (("properties", "map", "additionalProperties"), {"type": "string", "maxLength": 8}, "maxLength was 9, is 8"),
        (("required",), ["shards"], "spec.shards is required now"),
    ],
)
def test_a_schema_that_takes_less_is_found(path: tuple[str, ...], change: Any, fault: str) -> None:
    new = copy.deepcopy(OLD)
    place: Any = new
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = change
    assert [fault] == [report[-len(fault) :] for report in narrowed(OLD, new, "spec")]


def test_a_schema_that_takes_more_is_no_fault() -> None:
    new: dict[str, Any] = copy.deepcopy(OLD)
    new["properties"]["shards"]["maximum"] = 99
    new["properties"]["engine"]["enum"].append("c")
    new["properties"]["new"] = {"type": "string"}
    assert [] == list(narrowed(OLD, new, "spec"))
