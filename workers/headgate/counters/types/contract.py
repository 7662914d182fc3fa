"""A type of counter: a value that is zero, takes updates, merges with others of its kind, and becomes bytes.

It knows no table, no mutator and no clock: the time of an update is an argument. A type is one file with one subclass
of `CounterType`; `registry.py` loads it, `laws.py` checks it against the laws:

- merge is commutative and associative, and zero is neutral to it;
- an update may be applied before or after a merge: apply(merge(a, b), u) = merge(apply(a, u), b), and
  apply(a, u) = merge(a, apply(zero, u));
- load(dump(a)) = a, and dump(load(bytes)) = bytes.

"=" means `same`: the same bytes, unless a type states another equality, as sketches do, whose merges are random
within their error. Merge need not be idempotent: a sum is not. Of the successive states of one shard only the last is
ever merged, and it has taken every update of the earlier ones.

A state belongs to its holder: `apply` may change it and returns the one to continue with; `merge` and `dump` change
nothing. An update that cannot be applied raises, and leaves the state as it was.
"""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any, ClassVar, Generic, TypeVar, final
from zlib import crc32

from headgate.errors import InvalidRequest, OperationRefused

S = TypeVar("S")
"""The state of a type."""
U = TypeVar("U")
"""An update of it, checked."""

_HEAD = struct.Struct("<BI")
"""Version and CRC-32. The library of sketches ends the whole process over some damaged ones: they never reach it."""

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
"""JSON values: the form of arguments and values in the SDK, the command line and HTTP."""


class UpdateInvalid(InvalidRequest):
    """The counter's type does not take this update."""


class QuestionInvalid(InvalidRequest):
    """The counter's type does not support this query."""


class StateUnreadable(OperationRefused):
    """These bytes are no state of this type."""


class StateFull(OperationRefused):
    """The value of this key has grown to its bound."""


@dataclass(frozen=True)
class Example:
    """One update, as a caller writes it: for the check of laws, for documentation and for tests."""

    verb: str
    arguments: tuple[Json, ...]


class CounterType(ABC, Generic[S, U]):
    """One type of counter. An instance holds no state: all state is in the values that it creates."""

    name: ClassVar[str]
    """As in `spec.type`: `sum`, or `vendor/name` for a type of a user's own."""
    version: ClassVar[int] = 1
    """The first byte of every dump; raised when the bytes after it change their meaning. Read are all from 1 on."""
    verbs: ClassVar[tuple[str, ...]] = ("add",)
    """The verbs of a value."""
    is_dated: ClassVar[bool] = True
    """Whether updates carry the time of their call. Without it, the clock is not read for them."""

    takes_texts: ClassVar[bool] = False
    """Whether every argument on a command line is a text, `17` as well."""

    @abstractmethod
    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> U:
        """The update from the caller's arguments, or UpdateInvalid. For dated updates, `at_us` is the time of the
        call by a trusted clock; within one process it grows from update to update."""

    @abstractmethod
    def zero(self) -> S:
        """A value that took no update."""

    @abstractmethod
    def apply(self, state: S, update: U) -> S:
        """The value with one update more. May change `state`."""

    @abstractmethod
    def merge(self, one: S, other: S) -> S:
        """The value that took the updates of both. Changes neither, and shares nothing with them that changes."""

    @abstractmethod
    def value(self, state: S, question: Mapping[str, Any]) -> Any:
        """The value for users: a number, a string or a frozen dataclass of such; see `plain`."""

    @abstractmethod
    def dump_body(self, state: S) -> bytes:
        """The state as bytes, without the version; the same bytes for the same state, each time."""

    @abstractmethod
    def load_body(self, body: bytes, version: int) -> S:
        """The state of such bytes; may raise anything for invalid ones."""

    @abstractmethod
    def examples(self) -> Sequence[Example]:
        """At least three different updates, of every verb one."""

    def merge_all(self, states: Iterable[S]) -> S:
        """All of them merged; zero for none. A type that can do it faster for many does."""
        return reduce(self.merge, states, self.zero())

    def same(self, one: S, other: S) -> bool:
        """Whether both are the same value, as far as the type promises anything."""
        return self.dump_body(one) == self.dump_body(other)

    def forget(self, state: S, before_us: int) -> S:
        """The same value without the parts kept only against updates from before that time, none of which can arrive
        any more. The collector calls it; most types have no such parts."""
        return state

    def read_words(self, words: Sequence[str]) -> list[Json]:
        """Arguments as they are typed on a command line: numbers, unless the type overrides it."""
        return list(words) if self.takes_texts else [number_of(word) for word in words]

    @final
    def dump(self, state: S) -> bytes:
        """The stored form: the version, a checksum, the body."""
        body = self.dump_body(state)
        return _HEAD.pack(self.version, crc32(body)) + body

    @final
    def load(self, data: bytes) -> S:
        """The state of a stored form, or StateUnreadable."""
        if len(data) < _HEAD.size:
            raise StateUnreadable(type=self.name, bytes=len(data))
        version, checksum = _HEAD.unpack_from(data)
        if version > self.version:
            raise StateUnreadable(
                "This state was written by a later release",
                type=self.name,
                version=version,
                known=self.version,
                remedy="upgrade this process to that release",
            )
        body = bytes(data[_HEAD.size :])
        if version == 0 or crc32(body) != checksum:
            raise StateUnreadable(
                type=self.name, version=version, bytes=len(data), cause="damaged, or not a Headgate state"
            )
        try:
            return self.load_body(body, version)
        except StateUnreadable:
            raise
        except Exception as error:  # any error of a parser of garbage: it is not a state
            raise StateUnreadable(type=self.name, bytes=len(data), cause=_one_line(error)) from None

    # ---- for `parse` and `value` of a type

    def require_verb(self, verb: str) -> None:
        """Reject a verb that a value of this type does not have."""
        if verb not in self.verbs:
            raise UpdateInvalid(
                "This type has no such update",
                type=self.name,
                given=verb,
                remedy=f"available: {', '.join(self.verbs)}",
            )

    def wrong(self, wanted: str, given: object) -> UpdateInvalid:
        """The error for an argument: the expected form, and the given one."""
        return UpdateInvalid(type=self.name, wanted=wanted, given=_shown(given))

    def one_number(self, arguments: Sequence[Json]) -> int | float:
        """The only argument."""
        given = arguments[0] if len(arguments) == 1 else None
        if not isinstance(given, int | float) or not is_number(given):
            raise self.wrong("one number", list(arguments))
        return given

    def text_within(self, bytes_max: int, given: Json, wanted: str, noun: str = "string") -> str:
        """An argument that is a text of bounded length."""
        if not isinstance(given, str) or not is_text(given):
            raise self.wrong(wanted, given)
        if len(given.encode()) > bytes_max:
            raise self.wrong(f"a {noun} of at most {bytes_max} bytes", given)
        return given

    def require_question(self, question: Mapping[str, Any], *known: str) -> None:
        """Reject queries that the type does not know."""
        for name in question:
            if name not in known:
                remedy = f"available: {', '.join(known)}" if known else "this type has a single value"
                raise QuestionInvalid(type=self.name, asked=name, remedy=remedy)


def number_of(word: str) -> Json:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return word
    return number if math.isfinite(number) else word


def is_whole(given: object) -> bool:
    """Whether it is a whole number; truth values are none."""
    return isinstance(given, int) and not isinstance(given, bool)


def is_number(given: object) -> bool:
    """Whether it is a number that can be computed with: not a truth value, not infinite, not NaN."""
    return is_whole(given) or (isinstance(given, float) and math.isfinite(given))


def is_text(given: object) -> bool:
    if not isinstance(given, str):
        return False
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def compact_json(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain(value: Any) -> Json:
    """The result of a type's `value` as JSON: of a dataclass its fields, of a decimal or a time its string."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    assert value is None or isinstance(value, bool | int | float | str), type(value)  # noqa: S101  a type's to keep
    return value


SHOWN_CHARACTERS = 80


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:SHOWN_CHARACTERS] or type(error).__name__
