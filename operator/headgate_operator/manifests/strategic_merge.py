"""Strategic merge patches: a user's patch onto a document of ours, merged as `kubectl patch` merges it.

Maps merge field by field, null removes a field. A list merges by the key of its items where KEYS has one for it
(containers by name, mounts by path, ports by number); any other list is taken as a whole. `$patch: replace` takes the
patch instead of what was there, `$patch: delete` removes a map or an item of a list, an item that is nothing but
`$patch: replace` replaces its whole list, `$retainKeys` keeps those fields alone.

In one thing it does more than the API server: of fields of which there may be only one (`value` and `valueFrom` of a
variable, the ways to probe, the source of a volume) the patch's choice removes ours; the server would merge both,
and then refuse the pod.

Pure. It knows the merge keys of lists, and nothing else about fields. Neither argument is changed. Its cost is linear
in the size of the two documents: items are found by key, and nothing is copied twice. Invariants: `merge(base, {}) ==
base`; merging a patch twice is merging it once; all values of a patch are in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from headgate.errors import InvalidRequest
from headgate_operator.model.kinds import Document

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "ownerReferences": ("uid",),
}
"""The merge keys of lists, by the list's name."""
_UNSAID: Final = {"protocol": "TCP"}
"""Default values of parts of a key."""

_RIVALS: Final = (
    frozenset(("value", "valueFrom")),
    frozenset(("exec", "httpGet", "tcpSocket", "grpc", "sleep")),
)
"""Fields of one map of which only one may be set."""
_GONE: Final = object()
_MAPS: Final = (dict, Mapping)
"""A plain map is found to be one ten times faster than by `Mapping` alone."""
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"


class PatchInvalid(InvalidRequest):
    """The patch cannot be merged."""


def merge(base: Document, patch: Document) -> dict[str, Any]:
    """The document with the patch merged into it; PatchInvalid names a field that cannot be merged."""
    merged = _copied(base)
    _merge_map(merged, patch, "")
    return dict(_finished(merged))


def key_of(field: str, item: object) -> tuple[Any, ...] | None:
    """The key of an item; None if its list has none, or the item lacks it."""
    names = KEYS.get(field)
    if names is None or not isinstance(item, _MAPS):
        return None
    if len(names) == 1:
        only = item.get(names[0])
        return (only,) if isinstance(only, str | int) else None
    key = tuple(item.get(name, _UNSAID.get(name)) for name in names)
    return key if all(isinstance(part, str | int) for part in key) else None


def is_keyed(field: str, items: Sequence[Any]) -> bool:
    """Whether a list of this name and with such items merges item by item. (SparkApplications have lists of texts
    that are named as pods' lists of maps.)"""
    return field in KEYS and all(isinstance(item, _MAPS) for item in items)


class _Items:
    """A list that is merged item by item: places are found by key, so that a long list costs what it holds."""

    def __init__(self, field: str, items: Sequence[Any]) -> None:
        self._field = field
        self._items: list[Any] = []
        self._places: dict[tuple[Any, ...], list[int]] = {}
        for item in items:
            self.append(key_of(field, item), item)

    def append(self, key: tuple[Any, ...] | None, item: Any) -> None:
        """At the end; None: nothing finds it."""
        if key is not None:
            self._places.setdefault(key, []).append(len(self._items))
        self._items.append(item)

    def first(self, key: tuple[Any, ...]) -> dict[str, Any] | None:
        """The first item of a key, to be changed in its place."""
        places = self._places.get(key)
        item: dict[str, Any] | None = self._items[places[0]] if places else None
        return item

    def remove(self, key: tuple[Any, ...]) -> None:
        """All items of a key."""
        for place in self._places.pop(key, ()):
            self._items[place] = _GONE

    def left(self) -> list[Any]:
        return [item for item in self._items if item is not _GONE]


def _merge_map(merged: dict[str, Any], patch: Document, path: str) -> None:
    """Into a map that is ours to change."""
    unknown = [name for name in patch if name.startswith("$") and name not in (_DIRECTIVE, _RETAIN)]
    if unknown:
        raise PatchInvalid(f"{path or 'the patch'}: {unknown[0]} is not supported, but $patch and $retainKeys are")
    directive = _directive(patch, path)
    if directive != "merge":
        merged.clear()
    if directive == "delete":
        return
    fields = {name: value for name, value in patch.items() if not name.startswith("$")}
    if _RETAIN in patch:
        _keep(merged, _retained(patch, path))
    for rivals in _RIVALS:
        if not rivals.isdisjoint(fields) and (chosen := {name for name in rivals if fields.get(name) is not None}):
            for name in rivals - chosen:
                merged.pop(name, None)
    for name, value in fields.items():
        if value is None or (isinstance(value, Mapping) and value.get(_DIRECTIVE) == "delete"):
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(name, merged.get(name), value, f"{path}.{name}".lstrip("."))


def _merge_value(field: str, base: Any, value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        if base is not None and not isinstance(base, dict):
            raise PatchInvalid(f"{path}: holds no fields of its own")
        inner: dict[str, Any] = {} if base is None else base
        _merge_map(inner, value, path)
        return inner
    if isinstance(value, Sequence) and not isinstance(value, str):
        if base is not None and not isinstance(base, list | _Items):
            raise PatchInvalid(f"{path}: is not a list")
        return _merge_list(field, base or (), value, path) if is_keyed(field, value) else _copied(value)
    if isinstance(base, dict | list | _Items):
        raise PatchInvalid(f"{path}: must be a {'map' if isinstance(base, dict) else 'list'}")
    return value


def _merge_list(field: str, base: _Items | Sequence[Any], patch: Sequence[Document], path: str) -> _Items:
    if any(dict(item) == {_DIRECTIVE: "replace"} for item in patch):
        base = ()
    merged = base if isinstance(base, _Items) else _Items(field, base)
    for index, item in enumerate(patch):
        if dict(item) == {_DIRECTIVE: "replace"}:
            continue
        key = key_of(field, item)
        if key is None:
            raise PatchInvalid(f"{path}[{index}]: needs {KEYS[field][0]}, the merge key of this list")
        item_path = f"{path}[{key[0]}]"
        if _directive(item, item_path) == "delete":
            merged.remove(key)
            continue
        known = merged.first(key)
        if known is None:
            known = {}
            merged.append(key, known)
        elif field == "volumes":
            _drop_other_sources(known, item)
        _merge_map(known, item, item_path)
    return merged


def _drop_other_sources(base: dict[str, Any], patch: Document) -> None:
    """The fields of a volume that stay next to its patch: one that gets a source has no other."""
    chosen = {name for name, value in patch.items() if value is not None and not name.startswith("$")} - {"name"}
    if chosen:
        _keep(base, {"name", *chosen})


def _keep(base: dict[str, Any], names: Set[str]) -> None:
    for name in [name for name in base if name not in names]:
        del base[name]


def _directive(patch: Document, path: str) -> str:
    directive = patch.get(_DIRECTIVE, "merge")
    if directive not in ("merge", "replace", "delete"):
        raise PatchInvalid(f"{path or 'the patch'}: $patch must be replace, delete or merge")
    return str(directive)


def _retained(patch: Document, path: str) -> Set[str]:
    names = patch[_RETAIN]
    if not isinstance(names, list | tuple):
        raise PatchInvalid(f"{path or 'the patch'}: $retainKeys must be a list")
    return {name for name in names if isinstance(name, str)}


def _copied(value: Any) -> Any:
    """Shares nothing with the original that could be changed."""
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner) for inner in value]
    return value


def _finished(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finished(inner) for name, inner in value.items()}
    if isinstance(value, _Items):
        return [_finished(item) for item in value.left()]
    return value
