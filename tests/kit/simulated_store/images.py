"""The answers of replicas to reads: what each holds of a partition, how answers merge, and what a replica lacks.

Pure. An answer has deletions as well as rows, and leaves out what can be purged, as Cassandra does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.store.memory.partition import Cut, Image, Partition, PartitionUpdate, Span
from headgate.store.memory.rows import Deletion, OrderKey, Row, purged_row


@dataclass(slots=True)
class ReplicaImage(Image):
    """One replica's state of a part of a partition. `truncated` if more rows may follow the last one."""

    deletion: Deletion | None = None
    ranges: Mapping[Span, Deletion] = field(default_factory=dict)
    truncated: bool = False


EMPTY = ReplicaImage(None, [], [])


class SimulatedPartition(Partition):
    """A partition whose answers can be merged with those of other replicas."""

    __slots__ = ()

    def replica_image(self, cut: Cut, gc_before_s: int) -> ReplicaImage:
        """The answer of this replica: without purgeable data, which Cassandra leaves out of answers as well."""
        purging = self.oldest_end_s is not None and self.oldest_end_s < gc_before_s
        keys: list[OrderKey] = []
        rows: list[Row] = []
        live = 0
        truncated = False
        for key in self._keys_of(cut):
            row = self.rows[key]
            if purging:
                row = purged_row(row, cut.now_s, gc_before_s)
                if row.is_empty:
                    continue
            if cut.limit is not None:
                if live >= cut.limit:
                    truncated = True
                    break
                live += row.is_live(cut.now_s)
            keys.append(key)
            rows.append(row)
        ranges = self._ranges_of(cut, keys[-1] if truncated else None) if self.ranges else {}
        if not purging:
            return ReplicaImage(self.static, keys, rows, self.deletion, ranges, truncated)
        static = purged_row(self.static, cut.now_s, gc_before_s) if self.static is not None else None
        return ReplicaImage(
            static if static is not None and not static.is_empty else None,
            keys,
            rows,
            None if self.deletion is None or self.deletion.at_s < gc_before_s else self.deletion,
            {span: deletion for span, deletion in ranges.items() if deletion.at_s >= gc_before_s},
            truncated,
        )

    def _ranges_of(self, cut: Cut, end: OrderKey | None) -> dict[Span, Deletion]:
        """Deletions that touch the requested part, up to the last row of a truncated answer, and no others: a read of
        one row must not copy the state of the next one to another replica."""
        if cut.points is not None:
            return {
                span: deletion for span, deletion in self.ranges.items() if any(span.holds(at) for at in cut.points)
            }
        ranges = {span: deletion for span, deletion in self.ranges.items() if touch(span, cut.span)}
        return _up_to(ranges, end, cut.backwards)


def touch(one: Span, other: Span) -> bool:
    """Whether some row could be within both."""
    return not (_ends_before(one, other) or _ends_before(other, one))


def _ends_before(one: Span, other: Span) -> bool:
    if one.upper is None or other.lower is None:
        return False
    length = min(len(one.upper), len(other.lower))
    upper, lower = one.upper[:length], other.lower[:length]
    if upper != lower:
        return upper < lower
    return not (one.upper_inclusive and other.lower_inclusive) and len(one.upper) == len(other.lower)


def images_agree(images: list[ReplicaImage]) -> bool:
    """Whether replicas gave the same answer, as their digests would show."""
    first = images[0]
    return all(
        image.rows == first.rows
        and image.static == first.static
        and image.deletion == first.deletion
        and image.ranges == first.ranges
        for image in images[1:]
    )


def merge_images(images: list[ReplicaImage], backwards: bool) -> ReplicaImage:
    """The merged state of the replicas, as far as all of them have answered: to the earliest end of a truncated
    answer."""
    whole = SimulatedPartition()
    for image in images:
        rows = dict(zip(image.keys, image.rows, strict=True))
        whole.apply(PartitionUpdate(image.deletion, dict(image.ranges), image.static, rows))
    keys = list(reversed(whole.keys)) if backwards else whole.keys
    ends = [image.keys[-1] for image in images if image.truncated]
    ranges = whole.ranges
    if ends:
        end = max(ends) if backwards else min(ends)
        keys = [key for key in keys if (key >= end if backwards else key <= end)]
        ranges = _up_to(ranges, end, backwards)
    return ReplicaImage(whole.static, keys, [whole.rows[key] for key in keys], whole.deletion, ranges, bool(ends))


def _up_to(ranges: dict[Span, Deletion], end: OrderKey | None, backwards: bool) -> dict[Span, Deletion]:
    """Those that begin before the end of a truncated answer."""
    if end is None:
        return ranges
    whole = Span(lower=end) if backwards else Span(upper=end)
    return {span: deletion for span, deletion in ranges.items() if touch(span, whole)}


def missing_from(
    image: ReplicaImage, merged: ReplicaImage, queried: frozenset[str] | None = None
) -> PartitionUpdate | None:
    """The update that would have made a replica with this image answer the merged one, within the requested part;
    None if it lacks nothing. Markers and deletions are always sent, cells of unqueried columns never are."""
    known: dict[OrderKey, Row] = dict(zip(image.keys, image.rows, strict=True))
    update = PartitionUpdate()
    if merged.deletion != image.deletion:
        update.deletion = merged.deletion
    update.ranges = {span: deletion for span, deletion in merged.ranges.items() if image.ranges.get(span) != deletion}
    if merged.static is not None and merged.static != image.static:
        update.static = _queried(merged.static, queried)
        if update.static.is_empty:
            update.static = None
    for key, row in zip(merged.keys, merged.rows, strict=True):
        held: Any = known.get(key)
        if held is not row and held != row:
            repaired = _queried(row, queried)
            if repaired is row or not repaired.is_empty:
                update.rows[key] = repaired
    return update if update.rows or update.static or update.deletion or update.ranges else None


def _queried(row: Row, queried: frozenset[str] | None) -> Row:
    if queried is None or all(name in queried for name in row.cells):
        return row
    return row._replace(cells={name: cell for name, cell in row.cells.items() if name in queried})
