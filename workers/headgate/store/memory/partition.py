"""A partition as one replica holds it. Pure.

Writes come as `PartitionUpdate`s: any of a deletion of the partition, deletions of ranges, static cells, and rows.
Covered data is removed at once. The deletion itself stays until it is purged, and continues to cover older data that
comes late. After the purge nothing remembers it: that is how deleted data comes back from a replica that was down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.store.memory.rows import Deletion, OrderKey, Row, later, merge_rows, oldest_end_s, purged_row, shadowed


class Span(NamedTuple):
    """A run of rows between two prefixes of the clustering key; None is open."""

    lower: OrderKey | None = None
    lower_inclusive: bool = True
    upper: OrderKey | None = None
    upper_inclusive: bool = True

    def holds(self, key: OrderKey) -> bool:
        if self.lower is not None:
            head = key[: len(self.lower)]
            if head < self.lower or (head == self.lower and not self.lower_inclusive):
                return False
        if self.upper is not None:
            head = key[: len(self.upper)]
            if self.upper < head or (head == self.upper and not self.upper_inclusive):
                return False
        return True


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
            ends = (end_s for row in rows if (end_s := oldest_end_s(row)) is not None)
            self._end_s = (min(ends, default=None),)
        return self._end_s[0]


@dataclass(slots=True)
class Image:
    """The rows of a part of a partition; those that a reader does not see may be among them."""

    static: Row | None
    keys: list[OrderKey]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a partition that a read covers. A limit counts live rows of the second `now_s`."""

    span: Span
    backwards: bool
    limit: int | None
    now_s: int
    points: tuple[OrderKey, ...] | None = None
    """Rows by their keys, instead of a span."""


class Partition:
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
        first, last = self._bounds(span)
        self._shadow(self.keys[first:last], deletion.timestamp_us)

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

    def image(self, cut: Cut) -> Image:
        """The rows that a reader of that second sees."""
        image = Image(self.static, [], [])
        for key in self._keys_of(cut):
            if cut.limit is not None and len(image.keys) >= cut.limit:
                break
            if self.rows[key].is_live(cut.now_s):
                image.keys.append(key)
                image.rows.append(self.rows[key])
        return image

    def _keys_of(self, cut: Cut) -> Iterator[OrderKey]:
        if cut.points is not None:
            return (key for key in cut.points if key in self.rows)
        first, last = self._bounds(cut.span)
        places = range(last - 1, first - 1, -1) if cut.backwards else range(first, last)
        return (self.keys[place] for place in places)

    def purge(self, now_s: int, gc_before_s: int) -> None:
        """Compact: drop older tombstones, and cells that expired before it."""
        if self.oldest_end_s is None or self.oldest_end_s >= gc_before_s:
            return
        if self.deletion is not None and self.deletion.at_s < gc_before_s:
            self.deletion = None
        self.ranges = {span: deletion for span, deletion in self.ranges.items() if deletion.at_s >= gc_before_s}
        if self.static is not None:
            static = purged_row(self.static, now_s, gc_before_s)
            self.static = None if static.is_empty else static
        rows = {key: purged_row(row, now_s, gc_before_s) for key, row in self.rows.items()}
        self.rows = {key: row for key, row in rows.items() if not row.is_empty}
        self.keys = [key for key in self.keys if key in self.rows]
        left = PartitionUpdate(self.deletion, self.ranges, self.static, self.rows)
        ends = [deletion.at_s for deletion in (self.deletion, *self.ranges.values()) if deletion is not None]
        ends += [end_s for end_s in (left.earliest_end_s(),) if end_s is not None]
        self.oldest_end_s = min(ends, default=None)

    @property
    def is_empty(self) -> bool:
        return not self.rows and self.static is None and self.deletion is None and not self.ranges
