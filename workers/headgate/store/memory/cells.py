"""Cells, markers and deletions, and which of two wins. Pure.

The rules are those of Cassandra 5.0 (Cells.resolveRegular, LivenessInfo.supersedes, DeletionTime.supersedes): the
higher timestamp wins; at equal timestamps an expiring or deleted cell beats a permanent one, a tombstone beats an
expiring cell, a later end beats an earlier one, and larger bytes beat smaller ones, unsigned. The first four fields
of a cell are in just that order, so that the tuple comparison is the rule. The current time plays no part, so all
replicas agree at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from headgate.store.model.types import Value

LIVE, EXPIRING, TOMBSTONE = 0, 1, 2
"""Kinds of cell, in the order in which they win at equal timestamps."""


class Cell(NamedTuple):
    """A value and its write time; a row's marker is a cell without a value. `gone_s` is 0 for a permanent cell."""

    timestamp_us: int
    kind: int
    gone_s: int
    encoded: bytes
    value: Value
    ttl_s: int

    def is_live(self, now_s: int) -> bool:
        """Whether a reader of that second sees it."""
        return self.kind == LIVE or (self.kind == EXPIRING and now_s < self.gone_s)


class Deletion(NamedTuple):
    """Everything written at or before the timestamp is gone; `at_s` is the time of the deletion, for the purge."""

    timestamp_us: int
    at_s: int


def live_cell(timestamp_us: int, encoded: bytes, value: Value) -> Cell:
    """A cell that stays."""
    return Cell(timestamp_us, LIVE, 0, encoded, value, 0)


def expiring_cell(timestamp_us: int, encoded: bytes, value: Value, now_s: int, ttl_s: int) -> Cell:
    """A cell that expires by itself, in a second fixed by the coordinator's clock when the request came."""
    return Cell(timestamp_us, EXPIRING, now_s + ttl_s, encoded, value, ttl_s)


def tombstone_cell(timestamp_us: int, now_s: int) -> Cell:
    """The cell that null writes."""
    return Cell(timestamp_us, TOMBSTONE, now_s, b"", None, 0)


def reconcile(left: Cell, right: Cell) -> Cell:
    """Of two writes of one cell, or of one marker, the one that counts."""
    if left[0] != right[0]:
        return left if left[0] > right[0] else right
    return left if left[:4] >= right[:4] else right


def later(left: Deletion | None, right: Deletion | None) -> Deletion | None:
    """Of two deletions of the same object, the one that covers more."""
    if left is None or right is None:
        return left or right
    return left if left >= right else right


class Purge(NamedTuple):
    """What a purge drops: what was deleted, or has expired, and was written before a second and a timestamp."""

    now_s: int
    gc_before_s: int
    below_us: int | None = None
    """The least timestamp of what overlaps in the partition: a tombstone at or above it may still cover some of that.
    None in an answer, which a tombstone that may be purged is left out of."""

    def takes(self, cell: Cell) -> bool:
        """Whether a cell goes. An expired one counts as deleted since it was written, as in Cassandra."""
        if cell.is_live(self.now_s) or cell.gone_s - cell.ttl_s >= self.gc_before_s:
            return False
        return self.below_us is None or cell.timestamp_us < self.below_us

    def takes_marker(self, marker: Cell) -> bool:
        """Whether the marker of a row goes."""
        if marker.is_live(self.now_s) or marker.gone_s >= self.gc_before_s:
            return False
        return self.below_us is None or marker.timestamp_us < self.below_us

    def takes_deletion(self, deletion: Deletion) -> bool:
        """Whether a deletion goes."""
        if deletion.at_s >= self.gc_before_s:
            return False
        return self.below_us is None or deletion.timestamp_us < self.below_us
