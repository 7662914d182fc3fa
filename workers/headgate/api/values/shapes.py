"""The form of a single value, written once: a check in Python, a CEL rule on the field, and a sentence.

A shape rides on a field as an annotation: `Annotated[Duration, between("1s", "12h")]`. The CRD gets a CEL rule with
a sentence for the author of the value, where a bare pattern would show a regular expression. The tests send values
that each shape refuses to the real API server.

Patterns mean the same to Python and to RE2, which the API server uses: no lookahead or lookbehind, no back
references, anchored with ^ and $.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidatorFunctionWrapHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from headgate.api.values.units import Duration, Size, UnitValue

KEY = "x-headgate-shape"
"""Where a shape rides in the JSON schema on its way to the CRD; no generated file carries it."""


@dataclass(frozen=True, kw_only=True)
class ValueShape:
    """One value's form. `cel` is over `self`."""

    message: str
    cel: str

    def accepts(self, value: Any) -> bool:
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
            try:
                parsed = inner(value)
            except ValidationError:
                raise PydanticCustomError("shape", self.message) from None
            if not self.accepts(parsed):
                raise PydanticCustomError("shape", self.message)
            return parsed

        return core_schema.no_info_wrap_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), KEY: self}


@dataclass(frozen=True, kw_only=True)
class TextShape(ValueShape):
    """A text that matches a pattern, and in which another one is not found."""

    pattern: str
    never: str | None = None
    length_max: int

    def accepts(self, value: str) -> bool:
        """A newline at the end is refused, as RE2 refuses it."""
        if len(value) > self.length_max or re.fullmatch(self.pattern, value, re.ASCII) is None:
            return False
        return self.never is None or re.search(self.never, value, re.ASCII) is None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = super().__get_pydantic_json_schema__(schema, handler)
        return {**made, "pattern": self.pattern, "maxLength": self.length_max}


@dataclass(frozen=True, kw_only=True)
class Range(ValueShape):
    """A duration or a size from `least` to `most`, both allowed."""

    least: UnitValue
    most: UnitValue

    def accepts(self, value: UnitValue) -> bool:
        return self.least.number <= value.number <= self.most.number


def text(pattern: str, message: str, *, length_max: int, never: str | None = None) -> TextShape:
    cel = f"self.matches({quoted(pattern)})" + (f" && !self.matches({quoted(never)})" if never else "")
    return TextShape(message=message, cel=cel, pattern=pattern, never=never, length_max=length_max)


def between(least: str, most: str) -> Range:
    low, high, value = Duration(least), Duration(most), duration_cel("self")
    return _range(low, high, f"{value} >= duration('{low.ms}ms') && {value} <= duration('{high.ms}ms')")


def sized(least: str, most: str) -> Range:
    low, high = f"quantity(self).compareTo(quantity('{least}'))", f"quantity(self).compareTo(quantity('{most}'))"
    return _range(Size(least), Size(most), f"{low} >= 0 && {high} <= 0")


def _range(least: UnitValue, most: UnitValue, within: str) -> Range:
    cel = f"self.matches({quoted(least.pattern)}) && {within}"
    return Range(message=f"{least.message}, from {least} to {most}", cel=cel, least=least, most=most)


def duration_cel(name: str) -> str:
    """CEL that reads the duration in a variable. Its own `duration()` knows no days, so the days become the distance
    of two timestamps; no text is put together on the way, since the cost estimate takes such a text for unbounded.
    """
    days = f"int({name}.substring(0, {name}.indexOf('d'))) * 86400"
    rest = f"{name}.endsWith('d') ? duration('0s') : duration({name}.substring({name}.indexOf('d') + 1))"
    return f"({name}.contains('d') ? timestamp({days}) - timestamp(0) + ({rest}) : duration({name}))"


def quoted(pattern: str) -> str:
    """A CEL string literal of a text, raw so that a pattern's backslashes stay."""
    return f"r'{pattern}'" if "\\" in pattern else f"'{pattern}'"
