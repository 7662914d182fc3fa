"""The catalogue: read by every process, written by LWT in an entry's home data center, and by its owner alone.

    declared = await catalogue.declare(name, document, place=..., shards=...)
    known = await catalogue.find(name)              # known.promise limits how long it may be used

It knows no Kubernetes, no YAML and no engine. Invariants:

- in a data center one name is one row, so of two creators one is rejected; a recreated resource has a fresh id;
- a name of which a copy shows another home is not created, and an entry is changed in its home alone (rule R5);
- a change names the id, the revision and the owner it has read, so none is lost and no other owner's entry changes;
- the life of a creation goes one way (`MOVES`), so a late writer restores nothing.

Survives lost answers: each step begins with a serial read, and is taken again when it is not known to be applied.
Survives a crash between any two writes: a home without entries costs a read, and the next `declare` does the rest.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar
from uuid import UUID, uuid4

from headgate.errors import Conflict
from headgate.store.catalogue import decide_generation as decide
from headgate.store.catalogue.decide_generation import Generations
from headgate.store.catalogue.entry import (
    BeingDeleted,
    Document,
    Entry,
    EntryState,
    Name,
    StoragePlace,
    encode_document,
    entry_cells,
    entry_of,
    generation_cells,
    owned_by_another,
)
from headgate.store.catalogue.reading import CatalogueReader
from headgate.store.catalogue.tables import ENTRIES, EVERYTHING, HOMES, TABLES_MADE
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import CellCondition, Decision, Insert, InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.model.types import Value
from headgate.store.store import OutcomeUnknown, Store

Done = TypeVar("Done")

TRIES_MAX = 16
RECEIPT_KEY_BYTES = 32
RETRY_PAUSE_S = 0.02


class StaleEntry(Conflict):
    """Its life or its generations have changed meanwhile: read it again."""


class AnotherCreation(Conflict):
    """The name belongs to another creation by now, or is free."""


class TooMuchContention(Conflict):
    """Others kept changing the entry."""


class Change(Enum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Declared:
    entry: Entry
    change: Change


Check = Callable[[Document, Document], Document]
"""From the existing document and the wanted one: the one to write. Raises the error for its author."""


def take_wanted(_standing: Document, wanted: Document) -> Document:
    return wanted


MOVES = {
    EntryState.MAKING: {EntryState.ACTIVE, EntryState.RETAINED, EntryState.DELETING},
    EntryState.ACTIVE: {EntryState.RETAINED, EntryState.DELETING},
    EntryState.RETAINED: {EntryState.DELETING},
    EntryState.DELETING: {EntryState.RETAINED, EntryState.GONE},
    EntryState.GONE: set[EntryState](),
}
"""From each state, the next states that its owner may set. A retained entry comes back by `adopt` alone."""


class Catalogue(CatalogueReader):
    """Entries by name. `owner` is the owner that the writes are for; without one it only reads."""

    def __init__(
        self,
        store: Store,
        *,
        now_us: Callable[[], int],
        owner: str = "",
        new_uuid: Callable[[], UUID] = uuid4,
        new_key: Callable[[], bytes] = lambda: secrets.token_bytes(RECEIPT_KEY_BYTES),
    ) -> None:
        super().__init__(store, now_us=now_us, new_uuid=new_uuid)
        self.owner = owner
        self._new_key = new_key
        self._homed: set[str] = set()
        """Namespaces whose row in `catalogue_homes` is known to exist: it is never deleted."""

    def for_owner(self, owner: str) -> Catalogue:
        """The same, writing for another owner: an operator writes for each resource in the name of its uid."""
        other = copy.copy(self)
        other.owner = owner
        return other

    async def declare(
        self, name: Name, document: Document, *, place: StoragePlace, shards: int, check: Check = take_wanted
    ) -> Declared:
        """Make the entry, or change its document to this one. The place and the shards are taken at creation only."""
        made: list[UUID] = []

        async def step() -> Declared | None:
            standing = await self._read_serially(name)
            if standing is None or standing.state is EntryState.GONE:
                fresh = self._fresh(name, document, place, shards)
                await self._require_free_elsewhere(fresh)
                made.append(fresh.id)
                return Declared(fresh, Change.CREATED) if await self._create(fresh, standing) else None
            self._require_mine(standing)
            wanted = check(standing.document, document)
            if encode_document(wanted) == encode_document(standing.document):
                return Declared(standing, Change.CREATED if standing.id in made else Change.UNCHANGED)
            changed = replace(standing, document=wanted, revision=standing.revision + 1, changed_us=self.now_us())
            cells = _cells(changed, "document", "revision", "changed_us")
            applied = await self._change(standing, cells, is_("revision", standing.revision))
            return Declared(changed, Change.UPDATED) if applied else None

        return await self._until_done(name, step)

    async def adopt(self, entry: Entry, document: Document, *, check: Check = take_wanted) -> Entry:
        """Take over an entry that was read as another owner's, or as retained, with this document, if it is still so.

        A retained entry is completed where parts are missing: it comes back as `making`.
        """

        async def step() -> Entry | None:
            standing = await self._read_this(entry)
            if standing.state is EntryState.DELETING:
                raise BeingDeleted(resource=standing.name)
            if standing.owner == self.owner and standing.state is not EntryState.RETAINED:
                return standing
            if standing.owner not in (entry.owner, self.owner):
                raise owned_by_another(standing, self.owner)
            adopted = replace(
                standing,
                owner=self.owner,
                state=EntryState.MAKING if standing.state is EntryState.RETAINED else standing.state,
                document=check(standing.document, document),
                revision=standing.revision + 1,
                changed_us=self.now_us(),
            )
            cells = _cells(adopted, "owner", "state", "document", "revision", "changed_us")
            conditions = is_("revision", standing.revision), is_("state", standing.state.value)
            return adopted if await self._change(standing, cells, *conditions) else None

        return await self._until_done(entry.name, step)

    async def set_state(self, entry: Entry, state: EntryState) -> Entry:
        """Advance the life of this creation. Conflict if its name belongs to another by now, or it has advanced
        further."""
        untried = entry.owner == self.owner and state in MOVES[entry.state]

        async def step() -> Entry | None:
            nonlocal untried
            standing = entry if untried else await self._read_this(entry, even_gone=state is EntryState.GONE)
            untried = False
            if standing.state is state:
                return standing
            if standing.owner != self.owner:
                raise owned_by_another(standing, self.owner)
            if state not in MOVES[standing.state]:
                raise StaleEntry(resource=standing.name, state=standing.state.value, wanted=state.value)
            moved = replace(standing, state=state, changed_us=self.now_us())
            cells = _cells(moved, "state", "changed_us")
            applied = await self._change(standing, cells, is_("state", standing.state.value))
            return moved if applied else None

        return await self._until_done(entry.name, step)

    async def require_state(self, entry: Entry, state: EntryState) -> None:
        """Conflict unless this very creation is in this state, by a serial read."""
        standing = await self._read_this(entry)
        if standing.state is not state:
            raise StaleEntry(resource=standing.name, state=standing.state.value, wanted=state.value)

    async def announce(self, entry: Entry, number: int, shards: int, *, skew_us: int) -> Entry:
        """Announce the generation with this number and number of shards; its rows exist (rule R6).

        StaleEntry if it would have another number by now, ChangeUnderWay while another change is not over.
        """

        def decide_announced(standing: Entry) -> Generations | None:
            self._require_mine(standing)
            known = standing.generations
            announced = decide.decide_next(known, shards, now_us=self.now_us(), skew_us=skew_us)
            if announced is None:
                return None
            if announced.number != number:
                raise StaleEntry(resource=standing.name, generation=announced.number, wanted=number)
            return replace(known, next=announced)

        return await self._move_on(entry, decide_announced)

    async def make_sure(self, entry: Entry, *, skew_us: int) -> Entry:
        """Where a next generation is announced without a time when it is sure, write that time; from a serial read.

        Any process may do this, and every process that finds it should, for any owner: it follows from the stored
        state.
        """
        return await self._move_on(entry, lambda standing: self._sure(standing.generations, skew_us))

    def _sure(self, known: Generations, skew_us: int) -> Generations | None:
        if known.next is None or known.sure_us is not None:
            return None
        sure_us = decide.decide_sure(known.next, acknowledged_us=self.now_us(), skew_us=skew_us)
        return replace(known, sure_us=sure_us)

    async def turn(self, entry: Entry, *, skew_us: int) -> Entry:
        """Confirm the announced generation, and make it the current one once nobody writes the old one.

        As with `make_sure`, any process may do this: it follows from the stored state.
        """

        def decide_turn(standing: Entry) -> Generations | None:
            known = standing.generations
            over = decide.is_over(known, now_us=self.now_us(), skew_us=skew_us)
            return decide.turned(known) if over else self._sure(known, skew_us)

        return await self._move_on(entry, decide_turn)

    async def retire(self, entry: Entry, number: int) -> Entry:
        """Delete an earlier generation that holds nothing any more. Called by engines, after its last scan."""

        def decide_retired(standing: Entry) -> Generations | None:
            known = standing.generations
            return decide.retired(known, number) if number in {each.number for each in known.earlier} else None

        return await self._move_on(entry, decide_retired)

    async def _move_on(self, entry: Entry, decide_move: Callable[[Entry], Generations | None]) -> Entry:
        """From the generations that are read to those decided on, until none are; refused if anybody moved them
        since."""

        async def step() -> Entry | None:
            standing = await self._read_this(entry)
            generations = decide_move(standing)
            if generations is None:
                return standing
            before, after = generation_cells(standing.generations), generation_cells(generations)
            conditions = [is_(cell, before[cell]) for cell in ("generation", "next_generation", "sure_us", "earlier")]
            await self._change(standing, {**after, "changed_us": self.now_us()}, *conditions)
            return None

        return await self._until_done(entry.name, step)

    async def move_earlier(self) -> None:
        """Move all that trees before 0.1 have left at home here. Where nothing was left it is one request."""
        for namespace in sorted(await self._earlier.namespaces()):
            for entry in await self._earlier.list(namespace):
                await self._read_serially(entry.name)

    async def note_tables(self, keyspace: str, names: Sequence[str]) -> None:
        """Record their creation. After they exist: a crash in between is repaired by the next process that reads
        it."""
        for name in names:
            now_us = self.now_us()
            row: dict[str, Value] = {"tables_keyspace": keyspace, "table_name": name, "made_us": now_us}
            await self._store.write(Insert(TABLES_MADE, row, timestamp_us=now_us))

    async def _until_done(self, name: Name, step: Callable[[], Awaitable[Done | None]]) -> Done:
        """Take a step again, from its serial read, until its outcome is known."""
        for again in range(TRIES_MAX):
            if again:
                await self._store.pause(RETRY_PAUSE_S * again)
            done = await step()
            if done is not None:
                return done
        raise TooMuchContention(resource=name, tries=TRIES_MAX)

    async def _read_serially(self, name: Name) -> Entry | None:
        """The entry as a change finds it: one of an earlier tree is moved first."""
        for again in range(TRIES_MAX):
            rows = await self._store.read(Select(ENTRIES, self._key(name), consistency=Consistency.SERIAL))
            if rows:
                return entry_of(rows[0])
            if await self._earlier.find(name) is None:
                return None
            if again:
                await self._store.pause(RETRY_PAUSE_S * again)
            moved = await self._earlier.fence(name)
            if moved is not None:
                await self._home(name.namespace)
                row = {**self._key(name), **entry_cells(moved)}
                await self._applied(InsertIfAbsent(ENTRIES, row, attempt=self.new_uuid()))
        raise TooMuchContention(resource=name, tries=TRIES_MAX)

    async def _read_this(self, entry: Entry, *, even_gone: bool = False) -> Entry:
        """This very creation, in its current state; refused outside its home."""
        entry.require_home(self.data_center)
        standing = await self._read_serially(entry.name)
        if standing is None or standing.id != entry.id or (standing.state is EntryState.GONE and not even_gone):
            raise AnotherCreation(resource=entry.name, id=entry.id)
        return standing

    def _fresh(self, name: Name, document: Document, place: StoragePlace, shards: int) -> Entry:
        return Entry(
            name=name,
            id=self.new_uuid(),
            owner=self.owner,
            state=EntryState.MAKING,
            revision=1,
            document=document,
            place=place,
            generations=decide.first(shards),
            changed_us=self.now_us(),
            receipt_key=self._new_key(),
        )

    async def _create(self, fresh: Entry, gone: Entry | None) -> bool:
        """The home of its namespace, then the name, which decides."""
        await self._home(fresh.name.namespace)
        if gone is not None:
            return await self._change(gone, entry_cells(fresh), is_("state", EntryState.GONE.value))
        row = {**self._key(fresh.name), **entry_cells(fresh)}
        return await self._applied(InsertIfAbsent(ENTRIES, row, attempt=self.new_uuid()))

    async def _require_free_elsewhere(self, fresh: Entry) -> None:
        """WrongDataCenter where the name is known to be at home in another data center, or is to be created there."""
        fresh.require_home(self.data_center)
        elsewhere = await self._find_elsewhere(fresh.name)
        if elsewhere is not None:
            elsewhere.require_home(self.data_center)

    async def _home(self, namespace: str) -> None:
        """Show other data centers that this one has entries of the namespace."""
        if namespace not in self._homed:
            row = {"everything": EVERYTHING, "home_data_center": self.data_center, "namespace": namespace}
            await self._store.write(Insert(HOMES, row, timestamp_us=self.now_us()))
            self._homed.add(namespace)

    async def _change(self, standing: Entry, cells: dict[str, Value], *conditions: CellCondition) -> bool:
        """Change cells of this very creation, if it still has the same owner; in its home alone."""
        standing.require_home(self.data_center)
        conditions = (is_("id", standing.id), is_("owner", standing.owner), *conditions)
        key = self._key(standing.name)
        return await self._applied(UpdateIf(ENTRIES, key, cells, *conditions, attempt=self.new_uuid()))

    async def _applied(self, statement: Decision) -> bool:
        """Whether it is known to have existed: an unsure caller takes the step again from a serial read."""
        try:
            return (await self._store.decide(statement)).applied
        except OutcomeUnknown:
            return False

    def _require_mine(self, standing: Entry) -> None:
        """And in a state in which it can be changed."""
        if standing.owner != self.owner or standing.state is EntryState.RETAINED:
            raise owned_by_another(standing, self.owner)
        if standing.state is EntryState.DELETING:
            raise BeingDeleted(resource=standing.name)


def _cells(entry: Entry, *names: str) -> dict[str, Value]:
    cells = entry_cells(entry)
    return {name: cells[name] for name in names}
