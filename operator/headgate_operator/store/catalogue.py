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
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

from headgate.api.read.parse import Resource
from headgate.applying.decide_steps import (
    CreateKeyspace,
    CreateTable,
    DropTable,
    FixDrift,
    NoteTables,
    Step,
)
from headgate.applying.desired_state import wanted_of
from headgate.applying.perform_steps import StepPerformer
from headgate.engines.registry import tables_of, tables_of_entry
from headgate.errors import HeadgateError, Unavailable
from headgate.store.catalogue.catalogue import RECEIPT_KEY_BYTES, Catalogue
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.consistency import Consistency
from headgate.store.model.drift import ActualTable, Drift, compare
from headgate_operator.model.names import Key, owner_of, owner_parts
from headgate_operator.model.world import UNKNOWN, ResourceFailure, StoreConnection, StoreView, Unread
from headgate_operator.store.schema_cache import SchemaViews
from headgate_operator.store.sessions import OpenSession, Sessions, failure_of

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
    failure: ResourceFailure
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
    def __init__(
        self,
        sessions: Sessions,
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
        self._views: dict[str, tuple[OpenSession, SchemaViews, StepPerformer]] = {}
        self._silent: dict[str, _Silent] = {}
        self._entries: dict[Key, _Read] = {}
        self._by_id: dict[UUID, Key] = {}
        self._by_namespace: dict[str, set[Key]] = {}
        self._catalogued: set[str] = set()

    def fork(self, sessions: Sessions) -> StoreSide:
        """A copy with the entries that are known so far; schemas are read again."""
        made = copy(self)
        made._sessions, made._views, made._catalogued = sessions, {}, set()
        made._silent = {digest: replace(silent) for digest, silent in self._silent.items()}
        made._entries, made._by_id = dict(self._entries), dict(self._by_id)
        made._by_namespace = {name: set(keys) for name, keys in self._by_namespace.items()}
        return made

    # ---- reading

    def owner(self, uid: str) -> str:
        return owner_of(self._cluster, uid)

    def reached(self, connection: StoreConnection) -> OpenSession | None:
        return self._sessions.of(connection.digest)

    def is_active(self, key: Key, uid: str) -> bool | None:
        """Whether the entry of this resource was active when it was read last; None: it was not read."""
        known = self._entries.get(key)
        if known is None or known.uid != uid:
            return None
        return (
            known.entry is not None
            and known.entry.state is EntryState.ACTIVE
            and known.entry.owner == self.owner(uid)
        )

    def keys_of(self, id_: UUID) -> list[Key]:
        key = self._by_id.get(id_)
        known = None if key is None else self._entries.get(key)
        is_his = known is not None and known.entry is not None and known.entry.id == id_
        return [key] if key is not None and is_his else []

    def invalidate(self, key: Key) -> None:
        known = self._entries.get(key)
        if known is not None:
            self._entries[key] = replace(known, at_s=float("-inf"))

    def forget(self, key: Key) -> None:
        known = self._entries.pop(key, None)
        if known is not None and known.entry is not None:
            self._by_id.pop(known.entry.id, None)
        in_namespace = self._by_namespace.get(key.namespace, set())
        in_namespace.discard(key)
        if not in_namespace:
            self._by_namespace.pop(key.namespace, None)

    async def view(
        self, key: Key, connection: StoreConnection, *, uid: str | None, resource: Resource | None
    ) -> StoreView | ResourceFailure | Unread:
        silent = self._silent.get(connection.digest)
        if silent is not None:
            if self._now_s() < silent.until_s:
                return silent.failure
            silent.until_s = self._now_s() + PROBE_S  # this one asks; the others need not wait for the answer
        try:
            view = await self._view(key, connection, uid or "", resource)
        except HeadgateError as error:
            return self._failed(connection, error)
        self._silent.pop(connection.digest, None)
        return view

    async def _view(
        self, key: Key, connection: StoreConnection, uid: str, resource: Resource | None
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
            keyspace = wanted_of(resource, connection.placement).place.keyspace
        existing_keyspace = await views.keyspace(keyspace)
        tables = await views.tables(keyspace)
        return StoreView(
            entry=entry,
            owner_lives=self._owner_lives(entry, uid),
            tables_made=await views.made(keyspace),
            tables_there=frozenset(tables),
            tables_total=await views.total() if entry is None else 0,
            namespace_tables=self._tables_in(key.namespace, connection.digest) if entry is None else 0,
            drifts=self._drifts(key, entry, resource, tables),
            keyspace_there=existing_keyspace is not None,
        )

    def _tables_in(self, namespace: str, digest: str) -> int:
        """Dedicated tables of the resources of a namespace, as far as they were read."""
        known_reads = (self._entries.get(key) for key in self._by_namespace.get(namespace, ()))
        return sum(
            len(known.tables)
            for known in known_reads
            if known is not None
            and known.digest == digest
            and known.entry is not None
            and known.entry.place.tables == "dedicated"
        )

    async def _entry(self, key: Key, uid: str, digest: str, catalogue: Catalogue) -> Entry | None:
        known = self._entries.get(key)
        if known is not None and (known.uid, known.digest) == (uid, digest) and self._is_believed(known, uid):
            return known.entry
        name = Name(key.kind, key.namespace, key.name)
        match: KnownEntry | None = await catalogue.find(name, consistency=Consistency.SERIAL)
        entry = None if match is None else match.entry
        self._entries[key] = _Read(digest, entry, self._now_s(), uid, frozenset())
        self._by_namespace.setdefault(key.namespace, set()).add(key)
        if entry is not None:
            self._by_id[entry.id] = key
        return entry

    def _is_believed(self, known: _Read, uid: str) -> bool:
        entry = known.entry
        if entry is None or entry.owner != self.owner(uid) or entry.generations.next is not None:
            return False
        if entry.state is EntryState.MAKING:
            return known.is_own and self._now_s() - known.at_s < GONE_ON_WITH_S
        return entry.state is EntryState.ACTIVE and self._now_s() - known.at_s < BELIEVED_S

    def _owner_lives(self, entry: Entry | None, uid: str) -> bool | Unread:
        parts = None if entry is None else owner_parts(entry.owner)
        if parts is None or parts[0] != self._cluster:
            return UNKNOWN
        return parts[1] == uid or self._lives(parts[1])

    def _drifts(
        self, key: Key, entry: Entry | None, resource: Resource | None, there: Mapping[str, ActualTable]
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

    async def step(self, key: Key, step: Step, connection: StoreConnection) -> ResourceFailure | None:
        """Take one step; why it could not be taken, if so."""
        held = self._held(connection)
        if held is None:
            return ResourceFailure(failure_of(Unavailable()).reason, "there is no connection")
        _, views, performer = held
        self.invalidate(key)
        try:
            performed = await self._patiently(connection, lambda: performer.perform(step))
        except HeadgateError as error:
            if isinstance(error, Unavailable):
                return self._failed(connection, error)
            return failure_of(error)
        finally:
            if isinstance(step, CreateKeyspace | CreateTable | DropTable | FixDrift):
                views.schema_changed()
            elif isinstance(step, NoteTables):
                views.made_changed()
        known = self._entries.get(key)
        if performed.entry is not None and known is not None:
            # An LWT's answer is as good as a serial read: what comes next is conditional on it again.
            self._entries[key] = replace(known, entry=performed.entry, at_s=self._now_s(), is_own=True)
        return None

    # ---- what others did

    async def check_schemas(self) -> list[Key]:
        """The resources whose tables were changed since the last read."""
        concerned: list[Key] = []
        for reached in self._sessions.all():
            held = self._views.get(reached.digest)
            if held is None:
                continue
            try:
                changed = await held[1].check_version()
            except HeadgateError as error:
                log.info("reading the schema version failed", extra={"error": str(error)})
                continue
            if changed:
                concerned += [key for key, known in self._entries.items() if known.tables & changed]
        return concerned

    def with_catalogue(self) -> list[OpenSession]:
        """Every session whose Cassandra was seen to have a catalogue."""
        return [reached for reached in self._sessions.all() if reached.digest in self._catalogued]

    async def owned(self) -> list[tuple[OpenSession, Entry]]:
        """All entries of this cluster's resources, of every session; Unavailable if one cannot be read."""
        entries: list[tuple[OpenSession, Entry]] = []
        for reached in self._sessions.all():
            _, views, performer = self._view_of(reached)
            there = await views.tables(reached.process_context.keyspace)
            if not all(table.name in there for table in CATALOGUE_TABLES):
                continue
            await performer.catalogue.move_earlier()
            known = await performer.catalogue.owned(owner_of(self._cluster, ""))
            entries += [(reached, each.entry) for each in known]
        return entries

    def performer(self, reached: OpenSession) -> StepPerformer:
        return self._view_of(reached)[2]

    # ---- within

    def _held(self, connection: StoreConnection) -> tuple[OpenSession, SchemaViews, StepPerformer] | None:
        reached = self._sessions.of(connection.digest)
        return None if reached is None else self._view_of(reached)

    def _view_of(self, reached: OpenSession) -> tuple[OpenSession, SchemaViews, StepPerformer]:
        held = self._views.get(reached.digest)
        if held is None or held[0] is not reached:
            process_context = reached.process_context
            catalogue = Catalogue(
                reached.store,
                now_us=process_context.clock.require,
                new_uuid=process_context.new_uuid,
                new_key=self._new_key,
            )
            performer = StepPerformer(reached.schema, catalogue, process_context.store_in)
            # Reading alone needs no trusted clock.
            reading = Catalogue(reached.store, now_us=process_context.clock.now_us)
            held = self._views[reached.digest] = (reached, SchemaViews(reached.schema, reading), performer)
        return held

    def _failed(self, connection: StoreConnection, error: HeadgateError) -> ResourceFailure:
        failure = failure_of(error)
        if not isinstance(error, Unavailable):
            return failure
        known = self._silent.get(connection.digest)
        since_us = known.failure.since_us if known and known.failure.reason is failure.reason else self._now_us()
        failure = replace(failure, since_us=since_us)
        self._silent[connection.digest] = _Silent(failure, self._now_s() + SILENT_S)
        return failure

    async def _patiently(self, connection: StoreConnection, work: Callable[[], Awaitable[T]]) -> T:
        """On a busy machine this process pauses now and then, and has to compare clocks again: a retry does the
        rest."""
        reached = self._sessions.of(connection.digest)
        for _ in range(CLOCK_TRIES if reached is not None else 0):
            assert reached is not None  # noqa: S101 - else there is no turn
            await reached.process_context.clock.until_trusted(CLOCK_WITHIN_S)
            with suppress(ClockNotTrusted):
                return await work()
        return await work()
