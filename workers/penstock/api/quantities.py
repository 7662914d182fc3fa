"""Sizes in bytes as Kubernetes writes them: `512`, `256Ki`, `1Mi`, `64M`.

Like a Duration, a Size keeps how it was written and compares by value. Only whole numbers and the suffixes people use
for memory: a size is never milli-bytes, and never so great that a signed 64-bit number could not hold it.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

PATTERN: Final = r"^[0-9]{1,9}(k|M|G|Ki|Mi|Gi)?$"
LENGTH_MAX: Final = 11
SAYS: Final = "must be a size such as 256Ki, 1Mi or 64M"

_SUFFIXES: Final = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
_SHAPE: Final = re.compile(PATTERN)


def parse_size_bytes(text: object) -> int | None:
    """The bytes of a written size, or None where it is not one."""
    if not isinstance(text, str) or "\n" in text or _SHAPE.match(text) is None:
        return None
    digits = text.rstrip("kKMGi")
    return int(digits) * _SUFFIXES[text[len(digits) :]]


@total_ordering
class Size:
    """A number of bytes; `text` is how it was written, `bytes` what it means."""

    __slots__ = ("bytes", "text")

    text: str
    bytes: int

    def __init__(self, text: str) -> None:
        value = parse_size_bytes(text)
        if value is None:
            raise ValueError(f"{text!r} {SAYS}")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "bytes", value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a size is a value: {name} can not be set")

    def __eq__(self, other: object) -> bool:
        return self.bytes == other.bytes if isinstance(other, Size) else NotImplemented

    def __lt__(self, other: Size) -> bool:
        return self.bytes < other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Size({self.text!r})"

    def __reduce__(self) -> tuple[type[Size], tuple[str]]:
        return (Size, (self.text,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1, "maxLength": LENGTH_MAX, "pattern": PATTERN}

    @classmethod
    def _validate(cls, value: object) -> Size:
        if isinstance(value, Size):
            return value
        if parse_size_bytes(value) is None:
            raise PydanticCustomError("size", SAYS)
        return cls(str(value))
