"""`product`: numbers multiplied, 0 and negative ones too.

Factors are whole numbers, decimals as strings ("1.05"), or floats, which are read as the decimal that they are
written as (1.05 is 1.05, not the binary number next to it). The product is exact as long as it needs at most 1,000
digits. From then on it is rounded to those, half to even, at each multiplication: `exact` reports it. Exact products
obey the laws to the byte, rounded ones to a part in 10^990. A product with a factor 0 is 0, exactly, forever.

Body: a flag (0 exact, 1 rounded) and the number as text: digits without trailing zeros, `E`, the exponent of ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal
from typing import Any, NamedTuple

from headgate.counters.types.contract import CounterType, Example, Json, is_number

DIGITS = 1_000
FACTOR_DIGITS_MAX = 300
FACTOR_EXPONENT_MAX = 10_000
EXPONENT_MAX = 10**15
TEXT_MAX = 1_000
SAME_DIGITS = 990


@dataclass(frozen=True)
class ProductValue:
    number: Decimal
    exact: bool
    """Whether nothing was rounded: see above."""


class ProductState(NamedTuple):
    """digits * 10^exponent; canonical: the digits end in no zero, 0 is (0, 0)."""

    number: Decimal
    exact: bool = True


def _context(digits: int) -> Context:
    return Context(
        prec=digits,
        rounding=ROUND_HALF_EVEN,
        Emin=-EXPONENT_MAX,
        Emax=EXPONENT_MAX,
        traps=[InvalidOperation, Overflow, Subnormal],
    )


class Product(CounterType[ProductState, Decimal]):
    name = "product"
    is_dated = False

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> Decimal:
        self.require_verb(verb)
        wanted = "one factor: a whole number, a decimal as a string, or a float"
        if len(arguments) != 1:
            raise self.wrong(wanted, list(arguments))
        given = arguments[0]
        if not isinstance(given, str) and not is_number(given):
            raise self.wrong(wanted, given)
        if isinstance(given, int) and given.bit_length() > FACTOR_DIGITS_MAX * 4:
            raise self.wrong(f"a factor of at most {FACTOR_DIGITS_MAX} digits", f"{given.bit_length()} bits")
        if isinstance(given, str) and len(given) > TEXT_MAX:
            raise self.wrong(f"a factor of at most {FACTOR_DIGITS_MAX} digits", given)
        text = given if isinstance(given, str) else repr(given)
        try:
            factor = Decimal(text)
        except InvalidOperation:
            raise self.wrong(wanted, given) from None
        if not factor.is_finite():
            raise self.wrong(wanted, given)
        too_long = len(factor.as_tuple().digits) > FACTOR_DIGITS_MAX
        if factor and (too_long or abs(factor.adjusted()) > FACTOR_EXPONENT_MAX):
            raise self.wrong(
                f"a factor of at most {FACTOR_DIGITS_MAX} digits and an exponent up to {FACTOR_EXPONENT_MAX}", given
            )
        return _canonical(factor)

    def zero(self) -> ProductState:
        return ProductState(Decimal(1))

    def apply(self, state: ProductState, update: Decimal) -> ProductState:
        return self.merge(state, ProductState(update))

    def merge(self, one: ProductState, other: ProductState) -> ProductState:
        context = _context(DIGITS)
        number = context.multiply(one.number, other.number)
        exact = one.exact and other.exact and not context.flags[Inexact]
        return ProductState(_canonical(number), exact or not number)

    def value(self, state: ProductState, question: Mapping[str, Any]) -> ProductValue:
        self.require_question(question)
        return ProductValue(state.number, state.exact)

    def same(self, one: ProductState, other: ProductState) -> bool:
        if one.exact and other.exact:
            return one.number == other.number
        context = _context(DIGITS)
        difference = abs(context.subtract(one.number, other.number))
        return difference <= abs(one.number).scaleb(-SAME_DIGITS, context)

    def dump_body(self, state: ProductState) -> bytes:
        sign, digits, exponent = state.number.as_tuple()
        text = "-" * sign + "".join(map(str, digits)) + f"E{exponent}"
        return bytes((not state.exact,)) + text.encode("ascii")

    def load_body(self, body: bytes, version: int) -> ProductState:
        if body[0] > 1:
            raise ValueError("an unknown flag")
        number = Decimal(body[1:].decode("ascii"))
        if not number.is_finite() or len(number.as_tuple().digits) > DIGITS or abs(number.adjusted()) > EXPONENT_MAX:
            raise ValueError("no product")
        state = ProductState(number, body[0] == 0)
        if self.dump_body(ProductState(_canonical(number), state.exact)) != bytes(body):
            raise ValueError("a product in another form")
        return state

    def examples(self) -> Sequence[Example]:
        return [Example("add", (-2,)), Example("add", ("1.05",)), Example("add", (0.1,))]


def _canonical(number: Decimal) -> Decimal:
    """One form for one number: without trailing zeros, and one 0."""
    if not number:
        return Decimal(0)
    return _context(DIGITS).normalize(number)
