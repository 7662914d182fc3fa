"""The engines of this release: one record for each, and the same of the counters as far as tables go.

An engine joins by one line in the table below: the module that has its record, imported on demand, so that a process
loads only the engines of its queues. docs/internals/add-an-engine.md shows the whole way.

    RECORD = EngineRecord(capabilities=..., shared_tables=..., dedicated_tables=..., settings_of=..., open=..., ...)

This release does not support an engine outside the table: its entry in the catalogue is written all the same, and
stays `making` until a release supports it. Spark finds its own module of an engine by the engine's name
(headgate_spark/engines).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headgate.api.read.parse import Resource
from headgate.api.resources.counters import CounterResource
from headgate.engines.contract import Capability, Engine, QueueInspector, QueueSettings
from headgate.errors import Bug, OperationRefused
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import Entry
from headgate.store.model.table import DAY_S, Table

if TYPE_CHECKING:  # decisions import this file, and the store brings asyncio
    from headgate.engines.context import Host, Opening
    from headgate.store.store import Store

COUNTER: Final = "counter"
ENGINE_MODULES: Final[dict[str, str]] = {
    "timeline": "headgate.engines.timeline.entry",
    COUNTER: "headgate.counters.registration",
}
"""From an engine of a queue, or "counter", to the module that has its record."""

MEMORY_ENGINES: Final = dict.fromkeys(("timeline", "bucket", "extent", COUNTER), "headgate.engines.memory.entry")
"""The same on `memory://`, where one engine takes the place of all. Nothing has tables, which exist by themselves."""

TABLES_KNOWN: Final = 128
"""The number of creations whose tables are cached."""


class EngineNotSupported(OperationRefused):
    """This release has no such engine."""


@dataclass(frozen=True)
class Making:
    """The means to create a creation's rows, and to delete them."""

    store: Store
    """Of the keyspace that has the tables."""
    now_us: Callable[[], int]
    new_uuid: Callable[[], UUID]

    def tombstone_timestamp_us(self, written_us: int = 0) -> int:
        """The stamp of a final delete: a creation's id is never used again, so the stamp is ahead of every write
        still under way, and of the newest that was read."""
        return max(self.now_us(), written_us) + DAY_S * 1_000_000


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """What applying a resource needs: tables and rows. `Any`: a tuple of tables, or a dataclass whose fields are
    tables."""

    capabilities: frozenset[Capability] = frozenset()
    shared_tables: Callable[[], Any]
    """Those that all resources with `tables: shared` use."""
    dedicated_tables: Callable[[UUID], Any]
    """Those of one creation, named by its uuid."""
    make_generation: Callable[[Entry, Generation, Making], Awaitable[None]] | None = None
    """Creates, idempotently, the rows that have to exist before a generation of shards is used; None: there are
    none."""
    forget_rows: Callable[[Entry, Making], Awaitable[None]] | None = None
    """Removes the rows of a creation under deletion from shared tables, but for those that expire by themselves."""


@dataclass(frozen=True, kw_only=True)
class EngineRecord(StoredRecord):
    """All that the other packages use of an engine."""

    settings_of: Callable[[Entry, str], QueueSettings]
    """The settings of a queue, from its entry, for a process in this data center; refused elsewhere (rule R5)."""
    open: Callable[[Opening], Engine]
    """A queue in this process, on its event loop."""
    inspect: Callable[[Host, Any], QueueInspector] | None = None
    """The operator's side of a queue, by these settings; None: the operator has nothing to follow."""


def engine_of(resource: Resource) -> str:
    """The name under which it is registered."""
    return COUNTER if isinstance(resource, CounterResource) else resource.spec.engine


def engine_of_entry(entry: Entry) -> str:
    """The same, from the catalogue's entry."""
    return COUNTER if entry.name.kind == "Counter" else str(entry.spec.get("engine"))


def engine_record(entry: Entry, *, engines: Mapping[str, str] = ENGINE_MODULES) -> EngineRecord:
    """The record of a queue's engine."""
    engine = engine_of_entry(entry)
    if engine not in engines:
        supported = ", ".join(name for name in engines if name != COUNTER)
        queue = f"{entry.name.namespace}/{entry.name.name}"
        raise EngineNotSupported(queue=queue, engine=engine, supported=supported)
    record = _record(engines[engine])
    if not isinstance(record, EngineRecord):
        raise Bug("The resource is not a queue", resource=entry.name)
    return record


def shards_of(resource: Resource) -> int:
    """Its shards; a counter has buckets instead, which never change."""
    return 1 if isinstance(resource, CounterResource) else resource.spec.shards


def tables_of(
    resource: Resource, creation: UUID, *, engines: Mapping[str, str] = ENGINE_MODULES
) -> tuple[Table, ...] | None:
    """The tables that this creation needs, under their real names; None if this release does not support its
    engine."""
    return _tables(engine_of(resource), resource.spec.storage.tables, creation, engines)


def tables_of_entry(entry: Entry, *, engines: Mapping[str, str] = ENGINE_MODULES) -> tuple[Table, ...] | None:
    """The same, from the catalogue's entry."""
    return _tables(engine_of_entry(entry), entry.place.tables, entry.id, engines)


def stored_record(engine: str, *, engines: Mapping[str, str] = ENGINE_MODULES) -> StoredRecord | None:
    """The record of that name; None if this release does not support it."""
    module = engines.get(engine)
    return None if module is None else _record(module)


def _record(module: str) -> StoredRecord:
    record: StoredRecord = import_module(module).RECORD
    return record


def _tables(engine: str, mode: str, creation: UUID, engines: Mapping[str, str]) -> tuple[Table, ...] | None:
    module = engines.get(engine)
    if module is None:
        return None
    return tables_in(module, None if mode == "shared" else creation)


@lru_cache(TABLES_KNOWN)
def tables_in(module: str, creation: UUID | None) -> tuple[Table, ...]:
    """The tables of one creation by the record of a module, or the shared ones. The operator requests the same ones
    repeatedly."""
    record = _record(module)
    return _as_tuple(record.shared_tables() if creation is None else record.dedicated_tables(creation), module)


def _as_tuple(tables: object, module: str) -> tuple[Table, ...]:
    if is_dataclass(tables) and not isinstance(tables, Table | type):
        tables = tuple(getattr(tables, each.name) for each in fields(tables))
    if not isinstance(tables, tuple) or not all(isinstance(table, Table) for table in tables):
        raise Bug("An engine's module does not define tables", module=module)
    return tables
