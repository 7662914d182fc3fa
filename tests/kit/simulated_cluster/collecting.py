"""Kubernetes' garbage collector and its controller of namespaces, for one server.

- An object all of whose owners are gone is deleted; a reference to one that is gone is taken out where another lives.
- Foreground: the owner stays until those that block its deletion are gone. Orphan: they stay, without the reference.
- A namespace that is being deleted loses all that is in it, and goes once that is gone; finalizers hold it.

It checks all objects a while after a deletion (as the real ones, which lag), until there is nothing to do. It writes
through the server, as any client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import EVENT, NAMESPACE, ResourceKind
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_cluster.writing import FOREGROUND, ORPHAN

Object = Mapping[str, Any]

DELAY_S: Final = (0.05, 0.5)
MANAGER: Final = {"fieldManager": "kube-controller-manager"}


class GarbageCollector:
    """Collects what is left over on one server."""

    def __init__(self, server: ApiServer, later: Callable[[Callable[[], object]], object]) -> None:
        """`later` has a function called after a while."""
        self._server = server
        self._later = later
        self._waits = False
        server.when_written(self._written)

    def _written(self, entry: WriteEntry) -> None:
        metadata = entry.document["metadata"]
        matters = entry.type == "DELETED" or "deletionTimestamp" in metadata
        if entry.type == "ADDED" and metadata.get("ownerReferences"):
            matters = True
        if matters and not self._waits:
            self._waits = True
            self._later(self.collect)

    def collect(self) -> None:
        """Do what is to be done now; what that brings about is done later."""
        self._waits = False
        alive = {one["metadata"]["uid"]: one for _, one in self._server.all()}
        for kind, document in list(self._owned()):
            self._check_owners(kind, document, alive)
        for kind, document in list(self._server.all()):
            self._release(kind, document)
        for _, namespace in list(self._server.all(NAMESPACE)):
            if namespace["metadata"].get("deletionTimestamp"):
                self._empty(namespace["metadata"]["name"])

    def _owned(self) -> Iterator[tuple[ResourceKind, Object]]:
        for kind, document in self._server.all():
            if document["metadata"].get("ownerReferences"):
                yield kind, document

    def _check_owners(self, kind: ResourceKind, document: Object, alive: Mapping[str, Object]) -> None:
        owners = document["metadata"]["ownerReferences"]
        there = [one for one in owners if one["uid"] in alive]
        solid = [one for one in there if not _waits_for_dependents(alive[one["uid"]])]
        if not solid:
            if not there or all(FOREGROUND in _finalizers(alive[one["uid"]]) for one in there):
                self._delete(kind, document)
        elif len(there) < len(owners) or len(solid) < len(there):
            self._patch(kind, document, {"ownerReferences": solid})

    def _release(self, kind: ResourceKind, document: Object) -> None:
        metadata = document["metadata"]
        if not metadata.get("deletionTimestamp"):
            return
        finalizers = metadata.get("finalizers") or []
        dependents = [
            (one, child) for one, child in self._owned() if metadata["uid"] in _owner_uids(child["metadata"])
        ]
        if ORPHAN in finalizers:
            for one, child in dependents:
                left = [owner for owner in child["metadata"]["ownerReferences"] if owner["uid"] != metadata["uid"]]
                self._patch(one, child, {"ownerReferences": left})
            self._patch(kind, document, {"finalizers": [one for one in finalizers if one != ORPHAN]})
        elif FOREGROUND in finalizers and not any(_blocks(child, metadata["uid"]) for _, child in dependents):
            self._patch(kind, document, {"finalizers": [one for one in finalizers if one != FOREGROUND]})

    def _empty(self, namespace: str) -> None:
        for kind, document in list(self._server.all(namespace=namespace)):
            if not document["metadata"].get("deletionTimestamp"):
                self._delete(kind, document)
        if all(kind is EVENT for kind, _ in self._server.all(namespace=namespace)):
            self._server.finish_namespace(namespace)

    def _delete(self, kind: ResourceKind, document: Object) -> None:
        metadata = document["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        options = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        self._server.answer(ApiRequest("delete", kind, metadata.get("namespace"), metadata["name"], body=options))

    def _patch(self, kind: ResourceKind, document: Object, change: Object) -> None:
        metadata = document["metadata"]
        body = {"metadata": {**change, "uid": metadata["uid"]}}
        self._server.answer(
            ApiRequest("patch", kind, metadata.get("namespace"), metadata["name"], query=MANAGER, body=body)
        )


def _finalizers(document: Object) -> list[str]:
    return list(document["metadata"].get("finalizers") or ())


def _waits_for_dependents(document: Object) -> bool:
    return bool(document["metadata"].get("deletionTimestamp")) and FOREGROUND in _finalizers(document)


def _owner_uids(metadata: Object) -> set[str]:
    return {one["uid"] for one in metadata.get("ownerReferences") or ()}


def _blocks(child: Object, owner: str) -> bool:
    owners = child["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == owner and one.get("blockOwnerDeletion") for one in owners)
