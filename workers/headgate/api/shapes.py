"""The form of a single value, written once: a check in Python, a CEL rule on the field, and a sentence.

A shape rides on a field as an annotation: `Annotated[str, DNS_LABEL]`, `Annotated[Duration, between("1s", "12h")]`.
The CRD gets a CEL rule with a sentence for the author of the value, where a bare pattern would show a regular
expression. `wrong` is a value that the shape refuses and its neighbours accept; the tests send each of them to the
real API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidatorFunctionWrapHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from headgate.api import cron, durations, quantities
from headgate.api.patterns import matches

KEY = "x-headgate-shape"
"""Where a shape rides in the JSON schema on its way to the CRD; no generated file carries it."""


@dataclass(frozen=True, kw_only=True)
class ValueShape:
    """One value's form. `cel` is over `self`; `pattern` is for editors; `refuses` answers what is wrong, or None."""

    message: str
    cel: str
    wrong: tuple[str, ...]
    pattern: str | None = None
    length_max: int | None = None

    def accepts(self, value: Any) -> bool:
        fits = self.length_max is None or len(value) <= self.length_max
        return fits and (self.pattern is None or matches(self.pattern, value))

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
        made = handler(schema)
        made[KEY] = self
        if self.pattern is not None:
            made["pattern"] = self.pattern
        if self.length_max is not None:
            made["maxLength"] = self.length_max
        return made


@dataclass(frozen=True, kw_only=True)
class DurationRange(ValueShape):
    """A duration from `least` to `most`, both allowed."""

    least: durations.Duration
    most: durations.Duration

    def accepts(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)


@dataclass(frozen=True, kw_only=True)
class SizeRange(ValueShape):
    """A size from `least` to `most`, both allowed."""

    least: quantities.Size
    most: quantities.Size

    def accepts(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)


@dataclass(frozen=True, kw_only=True)
class CronShape(ValueShape):
    """A schedule that a CronJob accepts."""

    def accepts(self, value: Any) -> bool:
        return cron.accepts(value)


def text(pattern: str, message: str, *, length_max: int, wrong: tuple[str, ...]) -> ValueShape:
    """A string that matches a pattern (one that RE2 and Python read alike)."""
    return ValueShape(
        message=message, cel=f"self.matches({quoted(pattern)})", wrong=wrong, pattern=pattern, length_max=length_max
    )


def between(least: str, most: str) -> DurationRange:
    low, high = durations.Duration(least), durations.Duration(most)
    below = (f"{low.ms - 1}ms",) if low.ms else ()
    return DurationRange(
        least=low,
        most=high,
        message=f"{durations.RULE_TEXT}, from {least} to {most}",
        cel=(
            f"self.matches({quoted(durations.PATTERN)}) && "
            f"{duration_cel('self')} >= duration('{low.ms}ms') && {duration_cel('self')} <= duration('{high.ms}ms')"
        ),
        wrong=("2 weeks", "1.5h", "s1", "10", "1m1d", *below, durations.format_duration_ms(high.ms + 1)),
    )


def sized(least: str, most: str) -> SizeRange:
    low, high = quantities.Size(least), quantities.Size(most)
    return SizeRange(
        least=low,
        most=high,
        message=f"{quantities.RULE_TEXT}, from {least} to {most}",
        cel=(
            f"self.matches({quoted(quantities.PATTERN)}) && "
            f"quantity(self).compareTo(quantity('{least}')) >= 0 && quantity(self).compareTo(quantity('{most}')) <= 0"
        ),
        wrong=("1 MiB", "1MB", str(low.bytes - 1), str(high.bytes + 1)),
    )


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


CRON = CronShape(
    message=cron.RULE_TEXT, cel=cron.CEL, wrong=cron.WRONG, pattern=cron.PATTERN, length_max=cron.LENGTH_MAX
)
