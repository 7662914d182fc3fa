"""Entries of the table `catalogue`, which trees before 0.1 wrote and data centers shared: read where they lie, and
moved to `catalogue_entries` by the first change of each (docs/internals/protocols/catalogue.md, "Upgrade").

    earlier row  --fence: LWT on its owner and home-->  fenced row  --insert if absent-->  row of `catalogue_entries`

Invariants: an unfenced row is changed by nobody but processes of those trees; a fenced row never changes; the row of
`catalogue_entries` is made of a fenced one. A fenced row names no owner and no data center that exist, so a process
of such a tree neither uses nor changes it. A process that finds no such table does not ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from headgate.errors import EnvironmentProblem
from headgate.store.catalogue.entry import Entry, EntryState, Name, entry_of
from headgate.store.catalogue.tables import EARLIER_ENTRIES
from headgate.store.model.consistency import Consistency
from headgate.store.model.rows import Row
from headgate.store.model.statements import Scan, Select, UpdateIf, is_
from headgate.store.store import OutcomeUnknown, Store

FENCE = "moved to entries: "
"""Before the owner and the home of a row that is moved."""


class EarlierEntries:
    """Those whose home is the data center of this store. Shared by all catalogues of a connection."""

    def __init__(self, store: Store, new_uuid: Callable[[], UUID]) -> None:
        self._store = store
        self._new_uuid = new_uuid
        self._there = True

    async def find(self, name: Name) -> Entry | None:
        """As it is, fenced or not. One that is not fenced was decided in all data centers, and is read at QUORUM."""
        row = await self._row(name, Consistency.LOCAL_QUORUM)
        if row is not None and not _is_fenced(row):
            row = await self._row(name, Consistency.QUORUM)
        return None if row is None else _unfenced(entry_of(row))

    async def find_elsewhere(self, name: Name) -> Entry | None:
        """As a copy of one at home in another data center shows it, until that one moves it."""
        row = await self._row(name, Consistency.LOCAL_QUORUM, ours=False)
        return None if row is None or _is_fenced(row) else entry_of(row)

    async def fence(self, name: Name) -> Entry | None:
        """The entry as no process of an earlier tree can change it any more; None where there is nothing to move, or
        where it changed meanwhile and has to be read again."""
        row = await self._row(name, Consistency.SERIAL)
        if row is None or _is_fenced(row):
            return None if row is None else _unfenced(entry_of(row))
        cells = {"owner": FENCE + row.owner, "home_data_center": FENCE + row.home_data_center}
        cells_read = ("id", "owner", "state", "revision", "changed_us", "sure_us")
        conditions = [is_(cell, getattr(row, cell)) for cell in cells_read]
        statement = UpdateIf(EARLIER_ENTRIES, name.key, cells, *conditions, attempt=self._new_uuid())
        try:
            applied = (await self._store.decide(statement)).applied
        except OutcomeUnknown:
            return None
        return entry_of(row) if applied else None

    async def list(self, namespace: str) -> Sequence[Entry]:
        """Those of a namespace, as copies here show them."""
        if not self._there:
            return []
        try:
            rows = await self._store.read(Select(EARLIER_ENTRIES, {"namespace": namespace}))
        except EnvironmentProblem:
            self._there = False
            return []
        return [_unfenced(entry_of(row)) for row in rows if self._is_live(row)]

    async def namespaces(self) -> set[str]:
        if not self._there:
            return set()
        try:
            keys = self._store.scan(Scan(EARLIER_ENTRIES, ("namespace",)))
            return {key.namespace async for key in keys}
        except EnvironmentProblem:
            self._there = False
            return set()

    async def _row(self, name: Name, consistency: Consistency, *, ours: bool = True) -> Row | None:
        if not self._there:
            return None
        try:
            rows = await self._store.read(Select(EARLIER_ENTRIES, name.key, consistency=consistency))
        except EnvironmentProblem:
            self._there = False
            return None
        return next((row for row in rows if self._is_live(row, ours=ours)), None)

    def _is_live(self, row: Row, *, ours: bool = True) -> bool:
        """Whether it is not gone, and at home in this data center, or else in another."""
        home = self._store.data_center
        return row.state != EntryState.GONE.value and ours == (row.home_data_center in (home, FENCE + home))


def _is_fenced(row: Row) -> bool:
    return str(row.owner).startswith(FENCE)


def _unfenced(entry: Entry) -> Entry:
    place = replace(entry.place, data_center=entry.place.data_center.removeprefix(FENCE))
    return replace(entry, owner=entry.owner.removeprefix(FENCE), place=place)
