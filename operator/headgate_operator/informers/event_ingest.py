"""Turns events of watches into objects in `ObjectCache` and keys in the work queue. It decides how urgent a key is,
and nothing else.

Echoes of our own writes give no key: `wrote` passes the answer to `ObjectCache`. If the watch is faster than the
answer, its events of an object that is being written wait until the answer shows which of them were ours (`writing`).
An object that cannot be taken in does not block others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from headgate_operator.informers.object_cache import (
    RESOURCES,
    CacheChange,
    ObjectCache,
    ObjectPlace,
    place_of,
    terminates,
)
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import CRD, NAMESPACE, Document
from headgate_operator.model.names import Key

log = logging.getLogger("headgate.operator")


_LEAST: Final = Class.RESYNC


@dataclass(frozen=True)
class _Waiting:
    """News of an object that is being written, at a version that may be ours."""

    version: str
    change: CacheChange
    class_: Class


class EventIngest:
    """The door through which the cluster's news come."""

    def __init__(self, cache: ObjectCache, queue: WorkQueue) -> None:
        self._cache = cache
        self._queue = queue
        self._written: Counter[ObjectPlace] = Counter()
        self._waiting: dict[ObjectPlace, list[_Waiting]] = {}

    def changed(self, document: Document, *, listed: bool = False) -> None:
        with _by_itself(document):
            self._take(document, listed=listed)

    def deleted(self, document: Document) -> None:
        with _by_itself(document):
            class_ = Class.CHILD if is_child(document) else Class.CHANGED
            self._add(self._cache.update(document, deleted=True), class_)

    @contextmanager
    def writing(self, at: ObjectPlace) -> Iterator[None]:
        """While a write of ours to an object is not answered, its events wait."""
        self._written[at] += 1
        try:
            yield
        finally:
            self._written[at] -= 1
            if not self._written[at]:
                del self._written[at]
                for each in self._waiting.pop(at, ()):
                    self._add(each.change, each.class_)

    def wrote(self, document: Document) -> None:
        """The answer to a write of our own, or to a read: its caller checks again anyhow. Other keys may learn of a
        foreign change only by it, since the later event of the watch is no change any more."""
        self._add_related(self._cache.update(document))
        at, version = place_of(document), _version_of(document)
        waiting = self._waiting.get(at)
        if waiting is not None:
            self._waiting[at] = [each for each in waiting if each.version != version]

    def gone(self, uid: str) -> None:
        """An answer showed that the object is gone: its caller checks again anyhow."""
        self._add_related(self._cache.end(uid))

    def lost(self, uid: str) -> None:
        """A list showed that an object is gone, and no watch has reported it."""
        self._add(self._cache.forget(uid), Class.CHANGED)

    def _take(self, document: Document, *, listed: bool) -> None:
        change, class_ = self._cache.update(document), urgency_of(document, listed=listed)
        at = place_of(document)
        if change is not None and at in self._written:
            self._waiting.setdefault(at, []).append(_Waiting(_version_of(document), change, class_))
        else:
            self._add(change, class_)

    def _add(self, change: CacheChange | None, class_: Class) -> None:
        if change is None:
            return
        for key in change.keys:
            self._queue.add(key, class_)

    def _add_related(self, change: CacheChange | None) -> None:
        for key in change.related if change is not None else ():
            self._queue.add(key, Class.CHANGED)

    def resync(self, key: Key) -> None:
        """Reconcile it again, without an event."""
        self._queue.add(key, _LEAST)


@contextmanager
def _by_itself(document: Document) -> Iterator[None]:
    """The watch continues with the next one."""
    try:
        yield
    except Exception:
        metadata = document.get("metadata") or {}
        at = f"{document.get('kind')} {metadata.get('namespace')}/{metadata.get('name')}"
        log.exception("bug in reading a watch, please report it", extra={"object": at})


def is_child(document: Document) -> bool:
    return str(document["kind"]) not in (*RESOURCES, NAMESPACE.kind, CRD.kind)


def urgency_of(document: Document, *, listed: bool) -> Class:
    """A restart lists a thousand resources that are as they should be: a fresh change among them does not wait."""
    if str(document["kind"]) not in RESOURCES:
        if listed and not terminates(document):
            return Class.RESYNC
        return Class.CHILD if is_child(document) else Class.CHANGED
    metadata = document["metadata"]
    observed = (document.get("status") or {}).get("observedGeneration")
    if observed is None:
        return Class.NEW
    if metadata.get("deletionTimestamp") or observed != metadata.get("generation"):
        return Class.CHANGED
    return Class.RESYNC if listed else Class.CHANGED


def _version_of(document: Document) -> str:
    return str(document["metadata"].get("resourceVersion", ""))
