"""The decision about the end of an installation, per resource: refused, released, removed, or waited for.

Only an operator drops data, and only for an existing resource that requests it. So an operator must not go while a
resource has `deletionPolicy: Delete`: no process would be left to drop the data, and the finalizer would hold the
resource, and its namespace, for ever. Under Retain a finalizer that is left is removed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate_operator.model.kinds import COUNTER, QUEUE, Document, ObjectAddress
from headgate_operator.model.names import FINALIZER, GROUP

OF_A_TEST: Final = f"{GROUP}/helm-test"
"""Label of resources of `helm test`: they go with the installation, whatever their policy."""
RETAIN: Final = "Retain"
NAMED_MAX: Final = 5


@dataclass(frozen=True)
class UninstallPlan:
    refused: tuple[str, ...] = ()
    """Resources whose data are to go with them: nothing is done while there is one."""
    ending: tuple[str, ...] = ()
    """Those that are being deleted with their data: the operator is needed until they are gone."""
    release: tuple[Document, ...] = ()
    remove: tuple[Document, ...] = ()


def decide_leaving(resources: Iterable[Document], *, remove: bool) -> UninstallPlan:
    """The decision about all resources of the cluster; with `remove` they go, and their data stay."""
    refused, ending, release, removed = [], [], [], []
    for document in resources:
        metadata = document["metadata"]
        holds = FINALIZER in (metadata.get("finalizers") or ())
        drops = (document.get("spec") or {}).get("deletionPolicy", RETAIN) != RETAIN
        if metadata.get("deletionTimestamp"):
            if holds and drops:
                ending.append(_format_resource(document))
            elif holds:
                release.append(document)
        elif OF_A_TEST in (metadata.get("labels") or {}):
            removed.append(document)
        elif drops:
            refused.append(_format_resource(document))
        else:
            if holds:
                release.append(document)
            if remove:
                removed.append(document)
    return UninstallPlan(tuple(sorted(refused)), tuple(sorted(ending)), tuple(release), tuple(removed))


def address_of_resource(document: Document) -> ObjectAddress:
    kind = QUEUE if document["kind"] == QUEUE.kind else COUNTER
    return ObjectAddress(kind, str(document["metadata"]["namespace"]), str(document["metadata"]["name"]))


def without_finalizer(document: Document) -> Document:
    """The change that lets it go, at the version that was seen: lists are replaced as a whole."""
    metadata = document["metadata"]
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [each for each in metadata["finalizers"] if each != FINALIZER],
        }
    }


def format_few(names: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    shown = list(names)
    more = f" and {len(shown) - NAMED_MAX} more" if len(shown) > NAMED_MAX else ""
    return ", ".join(shown[:NAMED_MAX]) + more


def format_leftover(document: Document) -> str:
    """An object that should be gone, with the finalizers of others that hold it."""
    holds = document["metadata"].get("finalizers") or ()
    return _format_resource(document) + (f" (held by {', '.join(holds)})" if holds else "")


def _format_resource(document: Document) -> str:
    metadata = document["metadata"]
    return f"{str(document['kind']).lower()} {metadata['namespace']}/{metadata['name']}"
