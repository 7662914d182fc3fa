"""Joins the measurements of some parts of a benchmark with earlier ones of the others. Pure: documents in, a document
out. Both are of the same machine and of committed code, or they must not be joined. Figures measured at an earlier
commit name it: a part takes minutes of a dedicated machine, and most changes do not affect it.
"""

from __future__ import annotations

from bench.report import Document

SAME = ("name", "machine", "versions", "quick", "rounds", "window_s")


def are_joinable(before: Document, later: Document) -> bool:
    """Whether both are of committed code on the same machine, measured alike."""
    is_dirty = any("-dirty" in str(each["commit"]) for each in (before, later))
    return all(before.get(key) == later.get(key) for key in SAME) and not is_dirty


def joined(before: Document, later: Document) -> Document:
    """The later one, and the parts of the one before that it does not have."""
    kept = {
        key: [_described(each, before, later) for each in before[key] if _part(each) not in later["only"]]
        for key in ("figures", "baselines")
    }
    parts_before = {_part(figure) for figure in kept["figures"]}
    whole = {
        **later,
        "only": sorted({*later["only"], *parts_before}) if before["only"] else [],
        "figures": [*kept["figures"], *later["figures"]],
        "baselines": [*kept["baselines"], *later["baselines"]],
        "marks": [*before["marks"], *(mark for mark in later["marks"] if mark not in before["marks"])],
        "checked": list(dict.fromkeys([*before.get("checked", []), *later["checked"]])),
        "cpu_s": {key: round(before["cpu_s"][key] + later["cpu_s"][key], 2) for key in later["cpu_s"]},
    }
    worst = max(before, later, key=lambda document: float(document["load"]["others_share"]))
    return {**whole, "load": worst["load"], "valid": before["valid"] and later["valid"]}


def _described(each: Document, before: Document, later: Document) -> Document:
    """A figure of the earlier one, with its commit if the document no longer states it."""
    if "earlier" in each or before["commit"] == later["commit"]:
        return each
    return {**each, "earlier": {"commit": before["commit"], "date": before["date"]}}


def _part(each: Document) -> str:
    return str(each.get("part", ""))
