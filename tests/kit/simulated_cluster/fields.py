"""Sets of fields, and operations on objects by them: the base of server-side apply. Pure.

A path is a tuple of steps as `managedFields` writes them: `f:spec`, `k:{"name":"a"}` (the item of a list that has
this key), `v:"x"` (the member of a set). A set of fields is a frozenset of paths; a path in it does not include those
below it. It knows neither managers nor conflicts (`managing.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kit.simulated_cluster.shapes import FieldShape

Path = tuple[str, ...]
Fields = frozenset[Path]
NONE: Fields = frozenset()


@dataclass(frozen=True)
class Difference:
    """The differences of a new object."""

    added: Fields
    removed: Fields
    modified: Fields

    @property
    def changed(self) -> Fields:
        """Fields that have another value now."""
        return self.added | self.modified


def field_step(name: str) -> str:
    """The step to a field."""
    return f"f:{name}"


def item_step(shape: FieldShape, item: Any) -> str:
    """The step to an item of a list or a set."""
    if shape.form == "set" or not isinstance(item, Mapping):
        return f"v:{json.dumps(item)}"
    keys = {key: item.get(key, shape.key_defaults.get(key)) for key in sorted(shape.keys)}
    named = {key: value for key, value in keys.items() if value is not None}
    return f"k:{json.dumps(named, separators=(',', ':'))}"


def fields_of(shape: FieldShape, value: Any) -> Fields:
    """The fields that an applied document has an opinion on."""
    return frozenset(_walk(shape, value, ()))


def _walk(shape: FieldShape, value: Any, at: Path) -> Iterator[Path]:
    if shape.form == "piece" or not isinstance(value, Mapping | list):
        yield at
    elif isinstance(value, list):
        if shape.form not in ("list", "set"):
            yield at
            return
        for item in value:
            path = (*at, item_step(shape, item))
            yield path
            if shape.form == "list":
                yield from _walk(shape.item or shape, item, path)
    else:
        for name, child in value.items():
            path = (*at, field_step(name))
            is_empty = child is None or (isinstance(child, Mapping) and not child)
            if is_empty or not shape.has_named_fields:
                yield path
            if not is_empty:
                yield from _walk(shape.of_field(name), child, path)


def compare(shape: FieldShape, old: Any, new: Any) -> Difference:
    """The differences of the new object; each field that came or went counts, and not only the lowest."""
    paths: dict[str, set[Path]] = {"added": set(), "removed": set(), "modified": set()}
    _compare(shape, old, new, (), paths)
    return Difference(frozenset(paths["added"]), frozenset(paths["removed"]), frozenset(paths["modified"]))


_ABSENT: Any = object()


def _compare(shape: FieldShape, old: Any, new: Any, at: Path, paths: dict[str, set[Path]]) -> None:
    if old is not _ABSENT and new is not _ABSENT and old == new:
        return
    olds, new_members = _members(shape, old), _members(shape, new)
    is_leaf = not olds and not new_members
    if at and (old is _ABSENT or new is _ABSENT):
        paths["added" if old is _ABSENT else "removed"].add(at)
    elif is_leaf or (at and (olds is None) != (new_members is None)):
        paths["modified"].add(at)
    for step in {**(olds or {}), **(new_members or {})}:
        inner, before = (olds or {}).get(step, (None, _ABSENT))
        inner_new, after = (new_members or {}).get(step, (inner, _ABSENT))
        _compare(inner_new or inner or shape, before, after, (*at, step), paths)


def _members(shape: FieldShape, value: Any) -> dict[str, tuple[FieldShape, Any]] | None:
    """The children of a value, step by step; None for one piece."""
    if shape.form == "piece" or value is _ABSENT:
        return None
    if isinstance(value, Mapping):
        return {field_step(name): (shape.of_field(name), child) for name, child in value.items()}
    if isinstance(value, list) and shape.form in ("list", "set"):
        item = shape.item or FieldShape("piece")
        return {item_step(shape, each): (item, each) for each in value}
    return None


def merge(shape: FieldShape, live: Any, applied: Any) -> Any:
    """The live value with all applied fields in it. Never removes anything."""
    if applied is None:
        return live
    if isinstance(live, Mapping) and isinstance(applied, Mapping) and shape.form != "piece":
        merged = {
            name: merge(shape.of_field(name), child, applied.get(name)) if name in applied else child
            for name, child in live.items()
        }
        return merged | {name: child for name, child in applied.items() if name not in live}
    if isinstance(live, list) and isinstance(applied, list) and shape.form in ("list", "set"):
        return _merge_lists(shape, live, applied)
    return applied


def _merge_lists(shape: FieldShape, live: Sequence[Any], applied: Sequence[Any]) -> list[Any]:
    """Items in the order in which they are applied; those of others keep their place before what follows them."""
    lives = {item_step(shape, item): item for item in live}
    applieds = {item_step(shape, item): item for item in applied}
    shared = [step for step in applieds if step in lives]
    waiting = list(lives)
    merged: list[Any] = []

    def take_others() -> None:
        """Those of others, up to the next shared item that is not passed yet."""
        while waiting and (waiting[0] not in applieds or (shared and waiting[0] != shared[0])):
            step = waiting.pop(0)
            if step not in applieds:
                merged.append(lives[step])

    for step, item in applieds.items():
        take_others()
        if step not in lives:
            merged.append(item)
            continue
        merged.append(merge(shape.item or FieldShape("piece"), lives[step], item))
        shared.remove(step)
        if waiting and waiting[0] == step:
            waiting.pop(0)
    merged.extend(lives[step] for step in waiting if step not in applieds)
    return merged


def without(shape: FieldShape, value: Any, fields: Iterable[Path]) -> Any:
    """The value without these fields and their children. A value that becomes empty is null, as on a server."""
    tree: dict[str, Any] = {}
    for path in fields:
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        if path:
            at.setdefault(path[-1], {})[""] = True
    return _without(shape, value, tree) if tree else value


def _without(shape: FieldShape, value: Any, tree: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and shape.form != "piece":
        kept = {}
        for name, child in value.items():
            below = tree.get(field_step(name))
            if below is None:
                kept[name] = child
            elif "" not in below:
                kept[name] = _without(shape.of_field(name), child, below)
        return kept or None
    if isinstance(value, list) and shape.form in ("list", "set"):
        items = []
        for item in value:
            below = tree.get(item_step(shape, item))
            if below is None:
                items.append(item)
            elif "" not in below:
                items.append(_without(shape.item or FieldShape("piece"), item, below))
        return items or None
    return value


def emptied(value: Any, before: Any, at: str = "") -> Iterator[str]:
    """Where something is null that was a list or a map."""
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        for name, child in value.items():
            yield from emptied(child, before.get(name), f"{at}.{name}" if at else name)
    elif value is None and isinstance(before, Mapping | list):
        yield at


def without_nulls(value: Any) -> Any:
    """The value without fields that are null."""
    if isinstance(value, Mapping):
        return {name: without_nulls(child) for name, child in value.items() if child is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def with_named(shape: FieldShape, fields: Fields) -> Fields:
    """The fields, and each named field of a struct above one of them."""
    return fields | frozenset(
        path[:length] for path in fields for length in range(1, len(path)) if _is_named(shape, path[:length])
    )


def _is_named(shape: FieldShape, path: Path) -> bool:
    at = shape
    for step in path[:-1]:
        at = _below(at, step)
    return path[-1].startswith("f:") and at.has_named_fields


def _below(shape: FieldShape, step: str) -> FieldShape:
    return shape.of_field(step[2:]) if step.startswith("f:") else shape.item or FieldShape("piece")


def is_below(path: Path, tops: Iterable[Path]) -> bool:
    """Whether it is one of these or lies below one."""
    return any(path[: len(top)] == top for top in tops)


def shown(path: Path) -> str:
    """As a conflict names it: `.spec.template.spec.containers[name="a"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = json.loads(step[2:])
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text


def written(fields: Fields) -> dict[str, Any]:
    """As `fieldsV1` of managedFields."""
    tree: dict[str, Any] = {}
    members = set(fields)
    for path in sorted(fields):
        at = tree
        for step in path:
            at = at.setdefault(step, {})
    for path in members:
        at = tree
        for step in path:
            at = at[step]
        if at:
            at["."] = {}
    return tree


def read(tree: Mapping[str, Any]) -> Fields:
    """The set that a `fieldsV1` holds."""
    return frozenset(_read(tree, ()))


def _read(tree: Mapping[str, Any], at: Path) -> Iterator[Path]:
    for step, below in tree.items():
        if step == ".":
            yield at
            continue
        path = (*at, step)
        if not below:
            yield path
        else:
            yield from _read(below, path)


ZEROES = frozenset({
    "paused", "minReadySeconds", "initialDelaySeconds", "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce",
    "tty", "readOnly", "subPath", "stringData", "hostname", "priorityClassName", "nodeName",
})  # fmt: skip
"""Fields whose zero is as if they were not there; those that a server keeps as pointers show their zeroes."""


def without_empty(shape: FieldShape, value: Any) -> Any:
    """The value without empty maps and lists, and zeroes: Go leaves them out of what it writes. Structs stay."""
    if not isinstance(value, Mapping):
        return value
    kept = {}
    for name, child in value.items():
        below = shape.of_field(name)
        is_zero = name in ZEROES and not child and shape.form == "struct"
        if is_zero or child == [] or (child == {} and below.form == "map"):
            continue
        if isinstance(child, list) and below.form == "list":
            kept[name] = [without_empty(below.item or below, item) for item in child]
        else:
            kept[name] = without_empty(below, child) if below.form == "struct" else child
    return kept
