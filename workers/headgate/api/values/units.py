"""Values that a person writes as a text with units: durations (`90s`, `1h30m`) and sizes (`256Ki`, `64M`).

The text is kept, so that a person reads back what was written; values compare by their meaning, so `1d` equals `24h`.
Inside is a whole number of the smallest unit: no floats, and no unit that has two meanings (months, milli-bytes).
The API server's CEL rules read the same texts (expressions.py). A pattern bounds the digits of each unit, so that no
sum of them leaves the range of Go's durations (292 years), in which CEL counts, or of a signed 64-bit number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import total_ordering
from typing import ClassVar, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_PART: Final = re.compile(r"([0-9]+)([a-zA-Z]*)")


@total_ordering
class UnitValue:
    """A number with its unit; `text` is how it was written, `number` what it means in the smallest unit."""

    __slots__ = ("number", "text")

    message: ClassVar[str]
    """The requirement on a text, for the author of an invalid one."""
    pattern: ClassVar[str]
    length_min: ClassVar[int]
    length_max: ClassVar[int]
    units: ClassVar[Mapping[str, int]]
    """The meaning of each unit, in the smallest."""

    text: str
    number: int

    def __init__(self, text: str) -> None:
        number = self.parse(text)
        if number is None:
            raise ValueError(f"{text!r} {self.message}")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "number", number)

    @classmethod
    def parse(cls, text: object) -> int | None:
        """The number of a written value, or None where it is not one."""
        if not isinstance(text, str) or not cls.length_min <= len(text) <= cls.length_max:
            return None
        if re.fullmatch(cls.pattern, text) is None:
            return None
        return sum(int(count) * cls.units[unit] for count, unit in _PART.findall(text))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return self.number == other.number if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: Self) -> bool:
        return self.number < other.number if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.number)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return (type(self), (self.text,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": cls.length_min, "maxLength": cls.length_max, "pattern": cls.pattern}

    @classmethod
    def _validate(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str) or cls.parse(value) is None:
            raise PydanticCustomError("written", cls.message)
        return cls(value)


class Duration(UnitValue):
    """A length of time in whole milliseconds."""

    __slots__ = ()

    message = "must be a duration such as 500ms, 90s, 1h30m or 14d"
    pattern = r"^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,12}ms)?$"
    length_min, length_max = 2, 24
    units: ClassVar[Mapping[str, int]] = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

    @property
    def ms(self) -> int:
        return self.number

    @property
    def us(self) -> int:
        return self.number * 1000

    @property
    def seconds(self) -> float:
        return self.number / 1000


class Size(UnitValue):
    """A number of bytes, with the suffixes that Kubernetes has for memory."""

    __slots__ = ()

    message = "must be a size such as 256Ki, 1Mi or 64M"
    pattern = r"^[0-9]{1,9}(k|M|G|Ki|Mi|Gi)?$"
    length_min, length_max = 1, 11
    units: ClassVar[Mapping[str, int]] = {
        "": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3
    }  # fmt: skip

    @property
    def bytes(self) -> int:
        return self.number


def format_duration_ms(value_ms: int) -> str:
    """A length of time in the units a person would use, the greatest first: 90,000 ms is `1m30s`."""
    written, rest_ms = "", value_ms
    for unit, unit_ms in Duration.units.items():
        count, rest_ms = divmod(rest_ms, unit_ms)
        written += f"{count}{unit}" if count else ""
    return written or "0s"
