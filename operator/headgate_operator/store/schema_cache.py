"""The tables of each Cassandra, cached: read once for all resources, and again after a change.

A thousand resources on shared tables are one read. Our own steps report their changes; foreign changes are found by
the version of the schema, which is read every ten seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from headgate.process.background_tasks import SharedWork
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.model.drift import ActualTable
from headgate.store.schema import ActualKeyspace
from headgate_operator.store.sessions import SchemaOfCluster

T = TypeVar("T")


class SchemaViews:
    """The tables of one session. Concurrent callers wait for the same read."""

    def __init__(self, schema: SchemaOfCluster, catalogue: Catalogue) -> None:
        self._schema = schema
        self.catalogue = catalogue
        self._known: dict[tuple[str, str], Any] = {}
        self._reading = SharedWork[tuple[str, str], Any]("read of the schema")
        self._in_use: set[str] = set()
        self._version = ""
        self._changes = 0

    async def keyspace(self, name: str) -> ActualKeyspace | None:
        """The keyspace, if there is one."""
        keyspace: ActualKeyspace | None = await self._once(
            ("keyspace", name), lambda: self._schema.read_keyspace(name)
        )
        return keyspace

    async def tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        self._in_use.add(keyspace)
        if await self.keyspace(keyspace) is None:
            return {}
        return await self._once(("tables", keyspace), lambda: self._schema.read_tables(keyspace))

    async def made(self, keyspace: str) -> frozenset[str]:
        return await self._once(("made", keyspace), lambda: self.catalogue.tables_made(keyspace))

    async def total(self) -> int:
        """The tables that Headgate made, in the keyspaces that were asked for. Those of other applications do not
        count, since they would make new queues fail."""
        keyspaces = sorted(self._in_use)
        return sum([len(await self.made(name) & (await self.tables(name)).keys()) for name in keyspaces])

    def schema_changed(self) -> None:
        self._drop("keyspace", "tables")

    def made_changed(self) -> None:
        self._drop("made")

    async def check_version(self) -> frozenset[str]:
        """Whether the schema changed since the last read; the tables of keyspaces in use that differ now."""
        version = await self._schema.version()
        if version == self._version:
            return frozenset()
        first, self._version = not self._version, version
        before = {name: known for (kind, name), known in self._known.items() if kind == "tables"}
        self.schema_changed()
        if first:
            return frozenset()
        changed: set[str] = set()
        for keyspace, known in before.items():
            now = await self.tables(keyspace)
            changed |= {name for name in known.keys() | now.keys() if known.get(name) != now.get(name)}
        return frozenset(changed)

    async def _once(self, what: tuple[str, str], read: Callable[[], Awaitable[T]]) -> T:
        if what in self._known:
            known: T = self._known[what]
            return known
        result: T = await self._reading.run(what, lambda: self._read(what, read))
        return result

    async def _read(self, what: tuple[str, str], read: Callable[[], Awaitable[T]]) -> T:
        changes = self._changes
        result = await read()
        if changes == self._changes:  # else it may be older than a change of ours
            self._known[what] = result
        return result

    def _drop(self, *kinds: str) -> None:
        self._changes += 1
        for what in [what for what in self._known if what[0] in kinds]:
            del self._known[what]
        for what in [what for what in self._reading if what[0] in kinds]:
            self._reading.forget(what)  # later callers read again
