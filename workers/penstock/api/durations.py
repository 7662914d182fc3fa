"""Lengths of time as people write them: `90s`, `14d`, `1h30m`, `500ms`.

A Duration keeps how it was written, so that what a person reads back is what he wrote, and compares by value, so that
`1d` equals `24h`. Inside it is whole milliseconds: no floats, and no unit that has two meanings (months, years).
The same text is read by the API server's CEL rules (see expressions.py); PATTERN bounds the digits of each unit so
that no sum of them leaves the range of Go's durations (292 years), which is what CEL counts in.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

PATTERN: Final = r"^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,12}ms)?$"
LENGTH_MIN: Final = 2
LENGTH_MAX: Final = 24
SAYS: Final = "must be a duration such as 500ms, 90s, 1h30m or 14d"

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SHAPE: Final = re.compile(PATTERN)


def parse_duration_ms(text: object) -> int | None:
    """The milliseconds of a written duration, or None where it is not one."""
    if not isinstance(text, str) or not LENGTH_MIN <= len(text) <= LENGTH_MAX or "\n" in text:
        return None
    found = _SHAPE.match(text)
    if found is None:
        return None
    parts = (part for part in found.groups() if part)
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


@total_ordering
class Duration:
    """A length of time; `text` is how it was written, `ms` what it means."""

    __slots__ = ("ms", "text")

    text: str
    ms: int

    def __init__(self, text: str) -> None:
        value_ms = parse_duration_ms(text)
        if value_ms is None:
            raise ValueError(f"{text!r} {SAYS}")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "ms", value_ms)

    @classmethod
    def from_ms(cls, value_ms: int) -> Duration:
        return cls(format_duration_ms(value_ms))

    @property
    def seconds(self) -> float:
        return self.ms / 1000

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a duration is a value: {name} can not be set")

    def __eq__(self, other: object) -> bool:
        return self.ms == other.ms if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: Duration) -> bool:
        return self.ms < other.ms

    def __hash__(self) -> int:
        return hash(self.ms)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Duration({self.text!r})"

    def __reduce__(self) -> tuple[type[Duration], tuple[str]]:
        return (Duration, (self.text,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": LENGTH_MIN, "maxLength": LENGTH_MAX, "pattern": PATTERN}

    @classmethod
    def _validate(cls, value: object) -> Duration:
        if isinstance(value, Duration):
            return value
        if parse_duration_ms(value) is None:
            raise PydanticCustomError("duration", SAYS)
        return cls(str(value))
