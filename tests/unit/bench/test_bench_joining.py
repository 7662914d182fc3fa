"""Parts of a benchmark that were measured one by one make one result, if they ran on the same machine."""

from __future__ import annotations

from typing import Any

import pytest

from bench.joining import are_joinable, joined
from bench.report import Document, earlier


def document(*parts: str, only: bool = True, **report: Any) -> Document:
    """A result of these parts: a figure and a baseline each."""
    of_parts = [{"part": part, "case": f"of {part}", "run": report.get("run", 1)} for part in parts]
    return {
        "name": "timeline",
        "commit": "abc",
        "machine": {"cores": 2},
        "versions": {},
        "quick": False,
        "rounds": 5,
        "window_s": 1.0,
        "only": list(parts) if only else [],
        "figures": of_parts,
        "baselines": of_parts,
        "marks": [{"bad": False, "text": "busy"}],
        "checked": [f"checked {parts[0]}"],
        "cpu_s": {"wall": 1.5},
        "load": {"others_share": 0.1},
        "valid": True,
        **report,
    }


def test_parts_measured_one_by_one_make_one_result() -> None:
    whole = joined(document("put"), document("path", load={"others_share": 0.3}))
    assert ["put", "path"] == [figure["part"] for figure in whole["figures"]]
    assert ["put", "path"] == [baseline["part"] for baseline in whole["baselines"]]
    assert ["path", "put"] == whole["only"]
    assert [{"bad": False, "text": "busy"}] == whole["marks"]
    assert ["checked put", "checked path"] == whole["checked"]
    assert {"wall": 3.0} == whole["cpu_s"]
    assert {"others_share": 0.3} == whole["load"]


def test_a_part_that_is_measured_again_takes_the_place_of_what_was() -> None:
    whole = joined(document("put", "path", only=False), document("path", run=2))
    assert [("put", 1), ("path", 2)] == [(figure["part"], figure["run"]) for figure in whole["figures"]]
    assert [] == whole["only"]


def test_a_part_that_was_measured_at_another_commit_reports_that() -> None:
    first, second, third = (
        document(part, commit=commit, date=commit) for part, commit in (("put", "a"), ("path", "b"), ("depth", "c"))
    )
    whole = joined(joined(first, second), third)
    values = {figure["part"]: figure.get("earlier") for figure in whole["figures"]}
    assert {"put": {"commit": "a", "date": "a"}, "path": {"commit": "b", "date": "b"}, "depth": None} == values
    assert "c" == whole["commit"]
    assert {"put": values["put"], "path": values["path"]} == earlier(whole)


@pytest.mark.parametrize("key", ["machine", "versions", "quick", "rounds", "window_s", "name"])
def test_what_was_measured_elsewhere_or_otherwise_is_not_joined(key: str) -> None:
    assert are_joinable(document("put"), document("path"))
    assert not are_joinable(document("put"), document("path", **{key: "other"}))


def test_what_was_measured_of_uncommitted_code_is_not_joined() -> None:
    assert not are_joinable(document("put"), document("path", commit="abc-dirty"))
    assert not are_joinable(document("put", commit="abc-dirty"), document("path"))
