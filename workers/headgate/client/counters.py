"""The counters of one connection.

The type of a counter never changes. The lifetime of its mutators, the clock bound and its existence may change.
Unlike a queue, a counter continues while the catalogue is unavailable: nothing that an update or a read relies on can
change under it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headgate.client.counter import Counter
from headgate.client.open_and_refresh import CatalogueKind, ResourcesByName
from headgate.counters.counter import CounterHandle
from headgate.counters.model.settings import CounterSettings, settings_of
from headgate.counters.types.registry import type_of
from headgate.errors import Conflict, NotFound, OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry, KnownEntry


class CounterNotFound(NotFound):
    """There is no such counter."""


class CounterNotReady(Unavailable):
    """Its tables do not all exist yet."""


class CounterDeleted(OperationRefused):
    """The counter was deleted."""


class CounterRetained(CounterDeleted):
    """The counter was kept when its resource was deleted, and takes nothing."""


class CounterRecreated(Conflict):
    """The counter was deleted, and another was created under its name."""


COUNTERS = CatalogueKind(
    "Counter", "shop/page-views",
    CounterNotFound, CounterNotReady, CounterDeleted, CounterRetained, CounterRecreated,
)  # fmt: skip
CounterRecord = tuple[Entry, CounterSettings]


class Counters(ResourcesByName[CounterRecord, Counter]):
    kind = COUNTERS

    async def open(self, text: str, *, memory_bytes: int | None = None) -> Counter:
        return await self.open_once(text, partial(self._make, memory_bytes=memory_bytes))

    def settings_of(self, entry: Entry) -> CounterSettings:
        return settings_of(entry, data_center=self._process_context.data_center)

    def record_of(self, known: KnownEntry, settings: CounterSettings) -> CounterRecord:
        return known.entry, settings

    async def renew(self, counter: Counter, record: CounterRecord) -> None:
        """In force from now on; the bound on memory is this process's own."""
        entry, settings = record
        memory_bytes = counter.handle.settings.memory_bytes_max
        counter.renew(entry, replace(settings, memory_bytes_max=memory_bytes))
        self._process_context.clock.serve(settings.skew_us)

    async def _make(self, record: CounterRecord, *, memory_bytes: int | None) -> Counter:
        entry, settings = record
        if memory_bytes is not None:
            settings = replace(settings, memory_bytes_max=memory_bytes)
        context, bound = self._process_context, Live(settings.skew_us)
        context.clock.serve(bound.now)
        host = context.host_of(entry.place.keyspace, bound)
        handle = CounterHandle(host, settings, hints=context.hints, kind=type_of(settings.kind))
        return Counter(entry, handle, context, bound, self._connection.require_usable)
