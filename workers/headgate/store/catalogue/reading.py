"""Reads of the catalogue: an entry of this data center as it is, and copies of those of others.

It changes nothing. An entry of its own data center is read at LOCAL_QUORUM, where its changes are acknowledged; so
knowledge of it counts from the start of the read (rule R6), and the loss of another data center changes nothing. A
copy of another data center's entry may be old. It serves to name its home, and to lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from headgate.store.catalogue.earlier_entries import EarlierEntries
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name, entry_of
from headgate.store.catalogue.tables import ENTRIES, EVERYTHING, HOMES, TABLES_MADE
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select
from headgate.store.model.types import Value
from headgate.store.store import Store


class CatalogueReader:
    """Entries by name, for a process whose coordinators are in one data center."""

    def __init__(self, store: Store, *, now_us: Callable[[], int], new_uuid: Callable[[], UUID] = uuid4) -> None:
        self._store = store
        self.now_us = now_us
        self.new_uuid = new_uuid
        self._earlier = EarlierEntries(store, new_uuid)

    @property
    def data_center(self) -> str:
        return self._store.data_center

    async def find(self, name: Name, *, consistency: Consistency = Consistency.LOCAL_QUORUM) -> KnownEntry | None:
        """The entry of this name, with the age of the knowledge; None if there is none, or none any more.

        That of this data center; without one, a copy of another's, which no process here can open.
        """
        started_us = self.now_us()
        rows = await self._store.read(Select(ENTRIES, self._key(name), consistency=consistency))
        if rows:
            entry: Entry | None = _live(entry_of(rows[0]))
        else:
            entry = await self._earlier.find(name)
        entry = entry or await self._find_elsewhere(name)
        return None if entry is None else KnownEntry(entry, started_us)

    async def list(self, namespace: str, kind: str | None = None) -> Sequence[KnownEntry]:
        """All entries of a namespace: one partition for each data center, whole. Of a name that several have, that of
        this one."""
        ours = await self._list_own(namespace, kind)
        names = {known.entry.name for known in ours}
        homes = await self._other_homes(namespace)
        elsewhere = [each for home in homes for each in await self._list(home, namespace)]
        return [*ours, *(known for known in elsewhere if known.entry.name not in names and _is_of(known, kind))]

    async def namespaces(self) -> Sequence[str]:
        """Every namespace that has, or had, entries."""
        return sorted({namespace for _, namespace in await self._homes()} | await self._earlier.namespaces())

    async def owned(self, prefix: str) -> Sequence[KnownEntry]:
        """All entries of this data center whose owner's name starts with this, of all namespaces. Those of others,
        which may be thousands, are not even decoded."""
        namespaces = {namespace for home, namespace in await self._homes() if home == self.data_center}
        namespaces |= await self._earlier.namespaces()
        known = [each for namespace in sorted(namespaces) for each in await self._list_own(namespace, owner=prefix)]
        return [each for each in known if each.entry.owner.startswith(prefix)]

    async def tables_made(self, keyspace: str) -> frozenset[str]:
        rows = await self._store.read(Select(TABLES_MADE, {"tables_keyspace": keyspace}, ["table_name"]))
        return frozenset(row.table_name for row in rows)

    async def _list_own(self, namespace: str, kind: str | None = None, *, owner: str = "") -> Sequence[KnownEntry]:
        started_us = self.now_us()
        rows = await self._store.read(Select(ENTRIES, {"home_data_center": self.data_center, "namespace": namespace}))
        taken = {(row.kind, row.name) for row in rows}
        entries = [entry_of(row) for row in rows if not owner or row.owner.startswith(owner)]
        entries += [
            entry for entry in await self._earlier.list(namespace) if (entry.name.kind, entry.name.name) not in taken
        ]
        known = [KnownEntry(entry, started_us) for entry in entries if _live(entry)]
        return [each for each in known if _is_of(each, kind)]

    async def _list(self, home: str, namespace: str) -> Iterator[KnownEntry]:
        started_us = self.now_us()
        rows = await self._store.read(Select(ENTRIES, {"home_data_center": home, "namespace": namespace}))
        return (KnownEntry(entry, started_us) for entry in map(entry_of, rows) if _live(entry))

    async def _find_elsewhere(self, name: Name) -> Entry | None:
        """A copy of the entry that another data center has of this name."""
        for home in await self._other_homes(name.namespace):
            rows = await self._store.read(Select(ENTRIES, {"home_data_center": home, **name.key}))
            entry = _live(entry_of(rows[0])) if rows else None
            if entry is not None:
                return entry
        return await self._earlier.find_elsewhere(name)

    async def _other_homes(self, namespace: str) -> Sequence[str]:
        return sorted(home for home, each in await self._homes() if each == namespace and home != self.data_center)

    async def _homes(self) -> set[tuple[str, str]]:
        rows: Sequence[Any] = await self._store.read(Select(HOMES, {"everything": EVERYTHING}))
        return {(row.home_data_center, row.namespace) for row in rows}

    def _key(self, name: Name) -> Mapping[str, Value]:
        return {"home_data_center": self.data_center, **name.key}


def _live(entry: Entry) -> Entry | None:
    return None if entry.state is EntryState.GONE else entry


def _is_of(known: KnownEntry, kind: str | None) -> bool:
    return kind is None or known.entry.name.kind == kind
