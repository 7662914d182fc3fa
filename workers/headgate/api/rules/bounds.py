"""How large a resource may be, above all where it holds a piece of somebody else's (passed_on.py).

The operator decides about all resources of a cluster in one process. A resource without a bound could hold it up for
everybody, so a spec beyond these bounds is invalid. The API server refuses the lists that the CRD declares. It cannot
measure the rest, which is refused by everything that parses a resource: the operator, `headgate validate` and
`headgate plan`.

The check ends at the first fault, so it reads at most `SPEC_BYTES_MAX` of a spec, however large that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Final

from headgate.api.resources.passed_on import ITEMS_MAX, PASSED_ON, describe_length_limit
from headgate.api.rules.rules import Fault, format_path

SPEC_BYTES_MAX: Final = 32 * 1024
"""Of a whole spec, as JSON without spaces."""
PASSED_ON_BYTES_MAX: Final = 16 * 1024
"""The same of each template, driver and executor."""
DEPTH_MAX: Final = 32
"""Maps and lists inside of each other."""

_REMEDY: Final = "move files, scripts and long values into a ConfigMap or into the image"


def check_bounds(document: Mapping[str, Any]) -> list[Fault]:
    """The first bound that a resource's spec exceeds, if it exceeds one."""
    fault = _Measure().first_fault("spec", document.get("spec"), None)
    return [] if fault is None else [fault]


@dataclass
class _Part:
    """The spec, or a piece of somebody else's in it, and how much of it was read so far."""

    path: str
    bytes_max: int
    size: int = 0


class _Measure:
    """One pass over a spec."""

    def __init__(self) -> None:
        self._whole = _Part("spec", SPEC_BYTES_MAX)
        self._path: list[str | int] = []

    def first_fault(self, name: str | int, value: Any, piece: _Part | None) -> Fault | None:
        """The first in this field and what is inside of it."""
        self._path.append(name)
        if piece is None and name in PASSED_ON:
            piece = _Part(format_path(self._path), PASSED_ON_BYTES_MAX)
        size = _bytes_of_text(name) + 1 if isinstance(name, str) else 0
        fault: Fault | None
        if isinstance(value, str):
            fault = self._add(size + _bytes_of_text(value), piece)
        elif isinstance(value, dict):
            fault = self._add(size + _brackets(value), piece) or self._first_inside(value.items(), piece)
        elif isinstance(value, list):
            fault = self._first_in_list(name, value, size, piece)
        else:
            fault = self._add(size + (5 if isinstance(value, bool) else len(str(value))), piece)
        self._path.pop()
        return fault

    def _first_in_list(self, name: str | int, items: list[Any], size: int, piece: _Part | None) -> Fault | None:
        if piece is not None and len(items) > ITEMS_MAX:
            return Fault(format_path(self._path), describe_length_limit(str(name)))
        return self._add(size + _brackets(items), piece) or self._first_inside(enumerate(items), piece)

    def _first_inside(self, fields: Iterable[tuple[Any, Any]], piece: _Part | None) -> Fault | None:
        if len(self._path) > DEPTH_MAX:
            return Fault(format_path(self._path[:8]), f"must nest at most {DEPTH_MAX} maps and lists in each other")
        for name, inner in fields:
            fault = self.first_fault(name, inner, piece)
            if fault is not None:
                return fault
        return None

    def _add(self, size: int, piece: _Part | None) -> Fault | None:
        for part in (piece, self._whole):
            if part is not None:
                part.size += size
                if part.size > part.bytes_max:
                    limit = f"must be at most {part.bytes_max // 1024} KiB of JSON"
                    return Fault(part.path, f"{limit}; {_REMEDY}")
        return None


def _bytes_of_text(text: str) -> int:
    return len(encode_basestring(text).encode("utf-8", "surrogatepass"))


def _brackets(value: Sized) -> int:
    """The size of a map or a list without its items: its brackets and commas."""
    return 1 + max(1, len(value))
