"""The writes in order: the history that watches read, and its compaction.

It knows neither the watchers nor the network.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate_operator.model.kinds import ResourceKind
from tests.kit.simulated_cluster.selecting import Selector


@dataclass(frozen=True)
class WriteEntry:
    """One write."""

    version: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    kind: ResourceKind
    document: Mapping[str, Any]
    old: Mapping[str, Any] | None


class Log:
    """The writes of one server."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.oldest = version
        """Nothing at or before this version can be read any more."""
        self._entries: list[WriteEntry] = []

    def next_version(self) -> int:
        """The version of the write that comes now."""
        self.version += 1
        return self.version

    def add(self, entry: WriteEntry) -> None:
        """Keep it."""
        self._entries.append(entry)

    def compact(self, keep: int) -> None:
        """Forget all but the last entries."""
        gone = self._entries[: max(0, len(self._entries) - keep)]
        if gone:
            self.oldest = gone[-1].version
            del self._entries[: len(gone)]

    def after(self, version: int) -> Iterator[WriteEntry]:
        """The writes after that version, in order."""
        yield from self._entries[bisect_right(self._entries, version, key=lambda entry: entry.version) :]


def event_of(
    entry: WriteEntry, kind: ResourceKind, namespace: str | None, selector: Selector
) -> dict[str, Any] | None:
    """The event of a write for a watch, if any: an object that no longer meets its selector is deleted for it."""
    if entry.kind != kind or (namespace and entry.document["metadata"].get("namespace") != namespace):
        return None
    was = entry.old is not None and selector.selects(entry.old)
    is_now = entry.type != "DELETED" and selector.selects(entry.document)
    if not was and not is_now:
        return None
    type_ = "DELETED" if not is_now else "MODIFIED" if was else "ADDED"
    document = entry.document
    if type_ == "DELETED" and entry.type != "DELETED" and entry.old is not None:
        version = entry.document["metadata"]["resourceVersion"]
        document = {**entry.old, "metadata": {**entry.old["metadata"], "resourceVersion": version}}
    return {"type": type_, "object": document}
