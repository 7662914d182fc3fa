"""Applying on `memory://`: an entry of the catalogue is all that a resource needs there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from headgate.applying.apply import Applier
from headgate.applying.wanted import PlacementDefaults
from headgate.client.catalogue.memory_context import DATA_CENTER, KEYSPACE, memory_at
from headgate.engines.registry import MEMORY_ENGINES
from headgate.store.memory.store import MemoryStore
from headgate.store.model.drift import ActualTable
from headgate.store.schema import ActualKeyspace


def build_memory_applier(address: str, owner: str, *, adopting: bool = False) -> Applier:
    """The applier of an address."""
    memory = memory_at(address)
    store = MemoryStore(memory.replica)
    surroundings = PlacementDefaults(KEYSPACE, DATA_CENTER, 1)
    return Applier(
        NoSchema(),
        memory.catalogue(owner),
        lambda _keyspace: store,
        surroundings,
        engines=MEMORY_ENGINES,
        adopting=adopting,
    )


async def apply_at_once(work: Callable[[], Awaitable[Any]]) -> Any:
    """No clock is ever in doubt."""
    return await work()


class NoSchema:
    """The schema of a store whose tables exist by themselves. `SchemaPort` of `memory://`."""

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        """Any."""
        return ActualKeyspace(name, "NetworkTopologyStrategy", {DATA_CENTER: 1})

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        """None that could differ."""
        return {}

    async def count_tables(self) -> int:
        """None."""
        return 0

    async def nodes_in(self, data_center: str) -> int:
        """This process."""
        return 1

    async def change(self, cql: str) -> None:
        """Nothing to do."""

    async def agree(self, keyspace: str, tables: Collection[str]) -> None:
        """At once."""
