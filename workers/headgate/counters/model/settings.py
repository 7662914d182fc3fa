"""The settings of a counter, as its parts need them: from the catalogue's entry, in their units. Pure.

A newer release may have written the document: fields unknown to this one are ignored. The fields fixed at creation
(tables, keyspace, data center) come from the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headgate.api.read.versions import resource_of
from headgate.api.resources.counters import CounterResource
from headgate.api.values.units import Duration
from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.model.tables import CounterTables, dedicated_tables, shared_tables
from headgate.errors import InvalidRequest
from headgate.store.catalogue.entry import Entry

MS_US = 1_000
MIB = 1024 * 1024
DEFAULT_LIFE = LifeTerms(lifetime_us=86_400_000_000, refuse_within_us=3_600_000_000)


class NotACounter(InvalidRequest):
    """The resource is no counter."""


@dataclass(frozen=True)
class CounterSettings:
    counter: UUID
    name: str
    tables: CounterTables
    kind: str = "sum"
    buckets: int = 64
    life: LifeTerms = DEFAULT_LIFE
    gc_after_us: int = 86_400_000_000
    skew_us: int = 500_000
    token_window_us: int = 900_000_000
    grains_us: tuple[int, ...] = ()
    """Of its windows, shortest first."""
    retention_us: int = 14 * 86_400_000_000
    memory_bytes_max: int = 64 * MIB
    """Of the states that one process keeps; of the process, not of the resource."""


def settings_of(entry: Entry, *, data_center: str) -> CounterSettings:
    """The settings for a process whose coordinators are in that data center; refused elsewhere (rule R5)."""
    entry.require_home(data_center)
    spec = counter_of(entry).spec
    return CounterSettings(
        counter=entry.id,
        name=f"{entry.name.namespace}/{entry.name.name}",
        tables=tables_of_entry(entry),
        kind=spec.type,
        buckets=spec.buckets,
        life=LifeTerms(lifetime_us=_us(spec.mutator.lifetime), refuse_within_us=_us(spec.mutator.refuse_within)),
        gc_after_us=_us(spec.gc.after),
        skew_us=_us(spec.max_clock_skew),
        token_window_us=_us(spec.token_window),
        grains_us=tuple(sorted(_us(grain) for grain in spec.windows or ())),
        retention_us=_us(spec.retention),
    )


def counter_of(entry: Entry) -> CounterResource:
    resource = resource_of(entry.document)
    if not isinstance(resource, CounterResource):
        raise NotACounter(resource=entry.name, kind=resource.kind)
    return resource


def tables_of_entry(entry: Entry) -> CounterTables:
    return shared_tables() if entry.place.tables == "shared" else dedicated_tables(entry.id)


def _us(duration: Duration) -> int:
    return duration.ms * MS_US
