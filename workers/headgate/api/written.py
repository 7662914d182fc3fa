"""Values that a person writes as a text with units, and that are compared by their meaning.

The text is kept, so that a reader gets the written text back. Values with equal numbers are equal and have one hash.
A subclass defines how a text is parsed, and its form; everything else is here.
"""

from __future__ import annotations

from functools import total_ordering
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@total_ordering
class UnitValue:
    """A number with its unit; `text` is how it was written, `number` what it means in the smallest unit."""

    __slots__ = ("number", "text")

    message: ClassVar[str]
    """The requirement on a text, for the author of an invalid one."""
    json_schema: ClassVar[dict[str, Any]]
    """The part of it that a schema can express."""

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
        raise NotImplementedError

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
        return {"type": "string", **cls.json_schema}

    @classmethod
    def _validate(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str) or cls.parse(value) is None:
            raise PydanticCustomError("written", cls.message)
        return cls(value)
