"""Keyspaces and tables created, checked and repaired from their values; by any number of processes at once.

It knows no driver (`SchemaPort` is the interface that it needs) and no queue. Invariants:

- additive only: nothing is dropped, renamed or retyped, and a keyspace that exists is never altered;
- concurrent creators create one table: its id is derived from its name (docs/decisions/0005-table-ids.md), every
  change is worded so that a second one does nothing, and is waited for until the nodes agree;
- a table that was dropped is not created again under its name: `made_before` lists those that have existed.

A crash between any two changes leaves less done, and running it again does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import EnvironmentProblem, OperationRefused
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.drift import ActualTable, Drift, compare, missing, unmended
from headgate.store.model.table import Keyspace, Table


@dataclass(frozen=True)
class ActualKeyspace:
    name: str
    strategy: str
    replicas: Mapping[str, int]
    """By data center; empty where the strategy knows none."""


class SchemaPort(Protocol):
    """The interface to a server. `CassandraSchema` implements it."""

    async def read_keyspace(self, name: str) -> ActualKeyspace | None: ...

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        """Its tables by name."""

    async def count_tables(self) -> int:
        """All tables of all users in the cluster."""

    async def nodes_in(self, data_center: str) -> int: ...

    async def change(self, cql: str) -> None:
        """Run one change of the schema, and return when all nodes that are up agree. RightsMissing if not allowed."""

    async def agree(self, keyspace: str, tables: Collection[str]) -> None:
        """Return when all nodes that are up have one schema and serve these tables: others may be making them."""


class RightsMissing(OperationRefused):
    """The role may not do this."""


class SchemaRightsMissing(RightsMissing):
    """This role may not create the required objects."""

    def __init__(self, cql: Iterable[str], detail: str) -> None:
        self.cql = tuple(cql)
        super().__init__(
            remedy="pass the CQL (headgate apply --dry-run) to an administrator, then apply again",
            cause=detail,
            statements=len(self.cql),
        )


class KeyspaceUnfit(EnvironmentProblem):
    """The keyspace exists, and is not replicated where it is needed; an existing one is never altered."""


@dataclass(frozen=True)
class SchemaPlan:
    """The required changes, in order, and those that only a person can make."""

    keyspaces: tuple[Keyspace, ...]
    tables: tuple[tuple[str, Table], ...]
    """With the keyspace of each."""
    drifts: tuple[Drift, ...]
    there: tuple[tuple[str, str], ...] = ()
    """Keyspace and name of the tables that need not be made."""

    @property
    def statements(self) -> tuple[str, ...]:
        return (
            *(create_keyspace_cql(keyspace) for keyspace in self.keyspaces),
            *(create_table_cql(keyspace, table) for keyspace, table in self.tables),
            *(drift.cql for drift in self.drifts if drift.cql),
        )


@dataclass(frozen=True)
class SchemaReport:
    created: tuple[str, ...] = ()
    """Names of keyspaces and tables."""
    drifts: tuple[Drift, ...] = ()

    @property
    def unmended(self) -> tuple[Drift, ...]:
        """Problems that only a person can fix."""
        return unmended(self.drifts)


def default_replication(nodes: int) -> int:
    return max(1, min(3, nodes))


@dataclass(frozen=True)
class SchemaStanding:
    keyspace_there: bool
    there: frozenset[str]
    """The names of all its tables."""
    drifts: tuple[Drift, ...]
    """Of the requested tables that exist."""


async def read_result(port: SchemaPort, keyspace: Keyspace, tables: Collection[Table]) -> SchemaStanding:
    """Read a keyspace, and compare these tables. KeyspaceUnfit where it is not replicated where it has to be."""
    keyspace_read = await port.read_keyspace(keyspace.name)
    if keyspace_read is None:
        return SchemaStanding(keyspace_there=False, there=frozenset(), drifts=())
    _require_fit(keyspace_read, keyspace)
    there = await port.read_tables(keyspace.name)
    drifts = [
        drift for table in tables if table.name in there for drift in compare(keyspace.name, table, there[table.name])
    ]
    return SchemaStanding(keyspace_there=True, there=frozenset(there), drifts=tuple(drifts))


async def plan(
    port: SchemaPort, keyspace: Keyspace, tables: Collection[Table], made_before: Collection[str] = ()
) -> SchemaPlan:
    """Compare the existing state with the required one. Reads only."""
    standing = await read_result(port, keyspace, tables)
    absent = [table for table in tables if table.name not in standing.there]
    return SchemaPlan(
        keyspaces=() if standing.keyspace_there else (keyspace,),
        tables=tuple((keyspace.name, table) for table in absent if table.name not in made_before),
        drifts=(*standing.drifts, *(missing(table) for table in absent if table.name in made_before)),
        there=tuple((keyspace.name, table.name) for table in tables if table.name in standing.there),
    )


async def ensure(
    port: SchemaPort, keyspace: Keyspace, tables: Collection[Table], made_before: Collection[str] = ()
) -> SchemaReport:
    """Create missing objects, repair the repairable, report the rest. Safe to be done by several at once, and again
    after a crash."""
    planned = await plan(port, keyspace, tables, made_before)
    try:
        for cql in planned.statements:
            await port.change(cql)
    except RightsMissing as refused:
        raise SchemaRightsMissing(planned.statements, str(refused.facts.get("cause", ""))) from refused
    await _agree(port, planned)
    created = (*(keyspace.name for keyspace in planned.keyspaces), *(table.name for _, table in planned.tables))
    return SchemaReport(created, tuple(drift if drift.cql is None else drift.fixed() for drift in planned.drifts))


async def _agree(port: SchemaPort, planned: SchemaPlan) -> None:
    """All tables, including existing ones: a server shows a table that another process is creating before it serves
    it."""
    names: dict[str, list[str]] = {keyspace.name: [] for keyspace in planned.keyspaces}
    for keyspace, name in (*planned.there, *((keyspace, table.name) for keyspace, table in planned.tables)):
        names.setdefault(keyspace, []).append(name)
    for keyspace, tables in names.items():
        await port.agree(keyspace, tables)


def _require_fit(actual: ActualKeyspace, wanted: Keyspace) -> None:
    """LOCAL_QUORUM means replicas of the home data center: without any, every request would fail."""
    for data_center, _ in wanted.replication:
        if actual.strategy.endswith("NetworkTopologyStrategy") and not actual.replicas.get(data_center):
            raise KeyspaceUnfit(
                keyspace=actual.name,
                data_center=data_center,
                replicated=", ".join(sorted(actual.replicas)) or "nowhere",
                remedy="name a keyspace of your own, or have an administrator add the data center to its replication",
            )
