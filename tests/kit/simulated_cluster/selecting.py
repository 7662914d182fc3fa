"""Selectors: of labels, as `?labelSelector=` writes them (`a=b,c!=d,e in (f,g),h,!i`), and of one name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_PART = re.compile(r"\s*(!?[^\s=!,()]+)\s*(?:(==|=|!=)\s*([^\s,]*)|(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")

Requirement = tuple[str, str, frozenset[str]]


@lru_cache(maxsize=256)
def requirements(selector: str) -> tuple[Requirement, ...]:
    """(label, word, values): all of them have to hold."""
    parts, at = [], 0
    while at < len(selector):
        match = _PART.match(selector, at)
        if match is None or match.end() == at:
            raise ValueError(f"not a selector: {selector}")
        name, sign, value, word, values = match.groups()
        if sign:
            parts.append((name, "notin" if sign == "!=" else "in", frozenset({value})))
        elif word:
            parts.append((name, word, frozenset(part.strip() for part in values.split(","))))
        else:
            parts.append((name.removeprefix("!"), "absent" if name.startswith("!") else "there", frozenset()))
        at = match.end()
    return tuple(parts)


def selects(selector: str, document: Mapping[str, Any]) -> bool:
    """Whether an object has such labels."""
    labels = document["metadata"].get("labels") or {}
    return all(_holds(labels, *requirement) for requirement in requirements(selector))


@dataclass(frozen=True)
class Selector:
    """What a list or a watch selects."""

    labels: str = ""
    fields: str = ""

    def selects(self, document: Mapping[str, Any]) -> bool:
        """Whether an object has such labels, and such a name."""
        field, _, name = self.fields.partition("=")
        if field not in ("", "metadata.name"):
            raise ValueError(f"not a selector of fields: {self.fields}")
        return name in ("", document["metadata"]["name"]) and selects(self.labels, document)


def _holds(labels: Mapping[str, str], name: str, word: str, values: frozenset[str]) -> bool:
    match word:
        case "in":
            return labels.get(name) in values
        case "notin":
            return labels.get(name) not in values
        case "there":
            return name in labels
    return name not in labels
