"""`register`: the last value that was written.

Each write carries the time of its call; the later wins, in any order of arrival. Of two with the same time the one
whose JSON has the greater bytes wins, everywhere. Times of different processes differ by up to maxClockSkew: which of
two writes closer than that is the later is undefined.

Body: JSON: [] for never written, else [time in µs since 1970, value].
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from headgate.counters.types.contract import CounterType, Example, Json, compact_json, is_whole

VALUE_BYTES_MAX = 65_536
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RegisterValue:
    value: Json
    at: datetime | None
    """When it was written; None if it never was."""


class RegisterEntry(NamedTuple):
    at_us: int
    value: bytes


State = RegisterEntry | None


class Register(CounterType[State, RegisterEntry]):
    name = "register"
    verbs = ("set",)
    takes_texts = True

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> RegisterEntry:
        self.require_verb(verb)
        if len(arguments) != 1:
            raise self.wrong("one value", list(arguments))
        try:
            value = compact_json(json.loads(compact_json(arguments[0])))
        except (ValueError, TypeError, RecursionError):
            raise self.wrong("a value that JSON can represent", arguments[0]) from None
        if len(value) > VALUE_BYTES_MAX:
            raise self.wrong(f"a value of at most {VALUE_BYTES_MAX} bytes", f"{len(value)} bytes")
        return RegisterEntry(at_us, value)

    def zero(self) -> State:
        return None

    def apply(self, state: State, update: RegisterEntry) -> State:
        return self.merge(state, update)

    def merge(self, one: State, other: State) -> State:
        if one is None or other is None:
            return one or other
        return max(one, other)

    def value(self, state: State, question: Mapping[str, Any]) -> RegisterValue:
        self.require_question(question)
        if state is None:
            return RegisterValue(None, None)
        return RegisterValue(json.loads(state.value), EPOCH + timedelta(microseconds=state.at_us))

    def dump_body(self, state: State) -> bytes:
        return b"[]" if state is None else b"[%d,%b]" % (state.at_us, state.value)

    def load_body(self, body: bytes, version: int) -> State:
        fields = json.loads(body)
        if fields == []:
            return None
        at_us, value = fields
        if not is_whole(at_us):
            raise ValueError("no timestamp")
        return RegisterEntry(at_us, compact_json(value))

    def examples(self) -> Sequence[Example]:
        return [Example("set", ("on",)), Example("set", ({"rate": 0.5},)), Example("set", (None,))]
