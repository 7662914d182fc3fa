"""The last state of the cluster by the watches and our own writes: objects by uid, as JSON bytes, with three indexes.

It decides nothing and sends no requests. Objects are kept as bytes, since a parsed document takes five times as much
memory; of their managed fields only those entries are kept that hold a Deployment's replicas. Invariants:

- an older version of an object never replaces a newer one, from any source, and a deleted object does not return;
- an event is a change or not: an echo of our own write, and a known version, give no key; neither do unused fields
  (managed fields, or the status of a Deployment that has no pods and is to have none).
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate_operator.model.kinds import (
    COUNTER,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    QUEUE,
    Document,
    is_at_rest,
)
from headgate_operator.model.names import GROUP, Key, KeyKind, namespace_key

TOMBSTONES_MAX: Final = 20_000
"""The number of deleted objects that are remembered, the latest ones."""
ENDED: Final = str(2**64)
"""Later than any version: an object that was deleted never comes back under its uid."""
RESOURCES: Final[Mapping[str, KeyKind]] = {QUEUE.kind: "Queue", COUNTER.kind: "Counter"}
NOISY: Final = ("kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision")
"""Annotations that repeat the document, or that a controller of Kubernetes keeps for itself."""
FAILING: Final = (("ReplicaFailure", "True"), ("Progressing", "False"))


@dataclass(frozen=True)
class ObjectPlace:
    """Where an object is, by the words of its own document."""

    kind: str
    namespace: str
    name: str


@dataclass
class _Object:
    place: ObjectPlace
    version: str
    generation: int
    deleting: bool
    owners: tuple[str, ...]
    body: bytes
    """A digest without the version, to recognize changes of the version alone."""

    def read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        document["metadata"]["resourceVersion"] = self.version
        return document


@dataclass(frozen=True)
class CacheChange:
    """A change that was not known."""

    keys: frozenset[Key]
    """The keys that it concerns."""
    first: bool
    """The object was not known at all."""
    related: frozenset[Key] = frozenset()
    """Those of them that neither are the object nor own it."""


class ObjectCache:
    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}
        self._by_place: dict[ObjectPlace, str] = {}
        self._by_owner: defaultdict[str, set[str]] = defaultdict(set)
        self._by_namespace: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._tombstones: OrderedDict[str, str] = OrderedDict()
        """At which version each was deleted, or lost our label."""
        self._leads_to: dict[tuple[str, str], frozenset[str]] = {}
        self._led_from: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    # ---- updates

    def update(self, document: Document, *, deleted: bool = False) -> CacheChange | None:
        """Take a version of an object from a watch, a list or our own write. None: it is no change."""
        metadata = document["metadata"]
        uid = str(metadata["uid"])
        version = str(metadata.get("resourceVersion", ""))
        if deleted:
            known = self._objects.get(uid)
            if known is not None and _is_older(version, known.version):
                return None  # it had lost our label, and a later write of ours has restored it
            return self._remove(uid, document)
        if uid in self._tombstones:
            if is_newer(self._tombstones[uid], version):
                return None
            del self._tombstones[uid]  # it had only lost our label
        known = self._objects.get(uid)
        if known is not None and not is_newer(version, known.version):
            return None
        body = _body(document)
        if known is not None and known.body == body:
            known.version = version
            return None
        keys = self._keys_before(known) | frozenset(self._keys_of(document))
        self._put(uid, document, version, body)
        related = frozenset(self._related_keys(document, known))
        return CacheChange(keys | related, first=known is None, related=related)

    def forget(self, uid: str) -> CacheChange | None:
        """The object is not there any more, as a list or an answer showed."""
        known = self._objects.get(uid)
        return None if known is None else self._remove(uid, known.read())

    def end(self, uid: str) -> CacheChange | None:
        """An answer showed that the object was deleted: later events of a watch about it are older."""
        change = self.forget(uid)
        self._remember_tombstone(uid, ENDED)
        return change

    # ---- being asked

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        uid = self._by_place.get(ObjectPlace(kind, namespace, name))
        return None if uid is None else self.of_uid(uid)

    def of_uid(self, uid: str) -> dict[str, Any] | None:
        known = self._objects.get(uid)
        return None if known is None else known.read()

    def is_there(self, uid: str) -> bool:
        return uid in self._objects

    def which(self, kind: str, namespace: str, name: str) -> tuple[str, str]:
        """Uid of the object at a place, and what changes with its spec or its end; empty where there is none."""
        uid = self._by_place.get(ObjectPlace(kind, namespace, name), "")
        known = self._objects.get(uid)
        return (uid, f"{known.generation}{' ends' * known.deleting}") if known is not None else ("", "")

    def version_of(self, uid: str) -> str | None:
        known = self._objects.get(uid)
        return None if known is None else known.version

    def children_of(self, uid: str) -> list[dict[str, Any]]:
        """The objects of that owner, in the order of kinds and names."""
        uids = sorted(self._by_owner.get(uid, ()), key=lambda each: _order(self._objects[each]))
        return [self._objects[each].read() for each in uids]

    def in_namespace(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        uids = sorted(self._by_namespace.get((kind, namespace), ()), key=lambda each: _order(self._objects[each]))
        return [self._objects[each].read() for each in uids]

    def names_in(self, kind: str, namespace: str) -> list[str]:
        return sorted(self._objects[uid].place.name for uid in self._by_namespace.get((kind, namespace), ()))

    def keys_in(self, namespace: str) -> list[Key]:
        return [
            Key(kind, namespace, name) for word, kind in RESOURCES.items() for name in self.names_in(word, namespace)
        ]

    def keys(self) -> Iterator[Key]:
        """Of all resources, and of all namespaces that have one."""
        for place in list(self._by_place):
            if place.kind in RESOURCES:
                yield Key(RESOURCES[place.kind], place.namespace, place.name)
        for namespace in sorted(self.namespaces()):
            yield namespace_key(namespace)

    def namespaces(self) -> set[str]:
        """Those that have resources, or something of ours that was left there."""
        return {namespace for (_, namespace), uids in self._by_namespace.items() if uids and namespace}

    def dead_letters_of(self, namespace: str, queue: str) -> frozenset[str]:
        """The queues that this one names for its dead letters."""
        return self._leads_to.get((namespace, queue), frozenset())

    def named_by(self, namespace: str, queue: str) -> frozenset[str]:
        return frozenset(self._led_from.get((namespace, queue), ()))

    def uids_of(self, kind: str) -> dict[str, str]:
        """Every object of a kind: uid and version."""
        return {uid: known.version for uid, known in self._objects.items() if known.place.kind == kind}

    def __len__(self) -> int:
        return len(self._objects)

    # ---- within

    def _put(self, uid: str, document: Document, version: str, body: bytes) -> None:
        self._take_out(uid)
        metadata = document["metadata"]
        place = place_of(document)
        before = self._by_place.get(place)
        if before is not None:  # recreated under its name before its deletion was reported
            self._remember_tombstone(before, self._objects[before].version)
            self._take_out(before)
        owners = tuple(str(owner["uid"]) for owner in metadata.get("ownerReferences") or ())
        generation, deleting = int(metadata.get("generation") or 0), bool(metadata.get("deletionTimestamp"))
        self._objects[uid] = _Object(place, version, generation, deleting, owners, body)
        self._by_place[place] = uid
        self._by_namespace[(place.kind, place.namespace)].add(uid)
        for owner in owners:
            self._by_owner[owner].add(uid)
        if place.kind == QUEUE.kind:
            self._lead(place, _dead_letters(document))

    def _take_out(self, uid: str) -> None:
        known = self._objects.pop(uid, None)
        if known is None:
            return
        self._by_place.pop(known.place, None)
        _discard(self._by_namespace, (known.place.kind, known.place.namespace), uid)
        for owner in known.owners:
            _discard(self._by_owner, owner, uid)
        if known.place.kind == QUEUE.kind:
            self._lead(known.place, frozenset())

    def _lead(self, place: ObjectPlace, names: frozenset[str]) -> None:
        queue = (place.namespace, place.name)
        for name in self._leads_to.pop(queue, frozenset()):
            _discard(self._led_from, (place.namespace, name), place.name)
        if names:
            self._leads_to[queue] = names
        for name in names:
            self._led_from[(place.namespace, name)].add(place.name)

    def _remove(self, uid: str, document: Document) -> CacheChange | None:
        known = self._objects.get(uid)
        self._remember_tombstone(uid, str(document["metadata"].get("resourceVersion", "")))
        if known is None:
            return None
        keys = self._keys_before(known) | frozenset(self._keys_of(document))
        related = self._related_keys_of_removed(known.place)
        self._take_out(uid)
        return CacheChange(keys | related, first=False, related=related)

    def _remember_tombstone(self, uid: str, version: str) -> None:
        self._tombstones[uid] = version
        while len(self._tombstones) > TOMBSTONES_MAX:
            self._tombstones.popitem(last=False)

    def _keys_before(self, known: _Object | None) -> frozenset[Key]:
        """An owner that was taken off an object is concerned as well."""
        return frozenset() if known is None else frozenset(self._keys_of(json.loads(known.body)))

    def _keys_of(self, document: Document) -> Iterator[Key]:
        """The resource itself, or whose child it is, else its namespace."""
        kind = str(document["kind"])
        metadata = document["metadata"]
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        if kind in RESOURCES:
            yield Key(RESOURCES[kind], namespace, name)
        elif kind == NAMESPACE.kind:
            yield from self._keys_of_namespace(document, name)
        elif kind == CRD.kind:
            yield from (key for key in self.keys() if key.kind == "Queue")  # Spark's: no other is watched
        else:
            owners = [
                Key(RESOURCES[str(owner["kind"])], namespace, str(owner["name"]))
                for owner in metadata.get("ownerReferences") or ()
                if owner.get("kind") in RESOURCES and str(owner.get("apiVersion", "")).startswith(f"{GROUP}/")
            ]
            yield from owners or [namespace_key(namespace)]

    def _keys_of_namespace(self, document: Document, name: str) -> Iterator[Key]:
        if not terminates(document):
            if (QUEUE.kind, name) in self._by_namespace or (COUNTER.kind, name) in self._by_namespace:
                yield namespace_key(name)
            return
        yield namespace_key(name)
        yield from self.keys_in(name)

    def _related_keys(self, document: Document, known: _Object | None) -> Iterator[Key]:
        """The other keys that a new or changed spec of a resource concerns."""
        metadata = document["metadata"]
        if document["kind"] not in RESOURCES:
            return
        unchanged = known is not None and known.generation == int(metadata.get("generation") or 0)
        if unchanged and not metadata.get("deletionTimestamp"):
            return
        yield from self._related_keys_of_removed(place_of(document))

    def _related_keys_of_removed(self, place: ObjectPlace) -> frozenset[Key]:
        if place.kind not in RESOURCES:
            return frozenset()
        related = {namespace_key(place.namespace)}
        if place.kind == QUEUE.kind:
            related |= {Key("Queue", place.namespace, name) for name in self.named_by(place.namespace, place.name)}
        return frozenset(related)


def place_of(document: Document) -> ObjectPlace:
    metadata = document["metadata"]
    return ObjectPlace(str(document["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


def terminates(namespace: Document) -> bool:
    return bool(
        namespace["metadata"].get("deletionTimestamp") or namespace.get("status", {}).get("phase") == "Terminating"
    )


def is_newer(version: str, known: str) -> bool:
    """Whether a resourceVersion is later than another. Versions that are no numbers are only compared for
    equality."""
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known


def _is_older(version: str, known: str) -> bool:
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _body(document: Document) -> bytes:
    return json.dumps(_lean(document), separators=(",", ":"), sort_keys=True).encode()


def _lean(document: Document) -> dict[str, Any]:
    """Without what nobody here asks for."""
    metadata = dict(document["metadata"])
    metadata.pop("resourceVersion", None)
    fields = metadata.pop("managedFields", None)
    if fields is not None and document["kind"] == DEPLOYMENT.kind:  # an empty list: the replicas have no owner
        metadata["managedFields"] = [
            {**entry, "fieldsV1": {"f:spec": {"f:replicas": {}}}} for entry in fields if _has_replicas(entry)
        ]
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name not in NOISY}
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    if document["kind"] == CRD.kind:  # that it is there is all that matters, and it is large
        return {"apiVersion": document.get("apiVersion"), "kind": CRD.kind, "metadata": metadata}
    lean = {**document, "metadata": metadata}
    if document["kind"] == DEPLOYMENT.kind and is_at_rest(document) and not _fails(document):
        lean.pop("status", None)
    return lean


def _fails(deployment: Document) -> bool:
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"]) in FAILING for one in conditions)


def _has_replicas(entry: Mapping[str, Any]) -> bool:
    return "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})


def _dead_letters(queue: Document) -> frozenset[str]:
    """Whatever is written there, valid or not."""
    spec = queue.get("spec")
    if not isinstance(spec, Mapping):
        return frozenset()
    consumers = spec.get("consumers")
    blocks = [spec, *(consumers if isinstance(consumers, list) else ())]
    named = (block.get("deadLetter") for block in blocks if isinstance(block, Mapping))
    return frozenset(name for name in named if isinstance(name, str))


def _order(known: _Object) -> tuple[str, str]:
    return known.place.kind, known.place.name


def _discard(index: defaultdict[Any, set[str]], key: Any, value: str) -> None:
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]
