"""The differences between a live object and the applied document: paths, with the live values.

Fields that others have added, or that the server filled in, are ignored: only fields of the applied document are
compared. Lists whose items have a key are compared item by item in any order; all others in their order. Quantities
are compared by their meaning (0.1 is 100m), and an empty value (false, 0, an empty text, list or map) equals an
absent field, since the server leaves such fields out.

Such a comparison cannot find that a field is no longer applied. So each document carries a digest of itself as an
annotation (`stamped`): if a field was removed, the digests differ.

Pure. It knows how the API server writes things back, and nothing of what the fields mean.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from headgate_operator.manifests.strategic_merge import is_keyed, key_of
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import APPLIED

STAMP_PATH: Final = f"metadata.annotations[{APPLIED}]"
_AMOUNTS: Final = frozenset(("requests", "limits", "capacity", "hard"))
_AMOUNT: Final = frozenset(("sizeLimit", "divisor", "storage"))
QUANTITY_LENGTH_MAX: Final = 64
"""A longer text is no amount: the expression would try each way to divide its digits."""
CANDIDATES_MAX: Final = 8
"""Items of one key that are compared with an item."""
_MAPS_BY_KEY: Final = frozenset(("annotations", "labels", "matchLabels", "nodeSelector", "data", *_AMOUNTS))
"""Maps whose keys are not fields: they may hold dots."""
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+))(m|u|n|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?"
)
_PLAIN: Final = frozenset((str, int, float, bool))
_SUFFIXES: Final = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip


def differences(applied: Document, live: Document) -> dict[str, Any]:
    """The paths at which the live object differs from the applied document, with its values (None: absent)."""
    differing: dict[str, Any] = {}
    for name, value in applied.items():
        if name not in ("apiVersion", "kind"):  # items of a list do not have them
            _compare(value, live.get(name), _Where(name, name), differing)
    return differing


def stamped(document: Document) -> dict[str, Any]:
    metadata = dict(document["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), APPLIED: digest_of(document)}
    return {**document, "metadata": metadata}


def stamp_of(document: Document) -> str | None:
    annotations = document.get("metadata", {}).get("annotations") or {}
    digest = annotations.get(APPLIED)
    return None if digest is None else str(digest)


def digest_of(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()[:16]


def quantity(value: object) -> Decimal | None:
    """The value of a written amount, or None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    written = str(value)
    match = _QUANTITY.fullmatch(written) if len(written) <= QUANTITY_LENGTH_MAX else None
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    if suffix in _SUFFIXES:
        return Decimal(number) * _SUFFIXES[suffix]
    try:
        return Decimal(number + suffix)
    except InvalidOperation:
        return None


class _Where:
    """A field, by its own name and as people write the way to it."""

    __slots__ = ("name", "parent", "path")

    def __init__(self, path: str, name: str, parent: str = "") -> None:
        self.path, self.name, self.parent = path, name, parent

    def field(self, name: str) -> _Where:
        path = f"{self.path}[{name}]" if self.name in _MAPS_BY_KEY else f"{self.path}.{name}"
        return _Where(path, name, self.name)

    def item(self, key: object) -> _Where:
        return _Where(f"{self.path}[{key}]", "", self.name)

    @property
    def is_amount(self) -> bool:
        return self.parent in _AMOUNTS or self.name in _AMOUNT


def _compare(applied: Any, live: Any, where: _Where, differing: dict[str, Any]) -> None:
    if isinstance(applied, Mapping) and (live is None or isinstance(live, Mapping)):
        there: Mapping[str, Any] = live or {}
        for name, value in applied.items():
            other = there.get(name)
            if type(value) is not type(other) or type(value) not in _PLAIN or value != other:
                _compare(value, other, where.field(name), differing)
    elif isinstance(applied, list | tuple) and (live is None or isinstance(live, list | tuple)):
        _compare_lists(applied, live or (), where, differing)
    elif not _same(applied, live, where):
        differing[where.path] = live


def _compare_lists(applied: Sequence[Any], live: Sequence[Any], where: _Where, differing: dict[str, Any]) -> None:
    keys = _keys(where.name, applied)
    if keys is not None:
        there: dict[Hashable, list[Any]] = {}
        for other in live:
            there.setdefault(_key(where.name, other), []).append(other)
        met: dict[Hashable, int] = {}
        for item, key in zip(applied, keys, strict=True):
            same = there.get(key)
            if same:
                first = met.get(key, 0)
                met[key] = first + 1
                _compare_best(item, same, where.item(key[0]), differing, first)
            else:
                differing[where.item(key[0]).path] = None
    elif len(applied) != len(live):
        differing[where.path] = list(live) or None
    else:
        for index, (item, other) in enumerate(zip(applied, live, strict=True)):
            _compare(item, other, where.item(index), differing)


def _keys(name: str, items: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    if not is_keyed(name, items):
        return None
    keys = [key for item in items if (key := _key(name, item)) is not None]
    return keys if len(keys) == len(items) else None


def _key(name: str, item: Any) -> tuple[Any, ...] | None:
    """Of texts and numbers alone: whatever else a person wrote there is no key."""
    key = key_of(name, item)
    return key if key is not None and all(isinstance(part, str | int) for part in key) else None


def _compare_best(item: Any, candidates: Sequence[Any], where: _Where, differing: dict[str, Any], first: int) -> None:
    """With the one that differs least: in some lists the server identifies items by more fields than we do. The
    server keeps their order, so the search begins in the same place (`first`). It ends after `CANDIDATES_MAX`, else a
    list of one key a thousand times would be a million comparisons."""
    closest: dict[str, Any] | None = None
    for step in range(min(len(candidates), CANDIDATES_MAX)):
        differences: dict[str, Any] = {}
        _compare(item, candidates[(first + step) % len(candidates)], where, differences)
        if closest is None or len(differences) < len(closest):
            closest = differences
        if not closest:
            return
    differing.update(closest or {})


def _same(applied: Any, live: Any, where: _Where) -> bool:
    if live is None:
        return applied is None or (not isinstance(applied, Mapping) and not applied)
    if applied == live and isinstance(applied, bool) == isinstance(live, bool):
        return True
    if not where.is_amount:
        return False
    amount = quantity(applied)
    return amount is not None and amount == quantity(live)
