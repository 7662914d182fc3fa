"""The missing steps of one resource in the store, and the condition of its tables.

The steps are those of `headgate apply` (headgate/applying/decide_steps.py). This module adds the operator's part: the
owner, the reasons of refusals, and the report while Cassandra does not answer. It reports nothing in the first 15
seconds of that, since most outages end within them.

Pure. It knows no children.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headgate.api.parse import Resource, ResourceInvalid
from headgate.api.queues import Queue
from headgate.api.status import Reason
from headgate.applying.decide_steps import (
    CreateKeyspace,
    CreateTable,
    Decided,
    Found,
    Step,
    StorageElsewhere,
    TooManyTables,
    decide_steps,
)
from headgate.applying.wanted import Surroundings, Wanted, catalogue_keyspace, wanted_of
from headgate.errors import HeadgateError
from headgate.expiry import SECOND_US
from headgate.store.catalogue_entry import BeingDeleted, ElsewhereAtHome, OwnedByAnother, State
from headgate.store.catalogue_tables import CATALOGUE_TABLES
from headgate.store.decide_generation import ChangeUnderWay, shards_in_force
from headgate.store.drift import Drift
from headgate_operator.decide_ownership import our_owner, ownership
from headgate_operator.effects import StoreStep
from headgate_operator.verdict import Finding, Verdict, blind, stopped
from headgate_operator.world import Connection, Memory, Nothing, StoreView, Trouble, World

TYPE: Final = "TablesReady"
SILENT_US: Final = 15 * SECOND_US
LEFT_ALONE_AGAIN_US: Final = 5 * 60 * SECOND_US


def surroundings_of(connection: Connection) -> Surroundings:
    """The connection's defaults for a resource that does not choose for itself."""
    return Surroundings(connection.keyspace, connection.data_center, connection.nodes)


def found_of(store: StoreView) -> Found:
    """The state that was read, as the steps take it."""
    return Found(
        store.entry,
        store.keyspace_there,
        store.tables_there,
        store.tables_made,
        store.drifts,
        store.tables_total,
    )


def connected(world: World, memory: Memory, now_us: int) -> tuple[Connection | None, Verdict]:
    """The way to Cassandra, or why there is none."""
    if isinstance(world.connection, Nothing):
        return None, blind(memory, "the connection")
    if isinstance(world.connection, Trouble):
        return None, _troubled(world.connection, memory, now_us)
    return world.connection, Verdict(memory)


def seen(world: World, memory: Memory, now_us: int) -> tuple[StoreView | None, Verdict]:
    """The state in Cassandra, or why it is unknown."""
    if isinstance(world.store, Nothing):
        return None, blind(memory, "the state in Cassandra")
    if isinstance(world.store, Trouble):
        return None, _troubled(world.store, memory, now_us)
    still_away = world.step_trouble is not None and world.step_trouble.reason is Reason.CASSANDRA_UNAVAILABLE
    return world.store, Verdict(memory if still_away else replace(memory, store_down_since_us=None))


def stored(
    world: World, resource: Resource, store: StoreView, connection: Connection, memory: Memory, now_us: int
) -> Verdict:
    """The steps that are missing. It stops where one has to be answered first, or where a person is needed."""
    wanted = wanted_of(resource, surroundings_of(connection))
    if not store.catalogue_there:
        return _catalogue(world, connection, memory, now_us)
    owned = ownership(world, store, wanted, connection, memory)
    if owned.is_stopped or owned.effects:
        return _with_trouble(world, owned, now_us) if owned.effects else _told_of_tables(owned)
    decided = decide_steps(
        wanted,
        found_of(store),
        owner=our_owner(world),
        data_center=connection.data_center,
        now_us=now_us,
        tables_max=world.settings.tables_max,
    )
    verdict = _followed(world, store, wanted, decided, _At(connection, memory, now_us))
    if store.entry is None or not isinstance(resource, Queue):
        return verdict
    return replace(verdict, figures={"replicas": shards_in_force(store.entry.generations)})


@dataclass(frozen=True)
class _At:
    """By which way, with what in mind, and when."""

    connection: Connection
    memory: Memory
    now_us: int


def _followed(world: World, store: StoreView, wanted: Wanted, decided: Decided, at: _At) -> Verdict:
    steps = tuple(StoreStep(step, our_owner(world), at.connection) for step in decided.steps)
    trail = tuple(told(step) for step in decided.steps)
    verdict = Verdict(at.memory, effects=steps, trail=trail, again_at_us=decided.again_at_us)
    if isinstance(decided.stopped, ChangeUnderWay):
        says = f"{wanted.shards} shards wait for the end of the change to {decided.stopped.facts.get('to')}"
        verdict = replace(verdict, awaits=Trouble(Reason.PROGRESSING, says))
    elif decided.stopped is not None:
        return _told_of_tables(verdict.then(_refused(decided.stopped, at.memory)))
    if decided.by_hand:
        return _by_hand(verdict, decided.by_hand)
    if store.entry is None:
        made = verdict.found(Finding(TYPE, "False", Reason.TABLES_MISSING, "its entry is being created"))
        made = replace(made, awaits=Trouble(Reason.RECONCILING, "its entry is being created"))
        return _with_trouble(world, made, at.now_us)
    if steps and world.step_trouble is not None:
        return _with_trouble(world, verdict, at.now_us)
    making = [step for step in decided.steps if isinstance(step, CreateTable)]
    if making or store.entry.state is not State.ACTIVE:
        says = f"{len(making)} tables are being created" if making else "its lanes are being created"
        return verdict.found(Finding(TYPE, "False", Reason.TABLES_MISSING, says))
    return verdict.found(Finding(TYPE, "True", Reason.TABLES_PRESENT))


def _catalogue(world: World, connection: Connection, memory: Memory, now_us: int) -> Verdict:
    keyspace = catalogue_keyspace(surroundings_of(connection))
    steps: list[Step] = [CreateKeyspace(keyspace)]
    steps += [CreateTable(keyspace.name, table) for table in CATALOGUE_TABLES]
    effects = tuple(StoreStep(step, our_owner(world), connection) for step in steps)
    verdict = Verdict(memory, effects=effects, trail=(f"create the catalogue in {keyspace.name}",))
    says = "the catalogue is being created"
    made = verdict.found(Finding(TYPE, "False", Reason.TABLES_MISSING, says))
    return _with_trouble(world, replace(made, awaits=Trouble(Reason.RECONCILING, says)), now_us)


def _with_trouble(world: World, verdict: Verdict, now_us: int) -> Verdict:
    """Refused steps are retried, and their errors are reported until one succeeds."""
    if world.step_trouble is None:
        return replace(verdict, stop=verdict.stop or verdict.awaits or Trouble(Reason.RECONCILING, verdict.trail[0]))
    told_so = _troubled(world.step_trouble, verdict.memory, now_us)
    kept = replace(verdict, findings=tuple(finding for finding in verdict.findings if finding.type != TYPE))
    return replace(kept.then(told_so), awaits=None, is_refused=not told_so.blind)


def _told_of_tables(verdict: Verdict) -> Verdict:
    """A stop that is about the tables is a condition of the tables, too."""
    stop = verdict.stop
    if stop is None or stop.reason not in TABLE_REASONS:
        return verdict
    return verdict.found(Finding(TYPE, "False", stop.reason, stop.says))


TABLE_REASONS: Final = frozenset(
    {
        Reason.CONNECTION_MISSING,
        Reason.WRONG_DATA_CENTER,
        Reason.CASSANDRA_UNAVAILABLE,
        Reason.CLOCK_OUT_OF_BOUNDS,
        Reason.TOO_MANY_TABLES,
        Reason.RIGHTS_MISSING,
    }
)


def _troubled(trouble: Trouble, memory: Memory, now_us: int) -> Verdict:
    """Why the store is unavailable. Silence counts only once it has lasted."""
    if trouble.reason is not Reason.CASSANDRA_UNAVAILABLE:
        return _told_of_tables(stopped(memory, trouble.reason, trouble.says))
    since_us = trouble.since_us or memory.store_down_since_us or now_us
    memory = replace(memory, store_down_since_us=since_us)
    if now_us < since_us + SILENT_US:
        return blind(memory, "the state in Cassandra", again_at_us=since_us + SILENT_US)
    return _told_of_tables(stopped(memory, trouble.reason, trouble.says))


def _refused(error: HeadgateError, memory: Memory) -> Verdict:
    if isinstance(error, ResourceInvalid):
        faults = "; ".join(str(fault) for fault in error.faults)
        return stopped(memory, Reason.SPEC_INVALID, f"the existing tables do not allow it: {faults}")
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.PROGRESSING)
    return stopped(memory, reason, " ".join(str(error).split()))


_REASONS: Final = (
    (StorageElsewhere, Reason.WRONG_DATA_CENTER),
    (ElsewhereAtHome, Reason.WRONG_DATA_CENTER),
    (TooManyTables, Reason.TOO_MANY_TABLES),
    (OwnedByAnother, Reason.NAME_TAKEN),
    (BeingDeleted, Reason.PROGRESSING),
)


def _by_hand(verdict: Verdict, drifts: tuple[Drift, ...]) -> Verdict:
    """Faults that only a person can fix: a dropped table is missing, others have drifted."""
    dropped = [drift.table for drift in drifts if drift.what == "the table"]
    if dropped:
        says = f"{', '.join(dropped)}: dropped by hand, and never recreated under its name; restore a backup"
        trouble = Trouble(Reason.TABLES_MISSING, says)
    else:
        cql = "; ".join(drift.cql for drift in drifts if drift.cql)
        says = "; ".join(str(drift) for drift in drifts) + (f"; to fix it: {cql}" if cql else "")
        trouble = Trouble(Reason.TABLES_DRIFTED, says)
    finding = Finding(TYPE, "False", trouble.reason, trouble.says)
    return replace(verdict.found(finding), stop=trouble, trail=(*verdict.trail, trouble.says))


def told(step: Step) -> str:
    """A step in a few words."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(step).__name__).strip()
    about = getattr(step, "name", None) or getattr(getattr(step, "table", None), "name", None)
    about = about or getattr(getattr(step, "keyspace", None), "name", None) or getattr(step, "number", None)
    return f"{words} {about}" if about is not None else words
