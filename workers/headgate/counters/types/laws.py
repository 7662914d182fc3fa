"""Holds a type against the laws of its contract, on the examples that it gives itself. Deterministic and quick: it
runs when a user's own type is loaded, before anything is counted with it. Ours are held against them by many more
examples, in tests/unit/counters/test_counter_laws.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any, TypeVar

from headgate.counters.types.contract import CounterType, StateUnreadable, plain

S = TypeVar("S")
U = TypeVar("U")

EXAMPLES_MIN = 3
EXAMPLES_USED_MAX = 6
VERSION_MAX = 250
FIRST_TIME_US = 1_700_000_000_000_000


def broken_law(kind: CounterType[Any, Any]) -> str | None:
    """A description of the first law that it breaks; None if it keeps them all."""
    try:
        return next(_broken(kind), None)
    except Exception as error:  # of any kind: the type cannot be used
        return f"raised {type(error).__name__}: {' '.join(str(error).split())}"


def _broken(kind: CounterType[S, U]) -> Iterator[str]:
    if not 1 <= kind.version <= VERSION_MAX:
        yield f"the version must be a number from 1 to {VERSION_MAX}"
    examples = list(kind.examples())[:EXAMPLES_USED_MAX]
    if len(examples) < EXAMPLES_MIN or {each.verb for each in kind.examples()} != set(kind.verbs):
        yield f"at least {EXAMPLES_MIN} examples are required, covering every verb"
    updates = [kind.parse(each.verb, each.arguments, FIRST_TIME_US + number) for number, each in enumerate(examples)]
    yield from _broken_of_bytes(kind, updates)
    yield from _broken_of_merge(kind, updates)


def _broken_of_bytes(kind: CounterType[S, U], updates: list[U]) -> Iterator[str]:
    state = kind.zero()
    for number in range(len(updates) + 1):
        data = kind.dump(state)
        if kind.dump(state) != data:
            yield "dump returns the same bytes for the same state"
        again = kind.load(data)
        if not kind.same(again, state):
            yield "load(dump(a)) = a"
        if kind.dump(again) != data:
            yield "dump(load(bytes)) = bytes"
        plain(kind.value(state, {}))
        if number < len(updates):
            state = kind.apply(again, updates[number])
    if not kind.same(state, taken(kind, updates)):
        yield "a state that was dumped and loaded takes updates like the original"
    try:
        kind.load(bytes((kind.version + 1,)) + kind.dump(state)[1:])
    except StateUnreadable:
        return
    yield "a state of a later version is rejected"


def _broken_of_merge(kind: CounterType[S, U], updates: list[U]) -> Iterator[str]:
    states = [taken(kind, updates[:1]), taken(kind, updates[1:]), taken(kind, updates)]
    for a, b in permutations(states, 2):
        before = kind.dump(a), kind.dump(b)
        kind.merge(a, b)
        if (kind.dump(a), kind.dump(b)) != before:
            yield "merge changes neither of its states"
    for a in states:
        if not kind.same(kind.merge(a, kind.zero()), a) or not kind.same(kind.merge(kind.zero(), a), a):
            yield "zero is neutral: merge(a, zero) = a"
    for a, b in permutations(states, 2):
        if not kind.same(kind.merge(a, b), kind.merge(b, a)):
            yield "merge is commutative: merge(a, b) = merge(b, a)"
    for a, b, c in permutations(states, 3):
        if not kind.same(kind.merge(kind.merge(a, b), c), kind.merge(a, kind.merge(b, c))):
            yield "merge is associative: merge(merge(a, b), c) = merge(a, merge(b, c))"
        if not kind.same(kind.merge_all([a, b, c]), kind.merge(kind.merge(a, b), c)):
            yield "merge_all(a, b, c) = merge(merge(a, b), c)"
    for (a, b), update in product(permutations(states, 2), updates):
        yield from _broken_of_apply(kind, a, b, update)


def _broken_of_apply(kind: CounterType[S, U], a: S, b: S, update: U) -> Iterator[str]:
    before = kind.dump(a), kind.dump(b)
    later = kind.apply(kind.merge(a, b), update)
    if not kind.same(later, kind.merge(kind.apply(_copy(kind, a), update), b)):
        yield "apply(merge(a, b), u) = merge(apply(a, u), b)"
    if not kind.same(later, kind.merge(kind.merge(a, b), taken(kind, [update]))):
        yield "apply(a, u) = merge(a, apply(zero, u))"
    if (kind.dump(a), kind.dump(b)) != before:
        yield "the state that merge returns shares nothing mutable with its arguments"


def taken(kind: CounterType[S, U], updates: list[U]) -> S:
    state = kind.zero()
    for update in updates:
        state = kind.apply(state, update)
    return state


def _copy(kind: CounterType[S, U], state: S) -> S:
    return kind.load(kind.dump(state))
