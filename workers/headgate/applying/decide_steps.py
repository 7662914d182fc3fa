"""The remaining steps in the store for one resource: the same for `headgate apply` and for the operator.

Pure: the input is the wanted and the observed state, the output the first missing steps in their order. The performer
(perform_steps.py) observes again afterwards and asks again, until there are none. Each step names everything it
creates. It can be performed twice, by two processes at once, and after a crash, because it is an LWT or uses IF NOT
EXISTS.

Invariants: a step never depends on the answer of an earlier step. Lanes are created before any process can learn of
them (before `Activate`, before `Announce`). A table that was noted is never created again. An entry with another
owner is changed only by `Adopt`, which names the owner that was observed. Rows and tables are deleted only once the
entry is `deleting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from headgate.api.read.parse import ResourceInvalid
from headgate.api.read.versions import carry_unknown
from headgate.applying.desired_state import Wanted, allowed_change, keyspace_of
from headgate.engines.registry import (
    ENGINE_MODULES,
    engine_of,
    engine_of_entry,
    stored_record,
    tables_of,
    tables_of_entry,
)
from headgate.errors import HeadgateError, OperationRefused
from headgate.expiry import SECOND_US, others_may_act_after
from headgate.store.catalogue.decide_generation import ChangeUnderWay, Generation, decide_next, is_over
from headgate.store.catalogue.entry import (
    BeingDeleted,
    Document,
    Entry,
    EntryState,
    Name,
    StoragePlace,
    WrongDataCenter,
    encode_document,
    owned_by_another,
)
from headgate.store.model.cql import create_keyspace_cql, create_table_cql, drop_table_cql
from headgate.store.model.drift import Drift, DriftStatus, missing
from headgate.store.model.table import Keyspace, Table

TABLES_MAX = 300
"""Of all users in a cluster: each costs every node memory, and past a few hundred the cluster suffers."""
HEARD_AFTER_US = 20 * SECOND_US
"""After this time as `deleting`, every process that can read the catalogue has stopped using it."""

_ANY_CREATION = UUID(int=0)


# ---- steps


@dataclass(frozen=True)
class CreateKeyspace:
    """Create a keyspace; an existing one stays as it is."""

    keyspace: Keyspace

    @property
    def cql(self) -> str:
        return create_keyspace_cql(self.keyspace)


@dataclass(frozen=True)
class CreateTable:
    """Make a table under its id, which follows from its name."""

    keyspace: str
    table: Table

    @property
    def cql(self) -> str:
        return create_table_cql(self.keyspace, self.table)


@dataclass(frozen=True)
class NoteTables:
    """Wait until every node serves these tables, then record their creation, so that none is created again."""

    keyspace: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class FixDrift:
    """Add a column that is missing, set an option that is off."""

    keyspace: str
    drift: Drift

    @property
    def cql(self) -> str:
        return self.drift.cql or ""


@dataclass(frozen=True)
class DeclareEntry:
    """Create the entry, or write this document into the existing one if this owner owns it."""

    name: Name
    owner: str
    document: Document = field(hash=False)
    place: StoragePlace
    shards: int


@dataclass(frozen=True)
class MakeLanes:
    """Create the rows of a generation of shards before any process uses it."""

    engine: str
    entry: Entry
    generation: Generation


@dataclass(frozen=True)
class _StateChange:
    """Set the state of the entry."""

    entry: Entry
    state: ClassVar[EntryState]


class Activate(_StateChange):
    """Mark the entry as complete: from now on it takes puts."""

    state = EntryState.ACTIVE


class Retain(_StateChange):
    """Its resource was deleted, and its data stays: puts and receives are refused from now on."""

    state = EntryState.RETAINED


class MarkDeleting(_StateChange):
    """Its tables and rows are about to go: puts and receives are refused from now on."""

    state = EntryState.DELETING


class Forget(_StateChange):
    """The name is free; the id is never used again."""

    state = EntryState.GONE


@dataclass(frozen=True)
class Announce:
    """Announce the next generation to all processes, if the current one is still this."""

    entry: Entry
    number: int
    shards: int
    skew_us: int


@dataclass(frozen=True)
class MakeSure:
    """Write the time from which no process writes to the generation before the announced one (rule R6)."""

    entry: Entry
    skew_us: int


@dataclass(frozen=True)
class Turn:
    """Make the announced generation the current one, now that no process writes to the one before."""

    entry: Entry
    skew_us: int


@dataclass(frozen=True)
class Adopt:
    """Transfer an entry to this owner, if it still belongs to the observed one, and write this owner's document into
    it."""

    entry: Entry
    """As it was observed: its current owner is the one that releases it."""
    owner: str
    document: Document = field(hash=False)


@dataclass(frozen=True)
class DropTable:
    """Drop a table of a creation under deletion; the record of its creation stays."""

    entry: Entry
    keyspace: str
    name: str

    @property
    def cql(self) -> str:
        return drop_table_cql(self.keyspace, self.name)


@dataclass(frozen=True)
class ForgetRows:
    """Delete the rows of a creation under deletion from shared tables, except those that expire by themselves, such
    as messages."""

    engine: str
    entry: Entry


SchemaStep = CreateKeyspace | CreateTable | FixDrift | DropTable
"""Those that are one statement each."""
StateStep = Activate | Retain | MarkDeleting | Forget
GenerationStep = Announce | MakeSure | Turn
Step = SchemaStep | StateStep | GenerationStep | DeclareEntry | Adopt | NoteTables | MakeLanes | ForgetRows


# ---- observed state


@dataclass(frozen=True)
class CurrentState:
    """The state of one resource in Cassandra, as it was read."""

    entry: Entry | None = None
    """None where there is none, or only a deleted one."""
    keyspace_there: bool = True
    """Whether the keyspace of its tables exists."""
    there: frozenset[str] = frozenset()
    """The tables of that keyspace."""
    noted: frozenset[str] = frozenset()
    """The tables that were ever made in it."""
    drifts: tuple[Drift, ...] = ()
    """Of those of its tables that exist."""
    tables_total: int = 0
    """Of all users of the cluster."""


@dataclass(frozen=True)
class Decided:
    """The steps to take now; when there are none, why it is not as wanted, if it is not."""

    steps: tuple[Step, ...] = ()
    stopped: HeadgateError | None = None
    """An action that a person has to take first, or a change of shards that has to finish first."""
    by_hand: tuple[Drift, ...] = ()
    """Differences that only a person can fix: no step is taken before."""
    is_supported: bool = True
    """Whether this release has its engine; of another only the entry is created."""
    again_at_us: int | None = None
    """When the next step is due, if nothing else changes."""


class TooManyTables(OperationRefused):
    """Dedicated tables would bring the cluster above its limit."""


class StorageElsewhere(OperationRefused):
    """Its home data centre is not the one that this connection uses (rule R5)."""


# ---- decisions


def decide_steps(
    wanted: Wanted,
    current: CurrentState,
    *,
    owner: str,
    data_center: str,
    now_us: int,
    adopting: bool = False,
    tables_max: int = TABLES_MAX,
    engines: Mapping[str, str] = ENGINE_MODULES,
) -> Decided:
    """The steps that bring the store to the state that this resource wants. `data_center` is the connection's."""
    if wanted.place.data_center != data_center:
        home = wanted.place.data_center
        remedy = f"set DATA_CENTER={home} and name contact points in that data center"
        return Decided(stopped=StorageElsewhere(home=home, connected_to=data_center, remedy=remedy))
    entry = current.entry
    if entry is None:
        stopped = _check_tables_max(wanted, current, tables_max, engines)
        return Decided(stopped=stopped) if stopped else Decided((_declare(wanted, owner),))
    try:
        entry.require_home(data_center)
        changed = encode_document(_document_to_write(wanted, entry)) != encode_document(entry.document)
    except (WrongDataCenter, ResourceInvalid) as refused:
        return Decided(stopped=refused)
    if entry.state is EntryState.DELETING:
        return Decided(stopped=BeingDeleted(resource=entry.name))
    if entry.owner != owner and not adopting:
        return Decided(stopped=owned_by_another(entry, owner))
    if entry.owner != owner or entry.state is EntryState.RETAINED:
        return Decided((Adopt(entry, owner, wanted.document),))
    first = (_declare(wanted, owner),) if changed else ()
    return _decide_rest(wanted, current, entry, first, now_us=now_us, engines=engines)


def decide_removal(
    entry: Entry, current: CurrentState, *, now_us: int, engines: Mapping[str, str] = ENGINE_MODULES
) -> Decided:
    """The steps that leave nothing of a creation but its used id. Called again until it is gone.

    The caller stops its workers once the entry is marked, and before it calls again.
    """
    if entry.state is not EntryState.DELETING:
        return Decided((MarkDeleting(entry),))
    heard_us = entry.changed_us + HEARD_AFTER_US
    if now_us < heard_us:
        return Decided(again_at_us=heard_us)
    tables = tables_of_entry(entry, engines=engines) or ()
    if entry.place.tables == "shared":
        steps: tuple[Step, ...] = (ForgetRows(engine_of_entry(entry), entry),) if tables else ()
        return Decided((*steps, Forget(entry)))
    keyspace = entry.place.keyspace
    there = [table.name for table in tables if table.name in current.there]
    unnoted = tuple(name for name in there if name not in current.noted)
    noting = (NoteTables(keyspace, unnoted),) if unnoted else ()
    return Decided((*noting, *(DropTable(entry, keyspace, name) for name in there), Forget(entry)))


def _decide_rest(
    wanted: Wanted,
    current: CurrentState,
    entry: Entry,
    first: tuple[Step, ...],
    *,
    now_us: int,
    engines: Mapping[str, str],
) -> Decided:
    """Of an entry that is its owner's: tables, then lanes, then generations."""
    tables = tables_of(wanted.resource, entry.id, engines=engines)
    if tables is None:
        return Decided(first, is_supported=False)
    dropped = [table for table in tables if table.name not in current.there and table.name in current.noted]
    by_hand = (
        *(drift for drift in current.drifts if drift.standing is DriftStatus.BY_HAND),
        *(missing(table) for table in dropped),
    )
    steps = [*first, *_table_steps(keyspace_of(wanted, entry.place), tables, current)]
    if by_hand:
        return Decided(tuple(steps), by_hand=by_hand)
    record = stored_record(engine_of(wanted.resource), engines=engines)
    lanes = record is not None and record.make_generation is not None
    if entry.state is EntryState.MAKING:
        if lanes:
            steps += _lanes_of_all(wanted, entry)
        steps.append(Activate(entry))
    if not wanted.makes_generations:
        return Decided(tuple(steps))
    try:
        steps += _generation_steps(wanted, entry, lanes=lanes, now_us=now_us)
    except ChangeUnderWay as under_way:
        return Decided(tuple(steps), stopped=under_way, again_at_us=_over_us(wanted, entry))
    return Decided(tuple(steps), again_at_us=_over_us(wanted, entry))


def _table_steps(keyspace: Keyspace, tables: tuple[Table, ...], current: CurrentState) -> Iterator[Step]:
    create = [table for table in tables if table.name not in current.there and table.name not in current.noted]
    if create and not current.keyspace_there:
        yield CreateKeyspace(keyspace)
    for table in create:
        yield CreateTable(keyspace.name, table)
    for drift in current.drifts:
        if drift.standing is DriftStatus.MENDABLE:
            yield FixDrift(keyspace.name, drift)
    unnoted = tuple(table.name for table in tables if table.name not in current.noted)
    if unnoted:
        yield NoteTables(keyspace.name, unnoted)


def _lanes_of_all(wanted: Wanted, entry: Entry) -> Iterator[Step]:
    for window in entry.generations.windows():
        yield MakeLanes(engine_of(wanted.resource), entry, Generation(window.number, window.shards, window.from_us))


def _generation_steps(wanted: Wanted, entry: Entry, *, lanes: bool, now_us: int) -> Iterator[Step]:
    """One change at a time: an announced generation is confirmed, and becomes current once the change is over."""
    known = entry.generations
    if known.next is not None and known.sure_us is None:
        yield MakeSure(entry, wanted.skew_us)
        return
    if is_over(known, now_us=now_us, skew_us=wanted.skew_us):
        yield Turn(entry, wanted.skew_us)
        return
    announced = decide_next(known, wanted.shards, now_us=now_us, skew_us=wanted.skew_us)
    if announced is None:
        return
    if lanes:
        yield MakeLanes(engine_of(wanted.resource), entry, Generation(announced.number, announced.shards))
    yield Announce(entry, announced.number, announced.shards, wanted.skew_us)
    yield MakeSure(entry, wanted.skew_us)


def _over_us(wanted: Wanted, entry: Entry) -> int | None:
    """When the change that is under way is over, as far as it is known."""
    sure_us = entry.generations.sure_us
    return None if sure_us is None else others_may_act_after(sure_us, wanted.skew_us)


def _declare(wanted: Wanted, owner: str) -> DeclareEntry:
    return DeclareEntry(wanted.name, owner, wanted.document, wanted.place, wanted.shards)


def _document_to_write(wanted: Wanted, entry: Entry) -> Document:
    """With the fields that a newer version added. An existing document was checked when it was written."""
    merged = carry_unknown(entry.document, wanted.document)
    if encode_document(merged) == encode_document(entry.document):
        return entry.document
    return allowed_change(entry.document, wanted.document)


def _check_tables_max(
    wanted: Wanted, current: CurrentState, tables_max: int, engines: Mapping[str, str]
) -> TooManyTables | None:
    """Before the entry is created, so that nothing of it is left."""
    needed = tables_of(wanted.resource, _ANY_CREATION, engines=engines)
    if wanted.place.tables != "dedicated" or not needed or current.tables_total + len(needed) <= tables_max:
        return None
    return TooManyTables(
        tables=current.tables_total,
        needed=len(needed),
        most=tables_max,
        remedy="set `storage.tables: shared`, which adds none",
    )
