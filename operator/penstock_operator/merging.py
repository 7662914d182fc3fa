"""Strategic merge patches: a user's patch onto a document of ours, merged as `kubectl patch` merges it.

Maps merge field by field, null removes a field. A list merges by the key of its items where KEYS has one for it
(containers by name, mounts by path, ports by number); any other list is taken as a whole. `$patch: replace` takes the
patch instead of what was there, `$patch: delete` removes a map or an item of a list, an item that is nothing but
`$patch: replace` replaces its whole list, `$retainKeys` keeps those fields alone.

In one thing it does more than the API server: of fields of which there may be only one (`value` and `valueFrom` of a
variable, the ways to probe, the source of a volume) the patch's choice takes ours away; the server would merge both,
and then refuse the pod.

Pure. It knows which lists merge by what, and nothing else of what the fields mean. Neither argument is changed.
Invariants: `merge(base, {}) == base`; merging a patch twice is merging it once; what a patch says is in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.errors import SpecError

Document = Mapping[str, Any]

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
"""By what the items of a list are told apart, by the list's name."""
_UNSAID: Final = {"protocol": "TCP"}
"""What part of a key is where an item does not say it."""

_RIVALS: Final = (
    frozenset(("value", "valueFrom")),
    frozenset(("exec", "httpGet", "tcpSocket", "grpc", "sleep")),
)
"""Fields of one map of which only one may be set."""
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"


class PatchInvalid(SpecError):
    """The patch can not be merged."""


def merge(base: Document, patch: Document) -> dict[str, Any]:
    """The document with the patch merged into it; PatchInvalid names the field that can not be."""
    return _merge_map(base, patch, "")


def key_of(field: str, item: object) -> tuple[Any, ...] | None:
    """What tells an item of this list from the others; None if its list has no such thing, or the item lacks it."""
    names = KEYS.get(field)
    if names is None or not isinstance(item, Mapping):
        return None
    if len(names) == 1:
        only = item.get(names[0])
        return None if only is None else (only,)
    key = tuple(item.get(name, _UNSAID.get(name)) for name in names)
    return None if None in key else key


def is_keyed(field: str, items: Sequence[Any]) -> bool:
    """Whether a list of this name and with such items merges item by item. (SparkApplications have lists of texts
    that are named as pods' lists of maps.)"""
    return field in KEYS and all(isinstance(item, Mapping) for item in items)


def _merge_map(base: Document, patch: Document, path: str) -> dict[str, Any]:
    unknown = [name for name in patch if name.startswith("$") and name not in (_DIRECTIVE, _RETAIN)]
    if unknown:
        raise PatchInvalid(f"{path or 'the patch'}: {unknown[0]} is not understood; $patch and $retainKeys are")
    directive = _directive(patch, path)
    if directive == "delete":
        return {}
    merged = {} if directive == "replace" else dict(base)
    said = {name: value for name, value in patch.items() if not name.startswith("$")}
    if _RETAIN in patch:
        merged = {name: value for name, value in merged.items() if name in _retained(patch, path)}
    for rivals in _RIVALS:
        if chosen := {name for name in rivals if said.get(name) is not None}:
            merged = {name: value for name, value in merged.items() if name not in rivals or name in chosen}
    for name, value in said.items():
        if value is None or (isinstance(value, Mapping) and value.get(_DIRECTIVE) == "delete"):
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(name, merged.get(name), value, f"{path}.{name}".lstrip("."))
    return merged


def _merge_value(field: str, base: Any, value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        if base is not None and not isinstance(base, Mapping):
            raise PatchInvalid(f"{path}: holds no fields of its own")
        return _merge_map(base or {}, value, path)
    if isinstance(value, Sequence) and not isinstance(value, str):
        if base is not None and not isinstance(base, list | tuple):
            raise PatchInvalid(f"{path}: is not a list")
        return _merge_list(field, base or (), value, path) if is_keyed(field, value) else _copied(value)
    if isinstance(base, Mapping | list | tuple):
        raise PatchInvalid(f"{path}: must be a {'map' if isinstance(base, Mapping) else 'list'}")
    return value


def _merge_list(field: str, base: Sequence[Any], patch: Sequence[Document], path: str) -> list[Any]:
    replaces = any(dict(item) == {_DIRECTIVE: "replace"} for item in patch)
    merged = [] if replaces else [_copied(item) for item in base]
    for index, item in enumerate(patch):
        if dict(item) == {_DIRECTIVE: "replace"}:
            continue
        key = key_of(field, item)
        if key is None:
            raise PatchInvalid(f"{path}[{index}]: needs {KEYS[field][0]}, by which items of this list are merged")
        here = f"{path}[{key[0]}]"
        places = [place for place, known in enumerate(merged) if key_of(field, known) == key]
        if _directive(item, here) == "delete":
            merged = [known for place, known in enumerate(merged) if place not in places]
        elif places:
            merged[places[0]] = _merge_map(_beside(field, merged[places[0]], item), item, here)
        else:
            merged.append(_merge_map({}, item, here))
    return merged


def _beside(field: str, base: Document, patch: Document) -> Document:
    """What stays of an item beside its patch: a volume that is given a source has no other."""
    chosen = {name for name, value in patch.items() if value is not None and not name.startswith("$")} - {"name"}
    if field != "volumes" or not chosen:
        return base
    return {name: value for name, value in base.items() if name == "name" or name in chosen}


def _directive(patch: Document, path: str) -> str:
    found = patch.get(_DIRECTIVE, "merge")
    if found not in ("merge", "replace", "delete"):
        raise PatchInvalid(f"{path or 'the patch'}: $patch must be replace, delete or merge")
    return str(found)


def _retained(patch: Document, path: str) -> Sequence[Any]:
    names = patch[_RETAIN]
    if not isinstance(names, list | tuple):
        raise PatchInvalid(f"{path or 'the patch'}: $retainKeys must be a list")
    return names


def _copied(value: Any) -> Any:
    """Shares nothing with the original that could be changed."""
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner) for inner in value]
    return value
