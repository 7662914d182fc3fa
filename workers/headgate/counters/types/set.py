"""`set`: texts, added and removed.

Each update carries the time of its call, since it reads nothing. Of each element the later update wins, in any order
of arrival, and of an addition and a removal at the same time the addition. Times of different processes differ by up
to maxClockSkew: which of two updates of one element closer than that is the later is undefined. A removal is kept
until no addition from before it can arrive any more (`forget`).

Body: JSON: {"in": {element: time}, "out": {element: time}}, times in µs since 1970, elements in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.counters.types.contract import CounterType, Example, Json, StateFull, compact_json, is_whole

ELEMENT_BYTES_MAX = 1_024
ELEMENTS_MAX = 50_000
"""Of one shard, the removed ones too: it is written whole. A set that needs more is a table."""
AT_ONCE_MAX = 1_000

State = dict[str, int]
"""Of each element 2 * time, + 1 if that was an addition: the greater number counts."""


class Elements(CounterType[State, State]):
    name = "set"
    verbs = ("add", "remove")
    takes_texts = True

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> State:
        self.require_verb(verb)
        if not 1 <= len(arguments) <= AT_ONCE_MAX:
            raise self.wrong(f"1 to {AT_ONCE_MAX} strings", f"{len(arguments)} arguments")
        stamp = 2 * at_us + (verb == "add")
        return {self.text_within(ELEMENT_BYTES_MAX, given, "a text"): stamp for given in arguments}

    def zero(self) -> State:
        return {}

    def apply(self, state: State, update: State) -> State:
        if len(state) + len(update) > ELEMENTS_MAX and len(state.keys() | update.keys()) > ELEMENTS_MAX:
            raise StateFull(
                "This set has reached its maximum size",
                elements=len(state),
                most=ELEMENTS_MAX,
                remedy="spread the elements over several keys",
            )
        return _take(state, update)

    def merge(self, one: State, other: State) -> State:
        return _take(dict(one), other)

    def merge_all(self, states: Iterable[State]) -> State:
        merged = self.zero()
        for each in states:
            _take(merged, each)
        return merged

    def value(self, state: State, question: Mapping[str, Any]) -> list[str]:
        self.require_question(question)
        return sorted(element for element, stamp in state.items() if stamp & 1)

    def forget(self, state: State, before_us: int) -> State:
        return {element: stamp for element, stamp in state.items() if stamp & 1 or stamp >> 1 >= before_us}

    def dump_body(self, state: State) -> bytes:
        present = {element: stamp >> 1 for element, stamp in state.items() if stamp & 1}
        absent = {element: stamp >> 1 for element, stamp in state.items() if not stamp & 1}
        return compact_json({"in": present, "out": absent})

    def load_body(self, body: bytes, version: int) -> State:
        fields = json.loads(body)
        return {**dict(_stamps(fields["out"], 0)), **dict(_stamps(fields["in"], 1))}

    def examples(self) -> Sequence[Example]:
        return [
            Example("add", ("apple", "pear")),
            Example("remove", ("pear",)),
            Example("add", ("plum",)),
            Example("add", ("pear",)),
        ]


def _take(state: State, others: State) -> State:
    """Of each element the later entry, into `state`."""
    for element, stamp in others.items():
        if stamp > state.get(element, -1):
            state[element] = stamp
    return state


def _stamps(timestamps: dict[str, Any], added: int) -> Iterator[tuple[str, int]]:
    for element, at_us in timestamps.items():
        if not is_whole(at_us) or at_us < 0:
            raise ValueError("no timestamp")
        yield element, 2 * at_us + added
