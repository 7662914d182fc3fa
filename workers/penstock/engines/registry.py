"""Which tables a resource needs: each engine, and the counters, say so for themselves, here.

An engine joins by one line in CARRIED: the module that has its tables, imported when it is asked. Such a module has

    def shared_tables() -> the tables that all resources with `tables: shared` use, and
    def dedicated_tables(creation: UUID) -> those of one creation, named by its uuid,

each a tuple of `Table`, or a dataclass whose fields are tables; and, if there have to be rows before anybody uses a
generation of shards,

    async def make_generation(entry: Entry, generation: Generation, making: Making) -> makes them, as often as asked.

What is not in CARRIED is not carried by this release: its entry in the catalogue is written all the same, and stays
`making` until a release carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Final
from uuid import UUID

from penstock.api.counters import Counter
from penstock.api.parse import Resource
from penstock.errors import Bug
from penstock.store.catalogue_entry import Entry
from penstock.store.decide_generation import Generation
from penstock.store.store import Store
from penstock.store.table import Table

CARRIED: Final[Mapping[str, str]] = {
    "timeline": "penstock.engines.timeline.carried",
    "counter": "penstock.counters.tables",
}
"""From an engine (`timeline`, `bucket`, `extent`), or `counter`, to the module that has its tables."""

GENERATIONAL: Final = frozenset({"timeline", "bucket"})
"""Engines in which another number of shards makes another generation (rule R6); of extents the manager opens more."""


def engine_of(resource: Resource) -> str:
    """The name under which it is registered."""
    return "counter" if isinstance(resource, Counter) else resource.spec.engine


def shards_of(resource: Resource) -> int:
    """Its shards; a counter has buckets instead, which never change."""
    return 1 if isinstance(resource, Counter) else resource.spec.shards


def tables_of(
    resource: Resource, creation: UUID, *, carried: Mapping[str, str] = CARRIED
) -> tuple[Table, ...] | None:
    """The tables that this creation needs, under their real names; None if its engine is not carried yet."""
    module = carried.get(engine_of(resource))
    if module is None:
        return None
    found = import_module(module)
    shared = resource.spec.storage.tables == "shared"
    return _as_tuple(found.shared_tables() if shared else found.dedicated_tables(creation), module)


@dataclass(frozen=True)
class Making:
    """What it takes to make a generation's rows."""

    store: Store
    """Of the keyspace that has the tables."""
    now_us: Callable[[], int]
    new_uuid: Callable[[], UUID]


async def make_generation(
    resource: Resource, entry: Entry, generation: Generation, making: Making, *, carried: Mapping[str, str] = CARRIED
) -> None:
    """Make what a generation needs before it is used; nothing where its engine needs nothing."""
    module = carried.get(engine_of(resource))
    make = None if module is None else getattr(import_module(module), "make_generation", None)
    if make is not None:
        await make(entry, generation, making)


def _as_tuple(tables: object, module: str) -> tuple[Table, ...]:
    if is_dataclass(tables) and not isinstance(tables, Table | type):
        tables = tuple(getattr(tables, each.name) for each in fields(tables))
    if not isinstance(tables, tuple) or not all(isinstance(table, Table) for table in tables):
        raise Bug("an engine's module gives something else than tables", module=module)
    return tables
