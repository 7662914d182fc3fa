"""Finds a type by its name in `spec.type`: a built-in one by its file, a custom one by its entry point.

A user's own type is a subclass of `CounterType`, named `vendor/name`, and announced by its distribution:

    [project.entry-points."headgate.counter_types"]
    "acme/longest" = "acme_counters:Longest"

It is checked against the laws on first use. Types are imported on demand, so that a process that counts with sums
needs no sketches.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from headgate.counters.types.contract import CounterType
from headgate.counters.types.laws import broken_law
from headgate.errors import Bug, EnvironmentProblem, InvalidRequest

GROUP: Final = "headgate.counter_types"

OURS: Final = {
    "audience": "Audience",
    "distinct": "Distinct",
    "minmax": "MinMax",
    "moments": "Moments",
    "product": "Product",
    "quantiles": "Quantiles",
    "register": "Register",
    "set": "Elements",
    "sum": "Sum",
    "topk": "TopK",
}
"""From a built-in type to its class, in the file of its name."""


class TypeUnknown(InvalidRequest):
    """There is no such type of counter."""


class TypeBroken(EnvironmentProblem):
    """The counter type cannot be used."""


@cache
def type_of(name: str) -> CounterType[Any, Any]:
    if name in OURS:
        counter_type = getattr(import_module(f"headgate.counters.types.{name}"), OURS[name])()
        if not isinstance(counter_type, CounterType):
            raise Bug("A counter type's file contains something else", type=name)
        return counter_type
    return load_own(name, entry_points(group=GROUP))


def load_own(name: str, announced: Iterable[EntryPoint]) -> CounterType[Any, Any]:
    points = {point.name: point for point in announced}
    point = points.get(name)
    if point is None:
        close = difflib.get_close_matches(name, [*OURS, *points], n=1)
        if close:
            remedy = f"did you mean {close[0]}?"
        elif "/" in name:
            remedy = f"install the distribution that registers it under the entry point group {GROUP}"
        else:
            remedy = f"available: {', '.join(OURS)}"
        raise TypeUnknown(type=name, remedy=remedy)
    try:
        loaded = point.load()
        made = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise TypeBroken(
            "The custom counter type cannot be imported", type=name, entry=point.value, cause=_one_line(error)
        ) from error
    if not isinstance(made, CounterType):
        raise TypeBroken("The entry point is not a CounterType", type=name, entry=point.value)
    if made.name != name:
        raise TypeBroken(
            "The counter type's name differs from its entry point's", type=name, entry=point.value, named=made.name
        )
    broken = broken_law(made)
    if broken is not None:
        raise TypeBroken("The counter type breaks a law of its contract", type=name, entry=point.value, law=broken)
    return made


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
