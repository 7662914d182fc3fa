"""Metrics as plain numbers: counters, gauges and histograms, by labels. This module knows no exporter.

An update is an addition, so the hot path of a worker can afford it; an exporter reads `Registry.samples()`. Label
values are of a small closed set (an outcome, a queue); never a message's. A family is limited to CHILDREN_MAX: later
label values are counted under "other".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, TypeVar

CHILDREN_MAX = 200
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds for durations from a millisecond to minutes; a last bucket counts longer ones."""


class CounterMetric:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Histogram:
    """How often something was how large."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more, of this size."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def cumulated(self) -> tuple[tuple[float, int], ...]:
        """Each upper bound, and how many were not above it; the last bound is infinity."""
        return tuple(zip((*self.bounds, float("inf")), accumulate(self.buckets), strict=True))


Metric = TypeVar("Metric", CounterMetric, Gauge, Histogram)


class Family(Generic[Metric]):
    """One metric by its labels."""

    def __init__(self, name: str, description: str, labels: Sequence[str], make: Callable[[], Metric]) -> None:
        self.name = name
        self.description = description
        self.labels = tuple(labels)
        self._make: Callable[[], Metric] = make
        self._children: dict[tuple[str, ...], Metric] = {}

    def of(self, *values: str) -> Metric:
        """The metric with these label values. The object stays the same, so a hot path keeps it."""
        assert len(values) == len(self.labels)  # noqa: S101  a label too few is a bug of the caller
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= CHILDREN_MAX:
                values = ("other",) * len(self.labels)
            child = self._children.setdefault(values, self._make())
        return child

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Metric]]:
        return iter(tuple(self._children.items()))


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, or one histogram, as it is now."""

    name: str
    description: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[tuple[str, str], ...]
    value: float
    """Of a histogram: the sum."""
    buckets: tuple[tuple[float, int], ...] = ()
    """As `Histogram.cumulated` gives them."""


Reading = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Called on each read: label values and the number."""


class Registry:
    """All metrics of a process."""

    def __init__(self) -> None:
        self._families: dict[str, list[Family[Any]]] = {"counter": [], "gauge": [], "histogram": []}
        self._readings: list[tuple[str, str, str, tuple[str, ...], Reading]] = []

    def counter(self, name: str, description: str, *labels: str) -> Family[CounterMetric]:
        """A counter; its name has no `_total`, which exporters add where it is the custom."""
        return self._add("counter", Family(name, description, labels, CounterMetric))

    def gauge(self, name: str, description: str, *labels: str) -> Family[Gauge]:
        """A gauge that is set."""
        return self._add("gauge", Family(name, description, labels, Gauge))

    def reading(
        self, name: str, description: str, labels: Sequence[str], read: Reading, *, kind: str = "gauge"
    ) -> None:
        """A gauge, or a counter, whose value is computed when it is read."""
        self._readings.append((name, description, kind, tuple(labels), read))

    def histogram(
        self, name: str, description: str, *labels: str, bounds: Sequence[float] = SECONDS
    ) -> Family[Histogram]:
        return self._add("histogram", Family(name, description, labels, lambda: Histogram(bounds)))

    def _add(self, kind: str, family: Family[Metric]) -> Family[Metric]:
        self._families[kind].append(family)
        return family

    def samples(self) -> Iterator[Sample]:
        """Everything, as it is now; the samples of one name lie together."""
        yield from self._samples_of("counter")
        yield from self._samples_of("gauge")
        for name, description, kind, labels, read in self._readings:
            for values, value in read():
                yield Sample(name, description, kind, tuple(zip(labels, values, strict=True)), value)
        yield from self._samples_of("histogram")

    def _samples_of(self, kind: str) -> Iterator[Sample]:
        for family in self._families[kind]:
            for values, metric in family:
                labels = tuple(zip(family.labels, values, strict=True))
                if isinstance(metric, Histogram):
                    value, buckets = metric.total, metric.cumulated()
                else:
                    value, buckets = metric.value, ()
                yield Sample(family.name, family.description, kind, labels, value, buckets)
