"""`sum`: whole numbers added up, negative ones too, without a bound and without rounding.

Body: the sum in two's complement, little endian, in as few bytes as hold it; no byte for 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.counters.types.contract import CounterType, Example, Json

UPDATE_BITS_MAX = 4_096
"""Of one update. A sum of such numbers stays well below what JSON readers and Python print."""


class Sum(CounterType[int, int]):
    name = "sum"
    is_dated = False

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> int:
        """`add` a whole number; without one, 1."""
        if verb != "add":
            self.require_verb(verb)
        if not arguments:
            return 1
        given = arguments[0]
        if type(given) is not int or len(arguments) > 1:
            raise self.wrong("one whole number", list(arguments))
        if given.bit_length() > UPDATE_BITS_MAX:
            raise self.wrong(f"a whole number of at most {UPDATE_BITS_MAX} bits", f"{given.bit_length()} bits")
        return given

    def zero(self) -> int:
        return 0

    def apply(self, state: int, update: int) -> int:
        return state + update

    def merge(self, one: int, other: int) -> int:
        return one + other

    def merge_all(self, states: Iterable[int]) -> int:
        return sum(states)

    def value(self, state: int, question: Mapping[str, Any]) -> int:
        self.require_question(question)
        return state

    def dump_body(self, state: int) -> bytes:
        return whole_bytes(state)

    def load_body(self, body: bytes, version: int) -> int:
        return whole_of(body)

    def examples(self) -> Sequence[Example]:
        return [Example("add", ()), Example("add", (-7,)), Example("add", (2**70,))]


def whole_bytes(number: int) -> bytes:
    """Two's complement, little endian, in as few bytes as hold it; none for 0."""
    if number == 0:
        return b""
    bits = number.bit_length() if number > 0 else (number + 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "little", signed=True)


def whole_of(body: bytes) -> int:
    number = int.from_bytes(body, "little", signed=True)
    if whole_bytes(number) != bytes(body):
        raise ValueError("more bytes than the number needs")
    return number
