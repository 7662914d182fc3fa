"""The store, as the operator sees and changes it: one session per connection, on the functions of `headgate apply`.

It knows no Kubernetes. A failure of Cassandra is returned as a Trouble with its reason, never raised. Entries are
read at SERIAL. An entry that is ours and as wanted is believed for a while, and read again after each step on it,
after each change of its resource, and by the resync.

A Cassandra that has not answered gets requests of one caller at a time for the next seconds. The others fail at once,
so that a partition does not hold up all reconcilers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

from headgate.api.parse import Resource
from headgate.applying.decide_steps import (
    CreateKeyspace,
    CreateTable,
    DropTable,
    MendDrift,
    NoteTables,
    Step,
)
from headgate.applying.perform_steps import StepPerformer
from headgate.applying.wanted import Surroundings, wanted_of
from headgate.engines.registry import tables_of, tables_of_entry
from headgate.errors import HeadgateError, Unavailable
from headgate.store.catalogue import RECEIPT_KEY_BYTES, Catalogue
from headgate.store.catalogue_entry import Entry, Known, Name, State
from headgate.store.catalogue_tables import CATALOGUE_TABLES
from headgate.store.clocks import ClockNotTrusted
from headgate.store.consistency import Consistency
from headgate.store.drift import Drift, FoundTable, compare
from headgate_operator.names import Key, owner_of, owner_parts
from headgate_operator.schema_views import SchemaViews
from headgate_operator.sessions import Reached, SessionPool
from headgate_operator.troubles import trouble_of
from headgate_operator.world import UNKNOWN, Connection, StoreView, Trouble, Unread

log = logging.getLogger("headgate.operator")

BELIEVED_S: Final = 60.0
GONE_ON_WITH_S: Final = 5.0
"""How long an entry that is being created is known by the answer to our own write; each step detects a foreign
one."""
SILENT_S: Final = 2.0
PROBE_S: Final = 12.0
"""Longer than a read takes that is not answered."""
CLOCK_WITHIN_S: Final = 5.0
CLOCK_TRIES: Final = 2

T = TypeVar("T")

Lives = Callable[[str], bool]
"""Whether a resource of this cluster with that uid is there."""


@dataclass
class _Silent:
    """A Cassandra that does not answer."""

    trouble: Trouble
    until_s: float


@dataclass(frozen=True)
class _Read:
    """An entry as it was read by a connection, and for whose sake."""

    digest: str
    entry: Entry | None
    at_s: float
    uid: str
    tables: frozenset[str]
    is_own: bool = False
    """The entry after a write of ours: while it is being created it is not read in between."""


class StoreSide:
    """All stores."""

    def __init__(
        self,
        sessions: SessionPool,
        *,
        cluster: str,
        lives: Lives,
        now_us: Callable[[], int],
        now_s: Callable[[], float],
        new_key: Callable[[], bytes] = lambda: secrets.token_bytes(RECEIPT_KEY_BYTES),
    ) -> None:
        self._sessions = sessions
        self._new_key = new_key
        self._cluster = cluster
        self._lives = lives
        self._now_us = now_us
        self._now_s = now_s
        self._views: dict[str, tuple[Reached, SchemaViews, StepPerformer]] = {}
        self._silent: dict[str, _Silent] = {}
        self._entries: dict[Key, _Read] = {}
        self._by_id: dict[UUID, Key] = {}
        self._catalogued: set[str] = set()

    def fork(self, sessions: SessionPool) -> StoreSide:
        """A copy with the entries that are known so far; schemas are read again."""
        made = StoreSide(
            sessions,
            cluster=self._cluster,
            lives=self._lives,
            now_us=self._now_us,
            now_s=self._now_s,
            new_key=self._new_key,
        )
        made._silent = {digest: replace(silent) for digest, silent in self._silent.items()}
        made._entries, made._by_id = dict(self._entries), dict(self._by_id)
        return made

    # ---- reading

    def owner(self, uid: str) -> str:
        """The owner in the entry of a resource."""
        return owner_of(self._cluster, uid)

    def reached(self, connection: Connection) -> Reached | None:
        """The session of a connection."""
        return self._sessions.of(connection.digest)

    def is_active(self, key: Key, uid: str) -> bool | None:
        """Whether the entry of this resource was active when it was read last; None: it was not read."""
        known = self._entries.get(key)
        if known is None or known.uid != uid:
            return None
        return known.entry is not None and known.entry.state is State.ACTIVE and known.entry.owner == self.owner(uid)

    def keys_of(self, id_: UUID) -> list[Key]:
        """The resource whose entry has this id."""
        key = self._by_id.get(id_)
        known = None if key is None else self._entries.get(key)
        is_his = known is not None and known.entry is not None and known.entry.id == id_
        return [key] if key is not None and is_his else []

    def invalidate(self, key: Key) -> None:
        """Its entry has to be read again."""
        known = self._entries.get(key)
        if known is not None:
            self._entries[key] = replace(known, at_s=float("-inf"))

    def forget(self, key: Key) -> None:
        """It is gone."""
        known = self._entries.pop(key, None)
        if known is not None and known.entry is not None:
            self._by_id.pop(known.entry.id, None)

    async def view(
        self, key: Key, connection: Connection, *, uid: str | None, resource: Resource | None
    ) -> StoreView | Trouble | Unread:
        """The state of a resource in Cassandra."""
        silent = self._silent.get(connection.digest)
        if silent is not None:
            if self._now_s() < silent.until_s:
                return silent.trouble
            silent.until_s = self._now_s() + PROBE_S  # this one asks; the others need not wait for the answer
        try:
            found = await self._view(key, connection, uid or "", resource)
        except HeadgateError as error:
            return self._failed(connection, error)
        self._silent.pop(connection.digest, None)
        return found

    async def _view(
        self, key: Key, connection: Connection, uid: str, resource: Resource | None
    ) -> StoreView | Unread:
        held = self._held(connection)
        if held is None:
            return UNKNOWN
        _, views, _ = held
        there = await views.tables(connection.keyspace)
        if not all(table.name in there for table in CATALOGUE_TABLES):
            return StoreView(None, catalogue_there=False, keyspace_there=False)
        self._catalogued.add(connection.digest)
        entry = await self._entry(key, uid, connection.digest, views.catalogue)
        keyspace = entry.place.keyspace if entry is not None else connection.keyspace
        if entry is None and resource is not None:
            keyspace = wanted_of(resource, _surroundings(connection)).place.keyspace
        found_keyspace = await views.keyspace(keyspace)
        tables = await views.tables(keyspace)
        return StoreView(
            entry=entry,
            owner_lives=self._owner_lives(entry, uid),
            tables_made=await views.made(keyspace),
            tables_there=frozenset(tables),
            tables_total=await views.total(),
            drifts=self._drifts(key, entry, resource, tables),
            keyspace_there=found_keyspace is not None,
        )

    async def _entry(self, key: Key, uid: str, digest: str, catalogue: Catalogue) -> Entry | None:
        known = self._entries.get(key)
        if known is not None and (known.uid, known.digest) == (uid, digest) and self._is_believed(known, uid):
            return known.entry
        name = Name(key.kind, key.namespace, key.name)
        found: Known | None = await catalogue.find(name, consistency=Consistency.SERIAL)
        entry = None if found is None else found.entry
        self._entries[key] = _Read(digest, entry, self._now_s(), uid, frozenset())
        if entry is not None:
            self._by_id[entry.id] = key
        return entry

    def _is_believed(self, known: _Read, uid: str) -> bool:
        entry = known.entry
        if entry is None or entry.owner != self.owner(uid) or entry.generations.next is not None:
            return False
        if entry.state is State.MAKING:
            return known.is_own and self._now_s() - known.at_s < GONE_ON_WITH_S
        return entry.state is State.ACTIVE and self._now_s() - known.at_s < BELIEVED_S

    def _owner_lives(self, entry: Entry | None, uid: str) -> bool | Unread:
        parts = None if entry is None else owner_parts(entry.owner)
        if parts is None or parts[0] != self._cluster:
            return UNKNOWN
        return parts[1] == uid or self._lives(parts[1])

    def _drifts(
        self, key: Key, entry: Entry | None, resource: Resource | None, there: Mapping[str, FoundTable]
    ) -> tuple[Drift, ...]:
        if entry is None:
            return ()
        declared = tables_of(resource, entry.id) if resource is not None else tables_of_entry(entry)
        tables = declared or ()
        known = self._entries[key]
        self._entries[key] = replace(known, tables=frozenset(table.name for table in tables))
        return tuple(
            drift
            for table in tables
            if table.name in there
            for drift in compare(entry.place.keyspace, table, there[table.name])
        )

    # ---- changing

    async def step(self, key: Key, step: Step, connection: Connection) -> Trouble | None:
        """Take one step; why it could not be taken, if so."""
        held = self._held(connection)
        if held is None:
            return Trouble(trouble_of(Unavailable()).reason, "there is no connection")
        _, views, performer = held
        self.invalidate(key)
        try:
            performed = await self._patiently(connection, lambda: performer.perform(step))
        except HeadgateError as error:
            if isinstance(error, Unavailable):
                return self._failed(connection, error)
            return trouble_of(error)
        finally:
            if isinstance(step, CreateKeyspace | CreateTable | DropTable | MendDrift):
                views.schema_changed()
            elif isinstance(step, NoteTables):
                views.made_changed()
        known = self._entries.get(key)
        if performed.entry is not None and known is not None:
            # An LWT's answer is as good as a serial read: what comes next is conditional on it again.
            self._entries[key] = replace(known, entry=performed.entry, at_s=self._now_s(), is_own=True)
        return None

    # ---- what others did

    async def look(self) -> list[Key]:
        """The resources whose tables were changed since the last read."""
        concerned: list[Key] = []
        for reached in self._sessions.all():
            held = self._views.get(reached.digest)
            if held is None:
                continue
            try:
                changed = await held[1].look()
            except HeadgateError as error:
                log.info("reading the schema version failed", extra={"error": str(error)})
                continue
            if changed:
                concerned += [key for key, known in self._entries.items() if known.tables & changed]
        return concerned

    def with_catalogue(self) -> list[Reached]:
        """Every session whose Cassandra was seen to have a catalogue."""
        return [reached for reached in self._sessions.all() if reached.digest in self._catalogued]

    async def owned(self) -> list[tuple[Reached, Entry]]:
        """All entries of this cluster's resources, of every session; Unavailable if one cannot be read."""
        found: list[tuple[Reached, Entry]] = []
        for reached in self._sessions.all():
            _, views, performer = self._view_of(reached)
            there = await views.tables(reached.ground.keyspace)
            if not all(table.name in there for table in CATALOGUE_TABLES):
                continue
            known = await performer.catalogue.owned(owner_of(self._cluster, ""))
            found += [(reached, each.entry) for each in known]
        return found

    def performer(self, reached: Reached) -> StepPerformer:
        """The runner of steps in a session."""
        return self._view_of(reached)[2]

    # ---- within

    def _held(self, connection: Connection) -> tuple[Reached, SchemaViews, StepPerformer] | None:
        reached = self._sessions.of(connection.digest)
        return None if reached is None else self._view_of(reached)

    def _view_of(self, reached: Reached) -> tuple[Reached, SchemaViews, StepPerformer]:
        held = self._views.get(reached.digest)
        if held is None or held[0] is not reached:
            ground = reached.ground
            catalogue = Catalogue(
                ground.store_in(ground.keyspace),
                now_us=ground.clock.require,
                new_uuid=ground.new_uuid,
                new_key=self._new_key,
            )
            performer = StepPerformer(reached.schema, catalogue, ground.store_in)
            # Reading alone needs no trusted clock.
            reading = Catalogue(ground.store_in(ground.keyspace), now_us=ground.clock.now_us)
            held = self._views[reached.digest] = (reached, SchemaViews(reached.schema, reading), performer)
        return held

    def _failed(self, connection: Connection, error: HeadgateError) -> Trouble:
        trouble = trouble_of(error)
        if not isinstance(error, Unavailable):
            return trouble
        known = self._silent.get(connection.digest)
        since_us = known.trouble.since_us if known and known.trouble.reason is trouble.reason else self._now_us()
        trouble = replace(trouble, since_us=since_us)
        self._silent[connection.digest] = _Silent(trouble, self._now_s() + SILENT_S)
        return trouble

    async def _patiently(self, connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
        """On a busy machine this process pauses now and then, and has to compare clocks again: a retry does the
        rest."""
        reached = self._sessions.of(connection.digest)
        for _ in range(CLOCK_TRIES if reached is not None else 0):
            assert reached is not None  # noqa: S101 - else there is no turn
            await reached.ground.clock.until_trusted(CLOCK_WITHIN_S)
            with suppress(ClockNotTrusted):
                return await work()
        return await work()


def _surroundings(connection: Connection) -> Surroundings:
    return Surroundings(connection.keyspace, connection.data_center, connection.nodes)
