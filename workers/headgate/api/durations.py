"""Lengths of time as people write them: `90s`, `14d`, `1h30m`, `500ms`.

A Duration keeps how it was written, so that a person reads back the same text, and compares by value, so that
`1d` equals `24h`. Inside it is whole milliseconds: no floats, and no unit that has two meanings (months, years).
The same text is read by the API server's CEL rules (see expressions.py); PATTERN bounds the digits of each unit so
that no sum of them leaves the range of Go's durations (292 years), which is what CEL counts in.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from headgate.api.written import UnitValue

PATTERN: Final = r"^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,12}ms)?$"
LENGTH_MIN: Final = 2
LENGTH_MAX: Final = 24
RULE_TEXT: Final = "must be a duration such as 500ms, 90s, 1h30m or 14d"

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SHAPE: Final = re.compile(PATTERN)


def parse_duration_ms(text: object) -> int | None:
    """The milliseconds of a written duration, or None where it is not one."""
    if not isinstance(text, str) or not LENGTH_MIN <= len(text) <= LENGTH_MAX or "\n" in text:
        return None
    match = _SHAPE.match(text)
    if match is None:
        return None
    parts = (part for part in match.groups() if part)
    return sum(_UNITS_MS[part.lstrip("0123456789")] * int(part.rstrip("dhms")) for part in parts)


def format_duration_ms(value_ms: int) -> str:
    """A length of time in the units a person would use, the greatest first: 90,000 ms is `1m30s`."""
    if value_ms == 0:
        return "0s"
    written, rest_ms = "", value_ms
    for unit, unit_ms in _UNITS_MS.items():
        count, rest_ms = divmod(rest_ms, unit_ms)
        written += f"{count}{unit}" if count else ""
    return written


class Duration(UnitValue):
    """A length of time in whole milliseconds."""

    __slots__ = ()

    message = RULE_TEXT
    json_schema: ClassVar[dict[str, Any]] = {"minLength": LENGTH_MIN, "maxLength": LENGTH_MAX, "pattern": PATTERN}

    @classmethod
    def parse(cls, text: object) -> int | None:
        return parse_duration_ms(text)

    @property
    def ms(self) -> int:
        return self.number

    @property
    def seconds(self) -> float:
        return self.number / 1000
