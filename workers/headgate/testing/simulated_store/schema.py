"""The schema of the simulated Cassandra, as far as `headgate apply` asks for it: keyspaces and tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headgate.engines.registry import ENGINE_MODULES, declared_tables
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.model.drift import ActualTable, columns_of
from headgate.store.model.table import Table
from headgate.store.schema import ActualKeyspace, default_replication


@dataclass
class SimulatedSchema:
    """A `SchemaPort` that remembers what was created; common to all processes of a world."""

    nodes: int = 3
    keyspaces: set[str] = field(default_factory=set)
    tables: dict[str, dict[str, Table]] = field(default_factory=dict)

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        """Replicated in the one data centre there is."""
        replication = {"dc1": default_replication(self.nodes)}
        return ActualKeyspace(name, "NetworkTopologyStrategy", replication) if name in self.keyspaces else None

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        """Each as it was declared."""
        return {name: _actual(table) for name, table in self.tables.get(keyspace, {}).items()}

    async def count_tables(self) -> int:
        """Of all keyspaces."""
        return sum(map(len, self.tables.values()))

    async def nodes_in(self, data_center: str) -> int:
        """The same for any data centre."""
        return self.nodes

    async def change(self, cql: str) -> None:
        """CREATE KEYSPACE, CREATE TABLE and DROP TABLE, distinguished by their first words."""
        words = cql.replace("(", " ").split()
        if words[0] == "DROP":
            keyspace, _, name = words[4].partition(".")
            self.tables[keyspace].pop(name, None)
        elif words[1] == "KEYSPACE":
            self.keyspaces.add(words[5])
        else:
            keyspace, _, name = words[5].partition(".")
            self.tables.setdefault(keyspace, {})[name] = _find_declared(name)

    async def agree(self, keyspace: str, tables: Collection[str]) -> None:
        """At once."""


def _find_declared(name: str) -> Table:
    creation = UUID(name[2:34]) if name[:2] in ("q_", "c_") else None
    known = [*CATALOGUE_TABLES, *(table for module in ENGINE_MODULES for table in declared_tables(module, creation))]
    return next(table for table in known if table.name == name)


def _actual(table: Table) -> ActualTable:
    return ActualTable(
        table.name,
        UUID(int=1),
        tuple(columns_of(table).values()),
        table.gc_grace_s,
        table.default_ttl_s,
        table.purpose,
        dict(table.compaction),
        dict(table.compression),
    )
