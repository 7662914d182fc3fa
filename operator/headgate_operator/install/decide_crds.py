"""The decision about a CustomResourceDefinition when this version is installed: created, replaced, or kept.

Helm creates the CRDs of a chart once and never changes them again, so the chart has a Job do it (decision 13). Pure:
the definitions are built from the models of this very image, so that they fit the operator that runs from it.

A newer definition is left as it is: after a rollback the older operator reads it, since fields are only ever
added, while under an older definition the API server would cut off fields of newer resources. One in which objects
are stored in a version that this release does not have is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.api.generate.schemas import KINDS, PLURALS, build_crd
from headgate.api.resources.model import GROUP, kind_of
from headgate_operator.model.kinds import Document

VERSION: Final = f"{GROUP}/version"
"""Annotation: the release that the definition is of."""
NAMES: Final = tuple(f"{PLURALS[kind_of(model)]}.{GROUP}" for model in KINDS)

Do = Literal["make", "replace", "leave", "refuse"]


@dataclass(frozen=True)
class CrdStep:
    do: Do
    message: str
    document: Document | None = None
    """To be made, or to be put in its place."""


def definitions(version: str) -> tuple[Document, ...]:
    return tuple(_marked(build_crd(model), version) for model in KINDS)


def decide_crd(live: Document | None, wanted: Document) -> CrdStep:
    """One definition: `live` as the server has it."""
    if live is None:
        return CrdStep("make", "is created", wanted)
    ours, theirs = _version(wanted), _version(live)
    version_text = f"of version {theirs}" if theirs else "of an unknown version"
    stored = set((live.get("status") or {}).get("storedVersions") or ())
    lost = sorted(stored - {each["name"] for each in wanted["spec"]["versions"]})
    if theirs and _parts(theirs) > _parts(ours):
        return CrdStep("leave", f"is kept: it is {version_text}, newer than this version ({ours})")
    if lost:
        return CrdStep("refuse", f"has objects stored as {', '.join(lost)}, which version {ours} cannot read")
    if live["metadata"].get("deletionTimestamp"):
        return CrdStep("refuse", "is being deleted; install again after that")
    if theirs == ours and _contains(live["spec"], wanted["spec"]):
        return CrdStep("leave", f"is up to date with version {ours}")
    return CrdStep("replace", f"is updated to version {ours}; it was {version_text}", _in_place(live, wanted))


def _marked(document: Document, version: str) -> Document:
    metadata = document["metadata"]
    annotations = {**(metadata.get("annotations") or {}), VERSION: version}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _in_place(live: Document, wanted: Document) -> Document:
    """Fields of others outside of the spec stay; the whole spec is ours, so that removed fields are gone."""
    kept = {name: live["metadata"][name] for name in ("name", "uid", "resourceVersion")}
    annotations = {**(live["metadata"].get("annotations") or {}), **wanted["metadata"]["annotations"]}
    labels = {"labels": live["metadata"]["labels"]} if live["metadata"].get("labels") else {}
    return {**wanted, "metadata": {**kept, **labels, "annotations": annotations}}


def _contains(live: Any, wanted: Any) -> bool:
    """Whether the server has all that is wanted; what it adds by itself does not count."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_contains(live.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(live) != len(wanted):
            return False
        return all(_contains(ours, theirs) for ours, theirs in zip(live, wanted, strict=True))
    return bool(live == wanted)


def _version(document: Document) -> str:
    return str((document["metadata"].get("annotations") or {}).get(VERSION, ""))


def _parts(version: str) -> tuple[int, ...]:
    """So that 0.10 is newer than 0.9; what is no number ends it."""
    number = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in number[0].split(".")) if number else ()
