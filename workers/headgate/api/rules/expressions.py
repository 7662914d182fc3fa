"""Conditions over a resource, each in two languages side by side: CEL for the API server, Python for all else.

Both read a plain JSON object, `self` in CEL. An absent field has its effective value: the default of the model. Where
a text does not have the form it should have, a comparison holds: the field's own shape reports the fault, once.
Durations become numbers of milliseconds in Python and Go durations in CEL, so that `1d` and `24h` are the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.api.values.shapes import duration_cel, quoted
from headgate.api.values.units import Duration

Json = Mapping[str, Any]
Scalar = str | int | bool
Operator = Literal["==", "!=", "<", "<=", ">", ">="]

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Predicate:
    """A condition. `holds` takes the object, and for a rule on change the object as it was (`oldSelf` in CEL)."""

    cel: str
    holds: Callable[[Json, Json], bool]


def read_path(subject: Json, path: str) -> Any:
    """The value at a dotted path, or None where any step of it is absent."""
    value: Any = subject
    for step in path.split("."):
        if not isinstance(value, Mapping) or value.get(step) is None:
            return None
        value = value[step]
    return value


def _has(path: str, subject: str = "self") -> str:
    steps = path.split(".")
    return " && ".join(f"has({subject}.{'.'.join(steps[: end + 1])})" for end in range(len(steps)))


def _if_set(path: str, inner: str) -> str:
    return f"(!({_has(path)}) || {inner})"


def _items(subject: Json, path: str) -> Sequence[Any]:
    return read_path(subject, path) or ()


# ---- single values


@dataclass(frozen=True)
class Value:
    """The effective value of a text, number or flag."""

    path: str
    default: Scalar

    def cel(self, subject: str = "self") -> str:
        return f"({_has(self.path, subject)} ? {subject}.{self.path} : {_literal(self.default)})"

    def of(self, subject: Json) -> Any:
        value = read_path(subject, self.path)
        return self.default if value is None else value

    def ms_of(self, subject: Json) -> int | None:
        return Duration.parse(self.of(subject))


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f"'{value}'"


def compare(left: Value, how: Operator, right: Value | Scalar) -> Predicate:
    """A field's effective value compared with a constant or with another field's."""

    def holds(subject: Json, _: Json) -> bool:
        one, other = left.of(subject), right.of(subject) if isinstance(right, Value) else right
        if how not in ("==", "!=") and type(one) is not type(other):
            return True
        return bool(_COMPARISONS[how](one, other))

    right_cel = right.cel() if isinstance(right, Value) else _literal(right)
    return Predicate(f"{left.cel()} {how} {right_cel}", holds)


def has(path: str) -> Predicate:
    """A field is set."""
    return Predicate(f"({_has(path)})", lambda subject, _: read_path(subject, path) is not None)


def exactly_one(*paths: str) -> Predicate:
    """One of these fields is set, and only one."""
    return Predicate(
        " + ".join(f"({_has(path)} ? 1 : 0)" for path in paths) + " == 1",
        lambda subject, _: sum(read_path(subject, path) is not None for path in paths) == 1,
    )


def unchanged(path: str, default: Scalar | None, *, duration: bool = False) -> Predicate:
    """A field is what it was before; one that was absent and has no default stays absent."""

    def read(subject: Json) -> Any:
        value = read_path(subject, path)
        effective = default if value is None else value
        return Duration.parse(effective) if duration else effective

    def holds(subject: Json, old: Json) -> bool:
        now, before = read(subject), read(old)
        return bool(now == before or (duration and None in (now, before)))

    if default is None:
        now, before = _has(path), _has(path, "oldSelf")
        return Predicate(f"({now}) == ({before}) && (!({now}) || self.{path} == oldSelf.{path})", holds)
    value = Value(path, default)
    if not duration:
        return Predicate(f"{value.cel()} == {value.cel('oldSelf')}", holds)
    inner = _bound("o", value.cel("oldSelf"), f"{duration_cel('d')} == {duration_cel('o')}")
    return Predicate(_bound("d", value.cel(), inner), holds)


def lacks_text(path: str, text: str) -> Predicate:
    """A text does not contain another one."""

    def holds(subject: Json, _: Json) -> bool:
        value = read_path(subject, path)
        return not isinstance(value, str) or text not in value

    return Predicate(_if_set(path, f"!self.{path}.contains({quoted(text)})"), holds)


def keys_begin_with(path: str, prefix: str, *, excluded: Sequence[str]) -> Predicate:
    """Each key of a map begins with a text, and none with one of the others. (By `startsWith`, which costs what the
    prefix is long: a pattern would be paid for by the longest key that the API server can imagine.)"""

    def holds(subject: Json, _: Json) -> bool:
        keys = read_path(subject, path)
        return not isinstance(keys, Mapping) or all(
            not isinstance(key, str) or (key.startswith(prefix) and not key.startswith(tuple(excluded)))
            for key in keys
        )

    none_of = " && ".join(f"!k.startsWith({quoted(each)})" for each in excluded)
    each = f"k.startsWith({quoted(prefix)}) && {none_of}"
    return Predicate(_if_set(path, f"self.{path}.all(k, {each})"), holds)


# ---- the resource's own name


def name_fits(length_max: int) -> Predicate:
    """The resource's own name is not longer than this."""

    def holds(subject: Json, _: Json) -> bool:
        name = read_path(subject, "metadata.name")
        return not isinstance(name, str) or len(name) <= length_max

    return Predicate(f"size(self.metadata.name) <= {length_max}", holds)


def not_own_name(path: str) -> Predicate:
    """A field is not the resource's own name."""

    def holds(subject: Json, _: Json) -> bool:
        value = read_path(subject, path)
        return bool(value is None or value != read_path(subject, "metadata.name"))

    return Predicate(_if_set(path, f"self.{path} != self.metadata.name"), holds)


def none_own_name(path: str, field: str, where: tuple[str, str] | None = None) -> Predicate:
    """In no item of a list is a field the resource's own name, among the items where another field has a value."""

    def holds(subject: Json, _: Json) -> bool:
        name = read_path(subject, "metadata.name")
        chosen = (item for item in _items(subject, path) if not where or item.get(where[0]) == where[1])
        return all(item.get(field) is None or item[field] != name for item in chosen)

    other = f"i.{where[0]} != '{where[1]}' || " if where else ""
    each = f"{other}!has(i.{field}) || i.{field} != self.metadata.name"
    return Predicate(_if_set(path, f"self.{path}.all(i, {each})"), holds)


# ---- lists


def at_most_items(path: str, count: int) -> Predicate:
    return Predicate(
        _if_set(path, f"size(self.{path}) <= {count}"), lambda subject, _: len(_items(subject, path)) <= count
    )


def no_item_has(path: str, field: str) -> Predicate:
    return Predicate(
        _if_set(path, f"self.{path}.all(i, !has(i.{field}))"),
        lambda subject, _: all(item.get(field) is None for item in _items(subject, path)),
    )


# ---- durations


def _bound(name: str, value: str, inner: str) -> str:
    """CEL has no `let`: a list of one is asked whether all of it satisfies; a malformed text satisfies everything."""
    return f"[{value}].all({name}, {_malformed(name)} || {inner})"


def _malformed(name: str) -> str:
    return f"!{name}.matches({quoted(Duration.pattern)})"


def longer(left: Value, how: Literal[">", ">="], constant: str, *plus: tuple[Value, int]) -> Predicate:
    """A duration compared with a sum: constant plus each (field, how many times)."""
    constant_ms = Duration(constant).ms

    def holds(subject: Json, _: Json) -> bool:
        left_ms, total_ms = left.ms_of(subject), constant_ms
        for value, times in plus:
            ms = value.ms_of(subject)
            if ms is None:
                return True
            total_ms += ms * times
        return left_ms is None or bool(_COMPARISONS[how](left_ms, total_ms))

    terms = [f"duration('{constant_ms}ms')"]
    for index, (_, times) in enumerate(plus):
        terms += [duration_cel(f"d{index}")] * times
    inner = f"{duration_cel('d')} {how} {' + '.join(terms)}"
    for index, (value, _) in reversed(list(enumerate(plus))):
        inner = _bound(f"d{index}", value.cel(), inner)
    return Predicate(_bound("d", left.cel(), inner), holds)


def none_longer_than(path: str, most: Value) -> Predicate:
    """No duration of a list is longer than a field's."""

    def holds(subject: Json, _: Json) -> bool:
        most_ms = most.ms_of(subject)
        items = map(Duration.parse, _items(subject, path))
        return most_ms is None or all(item is None or item <= most_ms for item in items)

    each = f"self.{path}.all(w, {_malformed('w')} || {duration_cel('w')} <= {duration_cel('d')})"
    return Predicate(_if_set(path, _bound("d", most.cel(), each)), holds)


def no_two_equal(path: str) -> Predicate:
    """No two durations of a list are equal, however they are written."""

    def holds(subject: Json, _: Json) -> bool:
        items = list(map(Duration.parse, _items(subject, path)))
        return None in items or len(set(items)) == len(items)

    equal = f"self.{path}.filter(v, {duration_cel('v')} == {duration_cel('w')})"
    each = f"self.{path}.all(w, {equal}.size() == 1)"
    return Predicate(_if_set(path, f"self.{path}.exists(w, {_malformed('w')}) || {each}"), holds)


def same_durations(path: str) -> Predicate:
    """A list holds the durations that it held, in any order and however they are written."""

    def holds(subject: Json, old: Json) -> bool:
        now, before = read_path(subject, path), read_path(old, path)
        if now is None or before is None:
            return now is before
        grains, kept = list(map(Duration.parse, now)), set(map(Duration.parse, before))
        return None in grains or (len(now) == len(before) and kept.issuperset(grains))

    now, before = _has(path), _has(path, "oldSelf")
    kept = f"oldSelf.{path}.exists(v, {duration_cel('v')} == {duration_cel('w')})"
    same = f"(size(self.{path}) == size(oldSelf.{path}) && self.{path}.all(w, {kept}))"
    either = _if_set(path, f"self.{path}.exists(w, {_malformed('w')}) || {same}")
    return Predicate(f"({now}) == ({before}) && {either}", holds)


# ---- several conditions


def negate(condition: Predicate) -> Predicate:
    return Predicate(f"!({condition.cel})", lambda subject, old: not condition.holds(subject, old))


def any_of(*conditions: Predicate) -> Predicate:
    return Predicate(
        "(" + " || ".join(condition.cel for condition in conditions) + ")",
        lambda subject, old: any(condition.holds(subject, old) for condition in conditions),
    )


def all_of(*conditions: Predicate) -> Predicate:
    return Predicate(
        "(" + " && ".join(condition.cel for condition in conditions) + ")",
        lambda subject, old: all(condition.holds(subject, old) for condition in conditions),
    )


def implies(premise: Predicate, conclusion: Predicate) -> Predicate:
    return any_of(negate(premise), conclusion)
