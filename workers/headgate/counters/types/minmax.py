"""`minmax`: the minimum and the maximum of all numbers, each with its witness: the string that came with it.

Numbers are whole numbers and floats, compared exactly; a float that is whole and below 2^53 is that whole number. Of
equal numbers the one with the smaller witness stays (none is the smallest, then by their bytes in UTF-8; then a whole
number before a float): so the order in which they come does not matter.

Body: JSON: [] for none, else [[least, witness], [greatest, witness]], a witness being a text or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.counters.types.contract import CounterType, Example, Json, compact_json, is_number, is_text

WITNESS_BYTES_MAX = 1_024
WHOLE_BITS_MAX = 4_096
EXACT_FLOAT = 2**53


class WitnessedNumber(NamedTuple):
    number: int | float
    witness: str | None


@dataclass(frozen=True)
class MinMaxValue:
    """The value of a key; None without numbers."""

    least: int | float | None
    least_witness: str | None
    greatest: int | float | None
    greatest_witness: str | None


State = tuple[WitnessedNumber, WitnessedNumber] | None


class MinMax(CounterType[State, WitnessedNumber]):
    name = "minmax"
    is_dated = False

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> WitnessedNumber:
        self.require_verb(verb)
        if len(arguments) not in (1, 2):
            raise self.wrong("a number, and a string as its witness", list(arguments))
        number = arguments[0]
        witness = arguments[1] if len(arguments) > 1 else None
        if not isinstance(number, int | float) or not is_number(number):
            raise self.wrong("a number", number)
        if isinstance(number, int) and number.bit_length() > WHOLE_BITS_MAX:
            raise self.wrong(f"a number of at most {WHOLE_BITS_MAX} bits", f"{number.bit_length()} bits")
        if witness is not None:
            witness = self.text_within(WITNESS_BYTES_MAX, witness, "a string as the witness", "witness")
        return WitnessedNumber(_canonical(number), witness)

    def zero(self) -> State:
        return None

    def apply(self, state: State, update: WitnessedNumber) -> State:
        if state is None:
            return update, update
        least, greatest = state
        if least.number < update.number < greatest.number:
            return state
        return _least(least, update), _greatest(greatest, update)

    def merge(self, one: State, other: State) -> State:
        if one is None or other is None:
            return one or other
        return _least(one[0], other[0]), _greatest(one[1], other[1])

    def value(self, state: State, question: Mapping[str, Any]) -> MinMaxValue:
        self.require_question(question)
        if state is None:
            return MinMaxValue(None, None, None, None)
        (least, least_witness), (greatest, greatest_witness) = state
        return MinMaxValue(least, least_witness, greatest, greatest_witness)

    def dump_body(self, state: State) -> bytes:
        return compact_json([list(each) for each in state or ()])

    def load_body(self, body: bytes, version: int) -> State:
        fields = json.loads(body)
        if fields == []:
            return None
        least, greatest = (WitnessedNumber(number, witness) for number, witness in fields)
        for each in (least, greatest):
            if not is_number(each.number) or not (each.witness is None or is_text(each.witness)):
                raise ValueError("a witness without a number")
        if least.number > greatest.number:
            raise ValueError("the minimum is above the maximum")
        return least, greatest

    def read_words(self, words: Sequence[str]) -> list[Json]:
        """The witness stays as it is written."""
        return [*super().read_words(words[:1]), *words[1:]]

    def examples(self) -> Sequence[Example]:
        return [
            Example("add", (12.5, "order-17")),
            Example("add", (-3,)),
            Example("add", (12.5, "order-2")),
            Example("add", (-3, "order-9")),
        ]


def _canonical(number: int | float) -> int | float:
    if isinstance(number, float) and number.is_integer() and abs(number) < EXACT_FLOAT:
        return int(number)
    return number


def _witnessed(witnessed: WitnessedNumber) -> tuple[bytes, bool]:
    """The order among equal numbers; no two that differ are equal in it."""
    witness = b"" if witnessed.witness is None else b"\x01" + witnessed.witness.encode()
    return witness, isinstance(witnessed.number, float)


def _least(one: WitnessedNumber, other: WitnessedNumber) -> WitnessedNumber:
    if one.number == other.number:
        return min(one, other, key=_witnessed)
    return one if one.number < other.number else other


def _greatest(one: WitnessedNumber, other: WitnessedNumber) -> WitnessedNumber:
    return _least(one, other) if one.number == other.number else max(one, other, key=lambda each: each.number)
