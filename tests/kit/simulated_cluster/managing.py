"""The managers of an object's fields, by the rules of server-side apply. Pure.

- An apply owns the fields of its document. A field of another owner that would get another value is a conflict; with
  force it is taken.
- A field that the same manager applied before and leaves out now is removed, unless another owns it too.
- Another write (PUT, merge patch) owns the fields that it changes, and takes them without a conflict.
- A manager is identified by name, by whether it applies, and by subresource.
- A subresource owns nothing outside of it, and the main resource nothing within.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tests.kit.simulated_cluster.fields import (
    NONE,
    Fields,
    Path,
    compare,
    fields_of,
    is_below,
    merge,
    read,
    shown,
    with_named,
    without,
    written,
)
from tests.kit.simulated_cluster.shapes import FieldShape

Object = Mapping[str, Any]

STRIPPED: Final[frozenset[Path]] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName",
        )
    }
)  # fmt: skip
"""Fields that no manager owns."""


@dataclass(frozen=True)
class Manager:
    """An owner of fields, and its way of writing."""

    name: str
    operation: Literal["Apply", "Update"]
    subresource: str
    api_version: str


@dataclass(frozen=True)
class Managed:
    """The fields of one manager, and since when."""

    manager: Manager
    fields: Fields
    time: str


@dataclass(frozen=True)
class Clash:
    """A field that somebody else owns."""

    manager: Manager
    path: Path

    @property
    def text(self) -> str:
        """The managers that it conflicts with."""
        where = f' with subresource "{self.manager.subresource}"' if self.manager.subresource else ""
        using = f" using {self.manager.api_version}" if self.manager.operation == "Update" else ""
        return f'conflict with "{self.manager.name}"{where}{using}'


def read_managed(document: Object) -> tuple[Managed, ...]:
    """The managers of an object."""
    entries = document.get("metadata", {}).get("managedFields") or ()
    return tuple(
        Managed(
            Manager(each["manager"], each["operation"], each.get("subresource", ""), each["apiVersion"]),
            read(each["fieldsV1"]),
            each["time"],
        )
        for each in entries
    )


def write_managed(managed: Sequence[Managed]) -> list[dict[str, Any]]:
    """As `managedFields`: appliers first, then by time."""
    ordered = sorted(managed, key=lambda one: (one.manager.operation, one.time, one.manager.name))
    return [
        {
            "manager": one.manager.name,
            "operation": one.manager.operation,
            "apiVersion": one.manager.api_version,
            "time": one.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": written(one.fields),
        }
        | ({"subresource": one.manager.subresource} if one.manager.subresource else {})
        for one in ordered
    ]


def owned(fields: Fields, manager: Manager) -> Fields:
    """Those of the fields that can be owned, by this manager."""
    mine = frozenset(path for path in fields if path not in STRIPPED)
    if manager.subresource == "status":
        return frozenset(path for path in mine if path[0] == "f:status")
    return frozenset(path for path in mine if path[0] != "f:status")


@dataclass(frozen=True)
class Merged:
    """An object after an apply, and its owners."""

    document: Object
    managed: tuple[Managed, ...]


def apply_as_first(shape: FieldShape, applied: Object, manager: Manager, *, now: str) -> tuple[Managed, ...]:
    """The owners of an object that is created by an apply."""
    return tuple(_held([Managed(manager, owned(fields_of(shape, applied), manager), now)]))


def apply(
    shape: FieldShape, live: Object, applied: Object, manager: Manager, *, now: str, force: bool
) -> Merged | tuple[Clash, ...]:
    """The object with the document applied, and its owners; or the conflicts."""
    before = read_managed(live) or _before_first_apply(shape, live, manager, now=now)
    mine = next((one for one in before if one.manager == manager), None)
    others = [one for one in before if one.manager != manager]
    wanted = owned(fields_of(shape, applied), manager)
    changed = owned(compare(shape, live, merge(shape, live, applied)).changed, manager)
    clashes = tuple(Clash(one.manager, path) for one in others for path in sorted(one.fields & changed))
    if clashes and not force:
        return clashes
    kept = [replace(one, fields=one.fields - changed) for one in others]
    made = merge(shape, live, applied)
    if mine is not None:
        everybody = wanted.union(*(one.fields for one in others))
        gone = with_named(shape, mine.fields) - with_named(shape, everybody)
        made = without(shape, made, gone)
    removed = compare(shape, live, made).removed
    kept = [replace(one, fields=frozenset(p for p in one.fields if p not in removed)) for one in kept]
    time = mine.time if mine is not None and mine.fields == wanted else now
    return Merged(made, (*_held(kept), *_held([Managed(manager, wanted, time)])))


def _before_first_apply(shape: FieldShape, live: Object, manager: Manager, *, now: str) -> tuple[Managed, ...]:
    """An object that nobody owns anything of is taken to have been written otherwise, by somebody, before."""
    somebody = Manager("before-first-apply", "Update", "", manager.api_version)
    fields = owned(compare(shape, {"metadata": {}}, live).changed, somebody)
    return tuple(_held([Managed(somebody, fields, now)]))


def update(shape: FieldShape, live: Object, new: Object, manager: Manager, *, now: str) -> tuple[Managed, ...]:
    """The owners after another kind of write."""
    before = read_managed(live)
    difference = compare(shape, live, new)
    changed = owned(difference.changed, manager)
    gone = difference.removed
    entries = []
    for one in before:
        fields = frozenset(path for path in one.fields if not is_below(path, gone)) if gone else one.fields
        entries.append(replace(one, fields=fields - changed if one.manager != manager else fields))
    mine = next((one for one in entries if one.manager == manager), Managed(manager, NONE, now))
    fields = mine.fields | changed
    unchanged = any(one.manager == manager and one.fields == fields for one in before)
    others = [one for one in entries if one.manager != manager]
    return (*_held(others), *_held([Managed(manager, fields, mine.time if unchanged else now)]))


def _held(managed: Sequence[Managed]) -> list[Managed]:
    return [one for one in managed if one.fields]


def clash_message(clashes: Sequence[Clash]) -> str:
    """The server's message about conflicts."""
    if len(clashes) == 1:
        return f"Apply failed with 1 conflict: {clashes[0].text}: {shown(clashes[0].path)}"
    lines = [f"Apply failed with {len(clashes)} conflicts:"]
    for text in dict.fromkeys(clash.text for clash in clashes):
        lines.append(text.replace("conflict with", "conflicts with", 1) + ":")
        lines += [f"- {shown(clash.path)}" for clash in clashes if clash.text == text]
    return lines[0] + " " + "\n".join(lines[1:])
