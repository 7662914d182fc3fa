"""Rows: a marker, a deletion and cells, merged column by column. Pure, and a row never changes once it is made.

Their immutability makes the simulation cheap: replicas share the row that the coordinator created, a read returns
rows instead of copies, and two replicas that agree mostly hold the very same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.store.memory.cells import EXPIRING, LIVE, Cell, Deletion, Purge, later, reconcile
from headgate.store.model.types import Value

OrderKey = tuple[Any, ...]
"""The clustering key of a row as something that sorts as Cassandra sorts it."""


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
        """The value of a column for a reader in that second."""
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


def purged_row(row: Row, purge: Purge) -> Row:
    """The rest after a purge."""
    deletion = None if row.deletion is not None and purge.takes_deletion(row.deletion) else row.deletion
    marker = None if row.marker is not None and purge.takes_marker(row.marker) else row.marker
    cells = {name: cell for name, cell in row.cells.items() if not purge.takes(cell)}
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
    return min(ends) if ends else None


def least_timestamp_us(row: Row, written_from_s: int) -> int | None:
    """The least timestamp of its cells that expire and were written in that second or later."""
    written = [cell for cell in (row.marker, *row.cells.values()) if cell is not None and cell.kind == EXPIRING]
    return min((cell.timestamp_us for cell in written if cell.gone_s - cell.ttl_s >= written_from_s), default=None)
