"""`moments`: count, mean and variance of numbers, exactly.

A float is a whole number divided by a power of two, and so are sums of floats and of their squares: they are kept as
such, without any rounding. So merging is exact, the laws hold to the byte, and no order of updates and no number of
shards can make the variance drift or fall below 0, as running means do. Mean and variance are rounded once, when they
are read. A state of usual numbers takes some 50 bytes; of the most different ones there are, below 1 KiB.

Body: count (8 bytes), scale (2), length of the sum (2), the sum, the sum of squares, all little endian, the sums in
two's complement as in `sum`: the sum of the numbers is sum / 2^scale, that of their squares is squares / 2^(2 scale).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.counters.types.contract import CounterType, Example, Json
from headgate.counters.types.sum import whole_bytes, whole_of

SCALE_MAX = 1_074
"""The smallest float there is, is 2^-1074."""
_HEAD = struct.Struct("<QHH")


@dataclass(frozen=True)
class MomentsValue:
    """The value of a key. Figures that need more numbers are None."""

    count: int
    total: float | None
    mean: float | None
    variance: float | None
    """Of these numbers; divided by their count."""
    deviation: float | None
    """Its square root."""
    sample_variance: float | None
    """Of the population that they are a sample of; divided by their count - 1."""


class Number(NamedTuple):
    """whole / 2^scale."""

    whole: int
    scale: int


class MomentsState(NamedTuple):
    """How many, their sum * 2^scale, the sum of their squares * 4^scale. `scale` is the highest that any needs."""

    taken: int
    total: int
    squares: int
    scale: int


class Moments(CounterType[MomentsState, Number]):
    name = "moments"
    is_dated = False

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> Number:
        """`add` a number; whole ones up to the size of the greatest float."""
        self.require_verb(verb)
        given = self.one_number(arguments)
        if isinstance(given, int):
            if given.bit_length() >= 1_024:
                raise self.wrong("a number that a float can hold", f"{given.bit_length()} bits")
            return Number(given, 0)
        whole, parts = given.as_integer_ratio()
        return Number(whole, parts.bit_length() - 1)

    def zero(self) -> MomentsState:
        return MomentsState(0, 0, 0, 0)

    def apply(self, state: MomentsState, update: Number) -> MomentsState:
        whole, scale = update
        return self.merge(state, MomentsState(1, whole, whole * whole, scale))

    def merge(self, one: MomentsState, other: MomentsState) -> MomentsState:
        scale = max(one.scale, other.scale)
        return MomentsState(
            one.taken + other.taken,
            (one.total << scale - one.scale) + (other.total << scale - other.scale),
            (one.squares << 2 * (scale - one.scale)) + (other.squares << 2 * (scale - other.scale)),
            scale,
        )

    def value(self, state: MomentsState, question: Mapping[str, Any]) -> MomentsValue:
        self.require_question(question)
        count, total, squares, scale = state
        if count == 0:
            return MomentsValue(0, None, None, None, None, None)
        spread = squares * count - total * total
        variance = _ratio(spread, count * count << 2 * scale)
        return MomentsValue(
            count=count,
            total=_ratio(total, 1 << scale),
            mean=_ratio(total, count << scale),
            variance=variance,
            deviation=math.sqrt(variance),
            sample_variance=_ratio(spread, count * (count - 1) << 2 * scale) if count > 1 else None,
        )

    def dump_body(self, state: MomentsState) -> bytes:
        total = whole_bytes(state.total)
        return _HEAD.pack(state.taken, state.scale, len(total)) + total + whole_bytes(state.squares)

    def load_body(self, body: bytes, version: int) -> MomentsState:
        count, scale, length = _HEAD.unpack_from(body)
        total, squares = body[_HEAD.size : _HEAD.size + length], body[_HEAD.size + length :]
        if scale > SCALE_MAX or len(total) != length:
            raise ValueError("no sums")
        state = MomentsState(count, whole_of(total), whole_of(squares), scale)
        if state.squares * count < state.total * state.total:
            raise ValueError("sums that no set of numbers has")
        return state

    def examples(self) -> Sequence[Example]:
        return [Example("add", (12.5,)), Example("add", (-3,)), Example("add", (0.1,)), Example("add", (1e300,))]


def _ratio(above: int, below: int) -> float:
    """Rounded once; a square may be out of a float's range."""
    try:
        return above / below
    except OverflowError:
        return math.inf if above > 0 else -math.inf
