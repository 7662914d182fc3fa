"""The tables that a resource needs: this module collects the declarations of each engine and of the counters.

An engine joins by one line in the table below: the module that has its tables, imported on demand. Such a module has

    def shared_tables() -> the tables that all resources with `tables: shared` use, and
    def dedicated_tables(creation: UUID) -> those of one creation, named by its uuid,

each a tuple of `Table`, or a dataclass whose fields are tables; and, if rows have to exist before a generation of
shards is used,

    async def make_generation(entry: Entry, generation: Generation, making: Making) -> creates them, idempotently;

and, for a creation that is being deleted and has its rows in shared tables,

    async def forget_rows(entry: Entry, making: Making) -> removes those that would not expire by themselves.

This release does not support an engine outside the table: its entry in the catalogue is written all the same, and
stays `making` until a release supports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headgate.api.counters import CounterResource
from headgate.api.parse import Resource
from headgate.errors import Bug
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import Entry
from headgate.store.model.table import DAY_S, Table

if TYPE_CHECKING:  # decisions import this file, and the store brings asyncio
    from headgate.store.store import Store

ENGINE_MODULES: Final[Mapping[str, str]] = {
    "timeline": "headgate.engines.timeline.entry",
    "counter": "headgate.counters.registration",
}
"""From an engine (`timeline`, `bucket`, `extent`), or `counter`, to the module that has its tables."""

TABLES_KNOWN: Final = 128
"""The number of creations whose tables are cached."""

GENERATIONAL: Final = frozenset({"timeline", "bucket"})
"""Engines in which another number of shards makes another generation (rule R6); of extents the manager opens more."""


def engine_of(resource: Resource) -> str:
    """The name under which it is registered."""
    return "counter" if isinstance(resource, CounterResource) else resource.spec.engine


def engine_of_entry(entry: Entry) -> str:
    """The same, from the catalogue's entry."""
    return "counter" if entry.name.kind == "Counter" else str(entry.spec.get("engine"))


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


def declared_tables(engine: str, creation: UUID | None) -> tuple[Table, ...]:
    """The shared tables of an engine, or those of one creation."""
    return _tables_in(ENGINE_MODULES[engine], creation)


def _tables(engine: str, mode: str, creation: UUID, engines: Mapping[str, str]) -> tuple[Table, ...] | None:
    module = engines.get(engine)
    if module is None:
        return None
    return _tables_in(module, None if mode == "shared" else creation)


@lru_cache(TABLES_KNOWN)
def _tables_in(module: str, creation: UUID | None) -> tuple[Table, ...]:
    """Those of one creation, or the shared ones: the operator requests the same ones repeatedly."""
    tables = import_module(module)
    return _as_tuple(tables.shared_tables() if creation is None else tables.dedicated_tables(creation), module)


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


def makes_lanes(engine: str, *, engines: Mapping[str, str] = ENGINE_MODULES) -> bool:
    """Whether there have to be rows before anybody uses a generation of its shards."""
    return _function(engine, "make_generation", engines) is not None


async def make_generation(
    engine: str, entry: Entry, generation: Generation, making: Making, *, engines: Mapping[str, str] = ENGINE_MODULES
) -> None:
    """Create the rows of a generation before it is used; nothing where its engine needs none."""
    make = _function(engine, "make_generation", engines)
    if make is not None:
        await make(entry, generation, making)


async def forget_rows(
    engine: str, entry: Entry, making: Making, *, engines: Mapping[str, str] = ENGINE_MODULES
) -> None:
    """Remove its rows from shared tables, but for those that expire by themselves."""
    forget = _function(engine, "forget_rows", engines)
    if forget is not None:
        await forget(entry, making)


def _function(engine: str, name: str, engines: Mapping[str, str]) -> Any:
    module = engines.get(engine)
    return None if module is None else getattr(import_module(module), name, None)


def _as_tuple(tables: object, module: str) -> tuple[Table, ...]:
    if is_dataclass(tables) and not isinstance(tables, Table | type):
        tables = tuple(getattr(tables, each.name) for each in fields(tables))
    if not isinstance(tables, tuple) or not all(isinstance(table, Table) for table in tables):
        raise Bug("An engine's module does not define tables", module=module)
    return tables
