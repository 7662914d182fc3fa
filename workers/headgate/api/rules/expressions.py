"""Conditions over a resource, written once and read twice: as CEL by the API server, as Python by everything else.

A term renders itself with `cel(subject)`, where the subject is `self` or `oldSelf`, and answers for a plain JSON
object with `of(object)`. A field that is absent has its effective value: the default of the model. Where a text does
not have the form it should have, a comparison holds: the field's own shape reports the fault, once.
Durations become numbers of milliseconds in Python and Go durations in CEL, so that `1d` and `24h` are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headgate.api import durations
from headgate.api.values.shapes import duration_cel, quoted

Json = Mapping[str, Any]
Operator = Literal["==", "!=", "<", "<=", ">", ">="]


class Expression(Protocol):
    """Something that holds for a resource or does not."""

    def cel(self) -> str: ...

    def holds(self, subject: Json, old: Json | None) -> bool: ...


def read_path(subject: Json, path: str) -> Any:
    """The value at a dotted path, or None where any step of it is absent."""
    value: Any = subject
    for step in path.split("."):
        if not isinstance(value, Mapping) or value.get(step) is None:
            return None
        value = value[step]
    return value


def has_cel(path: str, subject: str = "self") -> str:
    """CEL that checks whether each step of a dotted path exists."""
    steps = path.split(".")
    return " && ".join(f"has({subject}.{'.'.join(steps[: end + 1])})" for end in range(len(steps)))


@dataclass(frozen=True)
class Value:
    """The effective value of a text, number or flag."""

    path: str
    default: str | int | bool

    def cel(self, subject: str = "self") -> str:
        return f"({has_cel(self.path, subject)} ? {subject}.{self.path} : {literal(self.default)})"

    def of(self, subject: Json) -> Any:
        value = read_path(subject, self.path)
        return self.default if value is None else value


def literal(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f"'{value}'"


@dataclass(frozen=True)
class Is:
    """A field's effective value compared with a constant or with another field's."""

    left: Value
    operator: Operator
    right: Value | str | int | bool

    def cel(self) -> str:
        right = self.right.cel() if isinstance(self.right, Value) else literal(self.right)
        return f"{self.left.cel()} {self.operator} {right}"

    def holds(self, subject: Json, old: Json | None) -> bool:
        right = self.right.of(subject) if isinstance(self.right, Value) else self.right
        return compare(self.left.of(subject), self.operator, right)


def compare(left: Any, operator: Operator, right: Any) -> bool:
    if operator == "==":
        return bool(left == right)
    if operator == "!=":
        return bool(left != right)
    if type(left) is not type(right):
        return True
    if operator == "<":
        return bool(left < right)
    if operator == "<=":
        return bool(left <= right)
    return bool(left > right) if operator == ">" else bool(left >= right)


@dataclass(frozen=True)
class Has:
    """A field is set."""

    path: str

    def cel(self) -> str:
        return f"({has_cel(self.path)})"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return read_path(subject, self.path) is not None


@dataclass(frozen=True)
class Not:
    condition: Expression

    def cel(self) -> str:
        return f"!({self.condition.cel()})"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return not self.condition.holds(subject, old)


@dataclass(frozen=True)
class Any_:  # noqa: N801  `Any` is taken by typing
    """At least one holds."""

    conditions: Sequence[Expression]

    def cel(self) -> str:
        return "(" + " || ".join(condition.cel() for condition in self.conditions) + ")"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return any(condition.holds(subject, old) for condition in self.conditions)


@dataclass(frozen=True)
class All:
    """All hold."""

    conditions: Sequence[Expression]

    def cel(self) -> str:
        return "(" + " && ".join(condition.cel() for condition in self.conditions) + ")"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return all(condition.holds(subject, old) for condition in self.conditions)


@dataclass(frozen=True)
class ExactlyOne:
    """One of these fields is set, and only one."""

    paths: Sequence[str]

    def cel(self) -> str:
        return " + ".join(f"({has_cel(path)} ? 1 : 0)" for path in self.paths) + " == 1"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return sum(read_path(subject, path) is not None for path in self.paths) == 1


@dataclass(frozen=True)
class AtMostItems:
    """A list has no more items than this."""

    path: str
    count: int

    def cel(self) -> str:
        return f"(!({has_cel(self.path)}) || size(self.{self.path}) <= {self.count})"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return len(read_path(subject, self.path) or ()) <= self.count


@dataclass(frozen=True)
class Longer:
    """A duration compared with a sum: constant plus each (field, how many times)."""

    left: Value
    operator: Literal[">", ">="]
    constant: str
    plus: Sequence[tuple[Value, int]]

    def cel(self) -> str:
        terms = [f"duration('{durations.Duration(self.constant).ms}ms')"]
        for index, (_, times) in enumerate(self.plus):
            terms += [duration_cel(f"d{index}")] * times
        inner = f"{duration_cel('d')} {self.operator} {' + '.join(terms)}"
        for index, (value, _) in reversed(list(enumerate(self.plus))):
            inner = _bound(f"d{index}", value.cel(), inner)
        return _bound("d", self.left.cel(), inner)

    def holds(self, subject: Json, old: Json | None) -> bool:
        left = durations.Duration.parse(self.left.of(subject))
        plus = [(durations.Duration.parse(value.of(subject)), times) for value, times in self.plus]
        if left is None or any(ms is None for ms, _ in plus):
            return True
        total = durations.Duration(self.constant).ms + sum((ms or 0) * times for ms, times in plus)
        return compare(left, self.operator, total)


def _bound(name: str, value: str, inner: str) -> str:
    """CEL has no `let`: a list of one is asked whether all of it satisfies; a malformed text satisfies everything."""
    return f"[{value}].all({name}, !{name}.matches({quoted(durations.PATTERN)}) || {inner})"


@dataclass(frozen=True)
class NoneLongerThan:
    """No duration of a list is longer than a field's."""

    path: str
    most: Value

    def cel(self) -> str:
        each = f"self.{self.path}.all(w, !w.matches({quoted(durations.PATTERN)}) || "
        inner = f"{each}{duration_cel('w')} <= {duration_cel('d')})"
        return f"(!({has_cel(self.path)}) || {_bound('d', self.most.cel(), inner)})"

    def holds(self, subject: Json, old: Json | None) -> bool:
        most = durations.Duration.parse(self.most.of(subject))
        items = (durations.Duration.parse(item) for item in read_path(subject, self.path) or ())
        return most is None or all(item is None or item <= most for item in items)


@dataclass(frozen=True)
class NoTwoEqual:
    """No two durations of a list are equal, however they are written."""

    path: str

    def cel(self) -> str:
        pattern = quoted(durations.PATTERN)
        return (
            f"(!({has_cel(self.path)}) || self.{self.path}.exists(w, !w.matches({pattern})) || "
            f"self.{self.path}.all(w, self.{self.path}.filter(v, {duration_cel('v')} == {duration_cel('w')}).size() "
            f"== 1))"
        )

    def holds(self, subject: Json, old: Json | None) -> bool:
        items = [durations.Duration.parse(item) for item in read_path(subject, self.path) or ()]
        return None in items or len(set(items)) == len(items)


@dataclass(frozen=True)
class Unchanged:
    """A field is what it was before; one that was absent and has no default stays absent."""

    path: str
    default: str | int | bool | None
    duration: bool = False

    def cel(self) -> str:
        if self.default is None:
            now, before = has_cel(self.path), has_cel(self.path, "oldSelf")
            return f"({now}) == ({before}) && (!({now}) || self.{self.path} == oldSelf.{self.path})"
        value = Value(self.path, self.default)
        if not self.duration:
            return f"{value.cel()} == {value.cel('oldSelf')}"
        inner = _bound("o", value.cel("oldSelf"), f"{duration_cel('d')} == {duration_cel('o')}")
        return _bound("d", value.cel(), inner)

    def holds(self, subject: Json, old: Json | None) -> bool:
        if old is None:
            return True
        now, before = read_path(subject, self.path), read_path(old, self.path)
        if self.duration:
            now = durations.Duration.parse(self.default if now is None else now)
            before = durations.Duration.parse(self.default if before is None else before)
            return now is None or before is None or now == before
        return bool((self.default if now is None else now) == (self.default if before is None else before))


@dataclass(frozen=True)
class SameDurations:
    """A list holds the durations that it held, in any order and however they are written."""

    path: str

    def cel(self) -> str:
        now, before, pattern = has_cel(self.path), has_cel(self.path, "oldSelf"), quoted(durations.PATTERN)
        return (
            f"({now}) == ({before}) && (!({now}) || self.{self.path}.exists(w, !w.matches({pattern})) || "
            f"(size(self.{self.path}) == size(oldSelf.{self.path}) && self.{self.path}.all(w, "
            f"oldSelf.{self.path}.exists(v, {duration_cel('v')} == {duration_cel('w')}))))"
        )

    def holds(self, subject: Json, old: Json | None) -> bool:
        if old is None:
            return True
        now, before = read_path(subject, self.path), read_path(old, self.path)
        if now is None or before is None:
            return now is before
        grains = [durations.Duration.parse(item) for item in now]
        kept = [durations.Duration.parse(item) for item in before]
        return None in grains or (len(grains) == len(kept) and set(grains) <= set(kept))


@dataclass(frozen=True)
class NotOwnName:
    """A field is not the resource's own name."""

    path: str

    def cel(self) -> str:
        return f"(!({has_cel(self.path)}) || self.{self.path} != self.metadata.name)"

    def holds(self, subject: Json, old: Json | None) -> bool:
        value = read_path(subject, self.path)
        return bool(value is None or value != read_path(subject, "metadata.name"))


@dataclass(frozen=True)
class NoneOwnName:
    """In no item of a list is a field the resource's own name, among the items where another field has a value."""

    path: str
    field: str
    where: tuple[str, str] | None = None

    def cel(self) -> str:
        other = f"i.{self.where[0]} != '{self.where[1]}' || " if self.where else ""
        each = f"{other}!has(i.{self.field}) || i.{self.field} != self.metadata.name"
        return f"(!({has_cel(self.path)}) || self.{self.path}.all(i, {each}))"

    def holds(self, subject: Json, old: Json | None) -> bool:
        name = read_path(subject, "metadata.name")
        items = read_path(subject, self.path) or ()
        chosen = (item for item in items if not self.where or item.get(self.where[0]) == self.where[1])
        return all(item.get(self.field) is None or item[self.field] != name for item in chosen)


@dataclass(frozen=True)
class NoItemHas:
    """In no item of a list is a field set."""

    path: str
    field: str

    def cel(self) -> str:
        return f"(!({has_cel(self.path)}) || self.{self.path}.all(i, !has(i.{self.field})))"

    def holds(self, subject: Json, old: Json | None) -> bool:
        return all(item.get(self.field) is None for item in read_path(subject, self.path) or ())


@dataclass(frozen=True)
class NameFits:
    """The resource's own name is not longer than this."""

    length_max: int

    def cel(self) -> str:
        return f"size(self.metadata.name) <= {self.length_max}"

    def holds(self, subject: Json, old: Json | None) -> bool:
        name = read_path(subject, "metadata.name")
        return not isinstance(name, str) or len(name) <= self.length_max


def implies(premise: Expression, conclusion: Expression) -> Expression:
    return Any_((Not(premise), conclusion))
