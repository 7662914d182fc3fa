"""How large a resource may be, above all where it holds a piece of somebody else's (passed_on.py).

The operator decides about all resources of a cluster in one process. A resource without a bound could hold it up for
everybody, so a spec beyond these bounds is invalid. The API server refuses the lists that the CRD declares. It cannot
measure the rest, which is refused by everything that parses a resource: the operator, `headgate validate` and
`headgate plan`.

The check ends at the first fault, so it reads at most `SPEC_BYTES_MAX` of a spec, however large that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
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
    return list(islice(_Measure().faults("spec", document.get("spec"), None), 1))


@dataclass
class _Part:
    """The spec, or a piece of somebody else's in it, and how much of it was read so far."""

    path: str
    bytes_max: int
    size: int = 0


class _Measure:
    """One pass over a spec, as far as its faults are read."""

    def __init__(self) -> None:
        self._whole = _Part("spec", SPEC_BYTES_MAX)
        self._path: list[str | int] = []

    def faults(self, name: str | int, value: Any, piece: _Part | None) -> Iterator[Fault]:
        """Those of this field and what is inside of it."""
        self._path.append(name)
        if piece is None and name in PASSED_ON:
            piece = _Part(format_path(self._path), PASSED_ON_BYTES_MAX)
        size = _bytes_of_text(name) + 1 if isinstance(name, str) else 0
        inside: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, str):
            size += _bytes_of_text(value)
        elif isinstance(value, dict | list):
            if isinstance(value, list) and piece is not None and len(value) > ITEMS_MAX:
                yield Fault(format_path(self._path), describe_length_limit(str(name)))
            size += 1 + max(1, len(value))  # brackets and commas
            inside = value.items() if isinstance(value, dict) else enumerate(value)
        else:
            size += 5 if isinstance(value, bool) else len(str(value))
        yield from self._add(size, piece)
        if isinstance(value, dict | list) and len(self._path) > DEPTH_MAX:
            yield Fault(format_path(self._path[:8]), f"must nest at most {DEPTH_MAX} maps and lists in each other")
        for inner_name, inner in inside:
            yield from self.faults(inner_name, inner, piece)
        self._path.pop()

    def _add(self, size: int, piece: _Part | None) -> Iterator[Fault]:
        for part in (piece, self._whole):
            if part is not None:
                part.size += size
                if part.size > part.bytes_max:
                    limit = f"must be at most {part.bytes_max // 1024} KiB of JSON"
                    yield Fault(part.path, f"{limit}; {_REMEDY}")


def _bytes_of_text(text: str) -> int:
    return len(encode_basestring(text).encode("utf-8", "surrogatepass"))
