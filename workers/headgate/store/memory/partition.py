"""A partition as one replica holds it, and the images of it that reads carry about. Pure.

Writes come as `PartitionUpdate`s: any of a deletion of the partition, deletions of ranges, static cells, and rows.
Covered data is removed at once. The deletion itself stays until it is purged, and continues to cover older data that
comes late. After the purge nothing remembers it: that is how deleted data comes back from a replica that was down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate.store.memory.cells import Deletion, Purge, later
from headgate.store.memory.rows import (
    OrderKey,
    Row,
    least_timestamp_us,
    merge_rows,
    oldest_end_s,
    purged_row,
    shadowed,
)


class Span(NamedTuple):
    """A run of rows between two prefixes of the clustering key; None is open."""

    lower: OrderKey | None = None
    lower_inclusive: bool = True
    upper: OrderKey | None = None
    upper_inclusive: bool = True

    def holds(self, key: OrderKey) -> bool:
        """Whether a row of that key is within."""
        if self.lower is not None:
            head = key[: len(self.lower)]
            if head < self.lower or (head == self.lower and not self.lower_inclusive):
                return False
        if self.upper is not None:
            head = key[: len(self.upper)]
            if self.upper < head or (head == self.upper and not self.upper_inclusive):
                return False
        return True

    def touches(self, other: Span) -> bool:
        """Whether some row could be within both."""
        return not (_ends_before(self, other) or _ends_before(other, self))


def _ends_before(one: Span, other: Span) -> bool:
    if one.upper is None or other.lower is None:
        return False
    length = min(len(one.upper), len(other.lower))
    upper, lower = one.upper[:length], other.lower[:length]
    if upper != lower:
        return upper < lower
    return not (one.upper_inclusive and other.lower_inclusive) and len(one.upper) == len(other.lower)


EVERYTHING = Span()


@dataclass(slots=True)
class PartitionUpdate:
    """The effect of one write on one partition of one table."""

    deletion: Deletion | None = None
    ranges: dict[Span, Deletion] = field(default_factory=dict)
    static: Row | None = None
    rows: dict[OrderKey, Row] = field(default_factory=dict)
    _end_s: tuple[int | None] | None = None

    def earliest_end_s(self) -> int | None:
        """A second before which no cell of it can be purged; reckoned once for all replicas, when it is applied."""
        if self._end_s is None:
            rows = self.rows.values() if self.static is None else (*self.rows.values(), self.static)
            ends = [end_s for row in rows if (end_s := oldest_end_s(row)) is not None]
            self._end_s = (min(ends) if ends else None,)
        return self._end_s[0]

    @property
    def is_empty(self) -> bool:
        """Whether it does nothing: the proposal of a rejected LWT, or of a serial read."""
        return not (self.rows or self.static or self.deletion or self.ranges)


@dataclass(slots=True)
class Image:
    """One replica's state of a slice of a partition. `truncated` if more rows may follow the last one."""

    deletion: Deletion | None
    ranges: Mapping[Span, Deletion]
    static: Row | None
    keys: list[OrderKey]
    rows: list[Row]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a partition that a read covers. A limit counts live rows of the second `now_s`."""

    span: Span
    backwards: bool
    limit: int | None
    now_s: int
    gc_before_s: int
    points: tuple[OrderKey, ...] | None = None
    """Rows by their keys, instead of a span."""


class SimulatedPartition:
    """Rows in order, and the deletions that cover them."""

    __slots__ = ("deletion", "keys", "oldest_end_s", "ranges", "rows", "static")

    def __init__(self) -> None:
        self.deletion: Deletion | None = None
        self.ranges: dict[Span, Deletion] = {}
        self.static: Row | None = None
        self.rows: dict[OrderKey, Row] = {}
        self.keys: list[OrderKey] = []
        self.oldest_end_s: int | None = None

    def apply(self, update: PartitionUpdate) -> None:
        """Merge a write."""
        if update.deletion is not None:
            self._delete_all(update.deletion)
        for span, deletion in update.ranges.items():
            self._delete_range(span, deletion)
        if update.static is not None:
            self._write_static(update.static)
        end_s = update.earliest_end_s()
        if end_s is not None:
            self._note_end(end_s)
        for key, row in update.rows.items():
            self._write_row(key, row)

    def _delete_all(self, deletion: Deletion) -> None:
        self.deletion = later(self.deletion, deletion)
        self._note_end(deletion.at_s)
        self.ranges = {
            span: known for span, known in self.ranges.items() if known.timestamp_us > deletion.timestamp_us
        }
        if self.static is not None:
            static = shadowed(self.static, deletion.timestamp_us)
            self.static = None if static.is_empty else static
        self._shadow(self.keys, deletion.timestamp_us)

    def _delete_range(self, span: Span, deletion: Deletion) -> None:
        if self.deletion is not None and deletion.timestamp_us <= self.deletion.timestamp_us:
            return
        self.ranges[span] = later(self.ranges.get(span), deletion) or deletion
        self._note_end(deletion.at_s)
        self._shadow(self._keys_within(span), deletion.timestamp_us)

    def _shadow(self, keys: Iterable[OrderKey], timestamp_us: int) -> None:
        emptied = set()
        for key in keys:
            row = shadowed(self.rows[key], timestamp_us)
            if row.is_empty:
                emptied.add(key)
                del self.rows[key]
            else:
                self.rows[key] = row
        if emptied:
            self.keys = [key for key in self.keys if key not in emptied]

    def _write_static(self, static: Row) -> None:
        if self.deletion is not None:
            static = shadowed(static, self.deletion.timestamp_us)
        if not static.is_empty:
            self.static = static if self.static is None else merge_rows(self.static, static)

    def _write_row(self, key: OrderKey, row: Row) -> None:
        if self.deletion is not None or self.ranges:
            covered_us = self._covered_us(key)
            if covered_us is not None:
                row = shadowed(row, covered_us)
                if row.is_empty:
                    return
        known = self.rows.get(key)
        if known is not None:
            self.rows[key] = merge_rows(known, row)
            return
        self.rows[key] = row
        keys = self.keys
        if not keys or keys[-1] < key:
            keys.append(key)
        else:
            insort(keys, key)

    def _covered_us(self, key: OrderKey) -> int | None:
        covered_us = self.deletion.timestamp_us if self.deletion is not None else None
        for span, deletion in self.ranges.items():
            if (covered_us is None or deletion.timestamp_us > covered_us) and span.holds(key):
                covered_us = deletion.timestamp_us
        return covered_us

    def _keys_within(self, span: Span) -> list[OrderKey]:
        first, last = self._bounds(span)
        return self.keys[first:last]

    def _bounds(self, span: Span) -> tuple[int, int]:
        first, last = 0, len(self.keys)
        if span.lower is not None:
            length = len(span.lower)
            bisect = bisect_left if span.lower_inclusive else bisect_right
            first = bisect(self.keys, span.lower, key=lambda key: key[:length])
        if span.upper is not None:
            length = len(span.upper)
            bisect = bisect_right if span.upper_inclusive else bisect_left
            last = bisect(self.keys, span.upper, key=lambda key: key[:length])
        return first, max(first, last)

    def _note_end(self, end_s: int) -> None:
        if self.oldest_end_s is None or end_s < self.oldest_end_s:
            self.oldest_end_s = end_s

    # ---- reading

    def image(self, cut: Cut) -> Image:
        """The answer of this replica: without purgeable data, which Cassandra leaves out of answers as well."""
        purging = self.oldest_end_s is not None and self.oldest_end_s < cut.gc_before_s
        purge = Purge(cut.now_s, cut.gc_before_s)
        keys: list[OrderKey] = []
        rows: list[Row] = []
        live = 0
        truncated = False
        for key in self._keys_of(cut):
            row = self.rows[key]
            if purging:
                row = purged_row(row, purge)
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
            return Image(self.deletion, ranges, self.static, keys, rows, truncated)
        static = purged_row(self.static, purge) if self.static is not None else None
        return Image(
            _unless_taken(self.deletion, purge),
            {span: deletion for span, deletion in ranges.items() if not purge.takes_deletion(deletion)},
            static if static is not None and not static.is_empty else None,
            keys,
            rows,
            truncated,
        )

    def _ranges_of(self, cut: Cut, end: OrderKey | None) -> dict[Span, Deletion]:
        """Deletions that touch the requested part, up to the last row of a truncated answer, and no others: a read of
        one row must not copy the state of the next one to another replica."""
        if cut.points is not None:
            return {
                span: deletion for span, deletion in self.ranges.items() if any(span.holds(at) for at in cut.points)
            }
        ranges = {span: deletion for span, deletion in self.ranges.items() if span.touches(cut.span)}
        return _up_to(ranges, end, cut.backwards)

    def _keys_of(self, cut: Cut) -> Iterator[OrderKey]:
        if cut.points is not None:
            return (key for key in cut.points if key in self.rows)
        first, last = self._bounds(cut.span)
        places = range(last - 1, first - 1, -1) if cut.backwards else range(first, last)
        return (self.keys[place] for place in places)

    def purge(self, now_s: int, gc_before_s: int) -> None:
        """Compact: drop older tombstones, and cells that expired before it. What was written since may lie in memory
        or in a file outside of the compaction: a tombstone that could cover any of it stays, as in Cassandra."""
        if self.oldest_end_s is None or self.oldest_end_s >= gc_before_s:
            return
        rows = self.rows.values() if self.static is None else (*self.rows.values(), self.static)
        overlapping = [each for row in rows if (each := least_timestamp_us(row, gc_before_s)) is not None]
        purge = Purge(now_s, gc_before_s, min(overlapping, default=None))
        self.deletion = _unless_taken(self.deletion, purge)
        self.ranges = {span: each for span, each in self.ranges.items() if not purge.takes_deletion(each)}
        if self.static is not None:
            static = purged_row(self.static, purge)
            self.static = None if static.is_empty else static
        kept = {key: purged_row(row, purge) for key, row in self.rows.items()}
        self.rows = {key: row for key, row in kept.items() if not row.is_empty}
        self.keys = [key for key in self.keys if key in self.rows]
        self.oldest_end_s = self._oldest_left_s()

    def _oldest_left_s(self) -> int | None:
        ends = [oldest_end_s(row) for row in self.rows.values()]
        ends += [oldest_end_s(self.static)] if self.static is not None else []
        ends += [deletion.at_s for deletion in self.ranges.values()]
        ends += [self.deletion.at_s] if self.deletion is not None else []
        known = [end for end in ends if end is not None]
        return min(known) if known else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is left."""
        return not self.rows and self.static is None and self.deletion is None and not self.ranges


def _unless_taken(deletion: Deletion | None, purge: Purge) -> Deletion | None:
    return None if deletion is None or purge.takes_deletion(deletion) else deletion


EMPTY = Image(None, {}, None, [], [], truncated=False)


def images_agree(images: list[Image]) -> bool:
    """Whether replicas gave the same answer, as their digests would show."""
    first = images[0]
    return all(
        image.rows == first.rows
        and image.static == first.static
        and image.deletion == first.deletion
        and image.ranges == first.ranges
        for image in images[1:]
    )


def merge_images(images: list[Image], backwards: bool) -> Image:
    """The merged state of the replicas, as far as all of them have answered: to the earliest end of a truncated
    answer."""
    whole = SimulatedPartition()
    for image in images:
        whole.apply(as_update(image))
    keys = list(reversed(whole.keys)) if backwards else whole.keys
    ends = [image.keys[-1] for image in images if image.truncated]
    ranges = whole.ranges
    if ends:
        end = max(ends) if backwards else min(ends)
        keys = [key for key in keys if (key >= end if backwards else key <= end)]
        ranges = _up_to(ranges, end, backwards)
    rows = [whole.rows[key] for key in keys]
    return Image(whole.deletion, ranges, whole.static, keys, rows, truncated=bool(ends))


def _up_to(ranges: dict[Span, Deletion], end: OrderKey | None, backwards: bool) -> dict[Span, Deletion]:
    """Those that begin before the end of a truncated answer."""
    if end is None:
        return ranges
    whole = Span(lower=end) if backwards else Span(upper=end)
    return {span: deletion for span, deletion in ranges.items() if span.touches(whole)}


def as_update(image: Image) -> PartitionUpdate:
    """The write that brings a partition to the state of an image."""
    return PartitionUpdate(
        image.deletion, dict(image.ranges), image.static, dict(zip(image.keys, image.rows, strict=True))
    )


def missing_from(image: Image, merged: Image, queried: frozenset[str] | None = None) -> PartitionUpdate:
    """The update that would have made a replica with this image answer the merged one, within the requested part.
    Markers and deletions are always sent, cells of columns that were not queried never are."""
    known: dict[OrderKey, Row] = dict(zip(image.keys, image.rows, strict=True))
    update = PartitionUpdate()
    if merged.deletion != image.deletion:
        update.deletion = merged.deletion
    update.ranges = {span: deletion for span, deletion in merged.ranges.items() if image.ranges.get(span) != deletion}
    if merged.static is not None and merged.static != image.static:
        update.static = _asked_for(merged.static, queried)
        if update.static.is_empty:
            update.static = None
    for key, row in zip(merged.keys, merged.rows, strict=True):
        held: Any = known.get(key)
        if held is not row and held != row:
            repaired = _asked_for(row, queried)
            if repaired is row or not repaired.is_empty:
                update.rows[key] = repaired
    return update


def _asked_for(row: Row, queried: frozenset[str] | None) -> Row:
    if queried is None or all(name in queried for name in row.cells):
        return row
    return row._replace(cells={name: cell for name, cell in row.cells.items() if name in queried})
