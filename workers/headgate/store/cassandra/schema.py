"""The schema of a real Cassandra: read from its own tables, changed one statement at a time, agreed upon.

A creator that continues before the nodes agree meets replicas that do not know the table yet, and its writes fail. So
a change returns when every node that is up has the same schema, or reports the nodes that lack it. Agreement alone
does not mean that a table is served: a node records a definition first and applies it slightly later (observed with
six creators on one node). So each node is also asked which tables it serves.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from headgate.errors import Unavailable
from headgate.store.cassandra.errors import NotAllowed
from headgate.store.cassandra.store import CassandraStore, Coordinator
from headgate.store.model.consistency import Consistency
from headgate.store.model.drift import ActualColumn, ActualTable, Kind
from headgate.store.model.rows import Row
from headgate.store.schema import ActualKeyspace, RightsMissing

AGREED_WITHIN_S = 60.0
CHANGED_WITHIN_S = 60.0
RETRY_S = 0.1
OWN_KEYSPACES = "system"
"""The prefix of the names of the server's own keyspaces."""


class NotAgreed(Unavailable):
    """The nodes do not agree on the schema."""


class CassandraSchema:
    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        rows = await self._read("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s", name)
        if not rows:
            return None
        replication = dict(rows[0].replication)
        replicas = {key: int(value) for key, value in replication.items() if value.isdigit()}
        return ActualKeyspace(name, replication.get("class", ""), replicas)

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        """Columns and options of every table: two reads, perhaps of two nodes, while others create and drop tables. A
        table without any column was read in between, and is read again."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + AGREED_WITHIN_S
        while True:
            rows = await self._read(
                "SELECT table_name, id, gc_grace_seconds, default_time_to_live, comment, compaction, compression"
                " FROM system_schema.tables WHERE keyspace_name = %s",
                keyspace,
            )
            columns = await self._read_columns(keyspace)
            between = [row.table_name for row in rows if row.table_name not in columns]
            if not between:
                return {row.table_name: _table(row, columns[row.table_name]) for row in rows}
            if loop.time() >= deadline_s:
                raise NotAgreed("The schema shows a table without its columns", table=f"{keyspace}.{min(between)}")
            await asyncio.sleep(RETRY_S)

    async def _read_columns(self, keyspace: str) -> Mapping[str, list[ActualColumn]]:
        columns: defaultdict[str, list[ActualColumn]] = defaultdict(list)
        for row in await self._read(
            "SELECT table_name, column_name, type, kind, position, clustering_order"
            " FROM system_schema.columns WHERE keyspace_name = %s",
            keyspace,
        ):
            descending = row.clustering_order == "desc"
            column = ActualColumn(row.column_name, row.type, Kind(row.kind), row.position, descending)
            columns[row.table_name].append(column)
        return columns

    async def count_tables(self) -> int:
        rows = await self._read("SELECT keyspace_name FROM system_schema.tables")
        return sum(not row.keyspace_name.startswith(OWN_KEYSPACES) for row in rows)

    async def nodes_in(self, data_center: str) -> int:
        """One node knows itself and its peers."""
        local = await self._read("SELECT data_center FROM system.local")
        peers = await self._read("SELECT data_center FROM system.peers_v2")
        return sum(row.data_center == data_center for row in (*local, *peers))

    async def version(self) -> str:
        """The schema version of one node: the cheapest check for a change."""
        rows = await self._read("SELECT schema_version FROM system.local")
        return str(rows[0].schema_version)

    async def change(self, cql: str) -> None:
        """Sent again as long as the answer is lost: worded so that a second one does nothing."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CHANGED_WITHIN_S
        while True:
            try:
                await self._store.cql(cql, within_s=deadline_s - loop.time())
                break
            except NotAllowed as refused:
                raise RightsMissing(cause=refused.facts.get("cause", "")) from refused
            except Unavailable:
                if loop.time() + RETRY_S >= deadline_s:
                    raise
            await asyncio.sleep(RETRY_S)
        await self.agree()

    async def agree(self, keyspace: str = "", tables: Collection[str] = ()) -> None:
        """Query every node that is up for its version and its tables, until all agree and have them."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + AGREED_WITHIN_S
        while True:
            up = [node for node in self._store.coordinators() if node.up]
            versions = await asyncio.gather(*(self._version_at(node, keyspace, frozenset(tables)) for node in up))
            if len(set(versions)) == 1 and not versions[0].startswith("has no "):
                return
            if loop.time() >= deadline_s:
                shown = sorted(f"{node.address} {version}" for node, version in zip(up, versions, strict=True))
                raise NotAgreed(
                    versions=", ".join(shown),
                    remedy="check `nodetool describecluster`, and apply again when it shows one version",
                )
            await asyncio.sleep(RETRY_S)

    async def _version_at(self, node: Coordinator, keyspace: str, tables: frozenset[str]) -> str:
        """Its version, or its error."""
        try:
            if tables:
                rows = await self._ask(node, "DESCRIBE TABLES")
                missing = tables - {row.name for row in rows if row.keyspace_name == keyspace}
                if missing:
                    return f"has no {min(missing)}"
            version = await self._ask(node, "SELECT schema_version FROM system.local")
        except Unavailable:
            return "does not answer"
        return str(version[0].schema_version)

    async def _ask(self, node: Coordinator, cql: str) -> list[Row]:
        return await self._store.cql(cql, consistency=Consistency.ONE, at=node, within_s=5.0)

    async def _read(self, cql: str, *values: str) -> list[Row]:
        return await self._store.cql(cql, values, consistency=Consistency.ONE)


def _table(row: Row, columns: list[ActualColumn]) -> ActualTable:
    return ActualTable(
        row.table_name,
        row.id,
        tuple(sorted(columns, key=lambda column: (column.kind.value, column.position, column.name))),
        row.gc_grace_seconds,
        row.default_time_to_live,
        row.comment or "",
        dict(row.compaction),
        dict(row.compression),
    )
