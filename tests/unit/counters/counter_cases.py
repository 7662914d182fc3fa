"""Strategies for the tests of counter types: updates of each type, and states made of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headgate.counters.types.contract import CounterType
from headgate.counters.types.registry import type_of

TIMES_US = st.integers(1_700_000_000_000_000, 1_700_000_000_000_006)
"""So few that many updates meet at one."""

WHOLE = st.one_of(st.integers(-300, 300), st.integers(-(2**200), 2**200))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FEW = st.sampled_from(["apple", "pear", "plum", "quince"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), FLOATS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


def _with(verb: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, list[Any]]]:
    return st.tuples(st.just(verb), st.tuples(*arguments).map(list))


def _many(verb: str, items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, list[Any]]]:
    return st.tuples(st.just(verb), st.lists(items, min_size=1, max_size=9))


ITEMS = st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1))
CALLS: dict[str, st.SearchStrategy[tuple[str, list[Any]]]] = {
    "sum": st.one_of(_with("add"), _with("add", WHOLE)),
    "product": _with(
        "add",
        st.one_of(
            st.integers(-20, 20),
            st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-99, max_value=99).map(str),
            st.floats(-1e9, 1e9),
        ),
    ),
    "minmax": st.one_of(
        _with("add", st.one_of(WHOLE, FLOATS)),
        _with("add", st.one_of(st.integers(-2, 2), st.floats(-2, 2)), st.one_of(st.none(), FEW)),
    ),
    "moments": _with("add", st.one_of(WHOLE, FLOATS)),
    "register": _with("set", JSON),
    "set": st.one_of(_many("add", FEW), _many("remove", FEW), _many("add", TEXTS)),
    "distinct": _many("add", ITEMS),
    "audience": _many("add", ITEMS),
    "quantiles": _with("add", FLOATS),
    "topk": st.one_of(_with("add", TEXTS), _with("add", FEW, st.integers(1, 9))),
}
NAMES = sorted(CALLS)
EXACT = ("audience", "minmax", "moments", "register", "set", "sum")
"""Their laws hold to the byte, whatever is counted."""

EXACT_WITHOUT_SKETCHES = ("minmax", "moments", "product", "register", "set", "sum")


def updates_of(kind: CounterType[Any, Any], max_size: int = 12) -> st.SearchStrategy[list[Any]]:
    """Updates as the type has checked them."""
    one = st.tuples(CALLS[kind.name], TIMES_US).map(lambda drawn: kind.parse(*drawn[0], drawn[1]))
    return st.lists(one, max_size=max_size)


def shards_of(name: str, shards: int = 3) -> st.SearchStrategy[tuple[list[Any], ...]]:
    """The updates that each of some shards took."""
    return st.tuples(*[updates_of(type_of(name)) for _ in range(shards)])
