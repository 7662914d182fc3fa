"""The cost of statements, by their shape: counts, errors, and durations. Plain numbers, for any exporter.

It knows no exporter. Adding one measurement is a few additions, and nothing grows with the number of statements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the buckets; a last one takes slower statements."""


@dataclass
class ShapeMetrics:
    """One kind of statement on one table."""

    kind: str
    table: str
    detail: str
    count: int = 0
    rows: int = 0
    """Statements within batches, rows within answers."""
    in_flight: int = 0
    took_s: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    errors: dict[str, int] = field(default_factory=dict)

    def took(self, seconds: float, rows: int) -> None:
        """One ended well."""
        self.count += 1
        self.rows += rows
        self.took_s += seconds
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1

    def failed(self, seconds: float, error: str) -> None:
        """One ended in an error of this class."""
        self.took(seconds, 0)
        self.errors[error] = self.errors.get(error, 0) + 1


class StoreMetrics:
    """All kinds of statement that one store has run."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str, str], ShapeMetrics] = {}

    def of(self, kind: str, table: str, detail: str = "") -> ShapeMetrics:
        """The numbers of one kind on one table; `detail` distinguishes its shapes. The object stays the same."""
        key = (kind, table, detail)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = ShapeMetrics(*key)
        return shape

    def __iter__(self) -> Iterator[ShapeMetrics]:
        return iter(tuple(self._shapes.values()))
