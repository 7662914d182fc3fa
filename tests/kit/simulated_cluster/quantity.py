"""Amounts as a server writes them back: with the largest suffix that leaves a whole number. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_BINARY: Final[dict[str, Fraction | int]] = {
    "Ki": 1024**1,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
    "Pi": 1024**5,
    "Ei": 1024**6,
}
_DECIMAL: Final[dict[str, Fraction | int]] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip
_WRITTEN: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)([A-Za-z]{0,2})")


def canonical(written: str) -> str:
    """`0.1` -> `100m`, `1024Mi` -> `1Gi`; what is not an amount stays as it is."""
    match = _WRITTEN.fullmatch(written)
    if match is None or match[2] not in {**_BINARY, **_DECIMAL}:
        return written
    number, suffix = Fraction(match[1]), match[2]
    amount = number * (_BINARY[suffix] if suffix in _BINARY else _DECIMAL[suffix])
    if suffix in _BINARY and amount.denominator == 1 and abs(amount) >= 1024:
        return _largest(amount, {"": 1, **_BINARY})
    return _largest(amount, _DECIMAL)


def _largest(amount: Fraction, suffixes: dict[str, Fraction | int]) -> str:
    if not amount:
        return "0"
    for suffix, size in sorted(suffixes.items(), key=lambda entry: -entry[1]):
        if (amount / size).denominator == 1:
            return f"{amount / size}{suffix}"
    return f"{-(-amount // Fraction(1, 10**9))}n"
