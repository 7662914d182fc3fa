"""Metrics in the text form that Prometheus reads, written by the library of Prometheus itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from headgate.telemetry.metrics import Registry, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES: dict[str, Callable[..., Metric]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class _Ours(Collector):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        return iter(_families(self._registry.samples()))


def exposition(registry: Registry) -> bytes:
    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(_Ours(registry))
    return bytes(generate_latest(collectors))


def _families(samples: Iterable[Sample]) -> list[Metric]:
    families: dict[str, Metric] = {}
    for sample in samples:
        values = [value for _, value in sample.labels]
        family = families.get(sample.name)
        if family is None:
            names = [name for name, _ in sample.labels]
            family = FAMILIES[sample.kind](sample.name, sample.description, labels=names)
            families[sample.name] = family
        if isinstance(family, HistogramMetricFamily):
            buckets = [("+Inf" if bound == float("inf") else repr(bound), count) for bound, count in sample.buckets]
            family.add_metric(values, buckets, sample.value)  # type: ignore[no-untyped-call, unused-ignore]
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            family.add_metric(values, sample.value)
    return list(families.values())
