"""Cells and rows, and which of two writes wins. Pure, and neither ever changes once it is made.

The rules are those of Cassandra 5.0 (Cells.resolveRegular, LivenessInfo.supersedes, DeletionTime.supersedes): the
higher timestamp wins; at equal timestamps an expiring or deleted cell beats a permanent one, a tombstone beats an
expiring cell, a later end beats an earlier one, and larger bytes beat smaller ones, unsigned. The first four fields
of a cell are in just that order, so that the tuple comparison is the rule. The current time plays no part, so all
replicas agree at any time.

Immutability makes the simulation cheap: replicas share the row that the coordinator created, a read returns rows
instead of copies, and two replicas that agree mostly hold the very same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.store.model.types import Value

LIVE, EXPIRING, TOMBSTONE = 0, 1, 2
"""Kinds of cell, in the order in which they win at equal timestamps."""

OrderKey = tuple[Any, ...]
"""The clustering key of a row as something that sorts as Cassandra sorts it."""


class Cell(NamedTuple):
    """A value and its write time; a row's marker is a cell without a value. `gone_s` is 0 for a permanent cell."""

    timestamp_us: int
    kind: int
    gone_s: int
    encoded: bytes
    value: Value
    ttl_s: int

    def is_live(self, now_s: int) -> bool:
        return self.kind == LIVE or (self.kind == EXPIRING and now_s < self.gone_s)


class Deletion(NamedTuple):
    """Everything written at or before the timestamp is gone; `at_s` is the time of the deletion, for the purge."""

    timestamp_us: int
    at_s: int


def live_cell(timestamp_us: int, encoded: bytes, value: Value) -> Cell:
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


def purged(cell: Cell, now_s: int, gc_before_s: int) -> Cell | None:
    """The rest of a cell after a purge. An expired one counts as deleted since it was written, as in Cassandra."""
    if cell.is_live(now_s) or cell.gone_s - cell.ttl_s >= gc_before_s:
        return cell
    return None


class Row(NamedTuple):
    """The state of a row at one replica, or in one write. The static cells of a partition are a row without a
    marker."""

    clustering: tuple[Value, ...]
    marker: Cell | None
    deletion: Deletion | None
    cells: Mapping[str, Cell]

    def is_live(self, now_s: int) -> bool:
        """Whether a reader of that second sees a row: by its marker, or by any cell."""
        marker = self.marker
        if marker is not None and (marker.kind == LIVE or marker.is_live(now_s)):
            return True
        return any(cell.is_live(now_s) for cell in self.cells.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it, not even a tombstone."""
        return self.marker is None and self.deletion is None and not self.cells

    def value(self, name: str, now_s: int) -> Value:
        cell = self.cells.get(name)
        if cell is None or not (cell.kind == LIVE or cell.is_live(now_s)):
            return None
        return cell.value

    def written_us(self, name: str, now_s: int) -> int | None:
        """When the column was written, if it holds anything."""
        cell = self.cells.get(name)
        return cell.timestamp_us if cell is not None and cell.is_live(now_s) else None


def merge_rows(left: Row, right: Row) -> Row:
    """The merged state of both. The cells of one that the deletion of the other covers are gone."""
    if left is right:
        return left
    deletion = later(left.deletion, right.deletion)
    if left.marker is None or right.marker is None:
        marker = left.marker or right.marker
    else:
        marker = reconcile(left.marker, right.marker)
    cells = dict(left.cells)
    for name, cell in right.cells.items():
        known = cells.get(name)
        cells[name] = cell if known is None or known is cell else reconcile(known, cell)
    merged = Row(left.clustering, marker, deletion, cells)
    return merged if deletion is None else _without_covered(merged, deletion.timestamp_us)


def shadowed(row: Row, timestamp_us: int) -> Row:
    """The rest of a row after a deletion of the whole range or partition."""
    deletion = row.deletion
    if deletion is not None and deletion.timestamp_us <= timestamp_us:
        row = row._replace(deletion=None)
    return _without_covered(row, timestamp_us)


def _without_covered(row: Row, timestamp_us: int) -> Row:
    marker = row.marker
    if marker is not None and marker.timestamp_us <= timestamp_us:
        marker = None
    if any(cell.timestamp_us <= timestamp_us for cell in row.cells.values()):
        cells = {name: cell for name, cell in row.cells.items() if cell.timestamp_us > timestamp_us}
        return Row(row.clustering, marker, row.deletion, cells)
    return row if marker is row.marker else row._replace(marker=marker)


def purged_row(row: Row, now_s: int, gc_before_s: int) -> Row:
    """The rest after dropping everything that was deleted, or had expired, before a given time."""
    deletion = row.deletion
    if deletion is not None and deletion.at_s < gc_before_s:
        deletion = None
    marker = row.marker
    if marker is not None and marker.gone_s < gc_before_s and not marker.is_live(now_s):
        marker = None
    kept = {name: purged(cell, now_s, gc_before_s) for name, cell in row.cells.items()}
    cells = {name: cell for name, cell in kept.items() if cell is not None}
    if deletion is row.deletion and marker is row.marker and len(cells) == len(row.cells):
        return row
    return Row(row.clustering, marker, deletion, cells)


def oldest_end_s(row: Row) -> int | None:
    """A second before which nothing of it can be purged yet; None if nothing of it ever can."""
    ends = [cell[2] - cell[5] for cell in row.cells.values() if cell[1]]  # gone_s - ttl_s of a cell that is not live
    if row.marker is not None and row.marker.kind != LIVE:
        ends.append(row.marker.gone_s)
    if row.deletion is not None:
        ends.append(row.deletion.at_s)
    return min(ends, default=None)
