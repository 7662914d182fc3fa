"""The missing steps of one resource in the store, and the condition of its tables.

The steps are those of `headgate apply` (headgate/applying/decide_steps.py). This module adds the operator's part: the
owner, the reasons of refusals, and the report while Cassandra does not answer. It reports nothing in the first 15
seconds of that, since most outages end within them.

Pure. It knows no children.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headgate.api.read.parse import Resource, ResourceInvalid
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import (
    CreateKeyspace,
    CreateTable,
    CurrentState,
    Decided,
    Step,
    StorageElsewhere,
    TooManyTables,
    decide_steps,
)
from headgate.applying.desired_state import Wanted, catalogue_keyspace, wanted_of
from headgate.errors import HeadgateError
from headgate.expiry import SECOND_US
from headgate.store.catalogue.decide_generation import ChangeUnderWay, shards_in_force
from headgate.store.catalogue.entry import BeingDeleted, EntryState, OwnedByAnother, WrongDataCenter
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.model.drift import Drift
from headgate_operator.decide.ownership import bind_to_namespace, decide_ownership, our_owner, tables_forbid
from headgate_operator.model.plan import ConditionUpdate, PartialPlan, StoreStep, blocked, missing_input
from headgate_operator.model.world import (
    DecisionMemory,
    Nothing,
    ResourceFailure,
    ResourceWorld,
    StoreConnection,
    StoreView,
)

TYPE: Final = "TablesReady"
SILENT_US: Final = 15 * SECOND_US


def build_store_facts(store: StoreView) -> CurrentState:
    return CurrentState(
        store.entry,
        store.keyspace_there,
        store.tables_there,
        store.tables_made,
        store.drifts,
        store.tables_total,
    )


def _tightest_bound(world: ResourceWorld, store: StoreView) -> tuple[int, int]:
    """Tables that are there and how many there may be: of all, or of the namespace alone, whichever is nearer."""
    settings = world.settings
    bounds = (
        (store.tables_total, settings.tables_max),
        (store.namespace_tables, settings.namespace_tables_max),
    )
    return min(bounds, key=lambda bound: bound[1] - bound[0])


def decide_connection(
    world: ResourceWorld, memory: DecisionMemory, now_us: int
) -> tuple[StoreConnection | None, PartialPlan]:
    if isinstance(world.connection, Nothing):
        return None, missing_input(memory, "the connection")
    if isinstance(world.connection, ResourceFailure):
        return None, _decide_failure(world.connection, memory, now_us)
    return world.connection, PartialPlan(memory)


def decide_store_view(
    world: ResourceWorld, memory: DecisionMemory, now_us: int
) -> tuple[StoreView | None, PartialPlan]:
    if isinstance(world.store, Nothing):
        return None, missing_input(memory, "the state in Cassandra")
    if isinstance(world.store, ResourceFailure):
        return None, _decide_failure(world.store, memory, now_us)
    still_down = world.step_failure is not None and world.step_failure.reason is Reason.CASSANDRA_UNAVAILABLE
    return world.store, PartialPlan(memory if still_down else replace(memory, store_down_since_us=None))


def decide_store(
    world: ResourceWorld,
    resource: Resource,
    store: StoreView,
    connection: StoreConnection,
    memory: DecisionMemory,
    now_us: int,
) -> PartialPlan:
    """The steps that are missing. It stops where one has to be answered first, or where a person is needed."""
    wanted = bind_to_namespace(wanted_of(resource, connection.placement), world.namespace.uid)
    if not store.catalogue_there:
        return _catalogue(world, connection, memory, now_us)
    owned = decide_ownership(world, store, wanted, connection, memory)
    if owned.is_stopped or owned.effects:
        return _with_step_failure(world, owned, now_us) if owned.effects else _with_tables_condition(owned)
    tables_total, tables_max = _tightest_bound(world, store)
    decided = decide_steps(
        wanted,
        replace(build_store_facts(store), tables_total=tables_total),
        owner=our_owner(world),
        data_center=connection.data_center,
        now_us=now_us,
        tables_max=tables_max,
    )
    verdict = _followed(world, store, wanted, decided, _At(connection, memory, now_us))
    if store.entry is None or not isinstance(resource, QueueResource):
        return verdict
    return replace(verdict, figures={"replicas": shards_in_force(store.entry.generations)})


@dataclass(frozen=True)
class _At:
    connection: StoreConnection
    memory: DecisionMemory
    now_us: int


def _followed(world: ResourceWorld, store: StoreView, wanted: Wanted, decided: Decided, at: _At) -> PartialPlan:
    steps = tuple(StoreStep(step, at.connection) for step in decided.steps)
    trail = tuple(format_step(step) for step in decided.steps)
    verdict = PartialPlan(at.memory, effects=steps, trail=trail, again_at_us=decided.again_at_us)
    if isinstance(decided.stopped, ChangeUnderWay):
        message = f"{wanted.shards} shards wait for the end of the change to {decided.stopped.facts.get('to')}"
        verdict = replace(verdict, waiting_for=ResourceFailure(Reason.PROGRESSING, message))
    elif decided.stopped is not None:
        return _with_tables_condition(verdict.then(_refused(decided.stopped, at.memory)))
    if decided.by_hand:
        return _by_hand(verdict, decided.by_hand)
    if store.entry is None:
        made = verdict.with_condition(
            ConditionUpdate(TYPE, "False", Reason.TABLES_MISSING, "its entry is being created")
        )
        made = replace(made, waiting_for=ResourceFailure(Reason.RECONCILING, "its entry is being created"))
        return _with_step_failure(world, made, at.now_us)
    if steps and world.step_failure is not None:
        return _with_step_failure(world, verdict, at.now_us)
    making = [step for step in decided.steps if isinstance(step, CreateTable)]
    if making or store.entry.state is not EntryState.ACTIVE:
        message = f"{len(making)} tables are being created" if making else "its lanes are being created"
        return verdict.with_condition(ConditionUpdate(TYPE, "False", Reason.TABLES_MISSING, message))
    return verdict.with_condition(ConditionUpdate(TYPE, "True", Reason.TABLES_PRESENT))


def _catalogue(world: ResourceWorld, connection: StoreConnection, memory: DecisionMemory, now_us: int) -> PartialPlan:
    keyspace = catalogue_keyspace(connection.placement)
    steps: list[Step] = [CreateKeyspace(keyspace)]
    steps += [CreateTable(keyspace.name, table) for table in CATALOGUE_TABLES]
    effects = tuple(StoreStep(step, connection) for step in steps)
    verdict = PartialPlan(memory, effects=effects, trail=(f"create the catalogue in {keyspace.name}",))
    message = "the catalogue is being created"
    made = verdict.with_condition(ConditionUpdate(TYPE, "False", Reason.TABLES_MISSING, message))
    return _with_step_failure(world, replace(made, waiting_for=ResourceFailure(Reason.RECONCILING, message)), now_us)


def _with_step_failure(world: ResourceWorld, verdict: PartialPlan, now_us: int) -> PartialPlan:
    """Refused steps are retried, and their errors are reported until one succeeds."""
    if world.step_failure is None:
        return replace(
            verdict,
            blocked_by=verdict.blocked_by
            or verdict.waiting_for
            or ResourceFailure(Reason.RECONCILING, verdict.trail[0]),
        )
    part = _decide_failure(world.step_failure, verdict.memory, now_us)
    kept = replace(verdict, findings=tuple(finding for finding in verdict.findings if finding.type != TYPE))
    return replace(kept.then(part), waiting_for=None, is_refused=not part.missing_input)


def _with_tables_condition(verdict: PartialPlan) -> PartialPlan:
    """A stop that is about the tables is a condition of the tables, too."""
    blocked_by = verdict.blocked_by
    if blocked_by is None or blocked_by.reason not in TABLE_REASONS:
        return verdict
    return verdict.with_condition(ConditionUpdate(TYPE, "False", blocked_by.reason, blocked_by.message))


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


def _decide_failure(failure: ResourceFailure, memory: DecisionMemory, now_us: int) -> PartialPlan:
    """Why the store is unavailable. Silence counts only once it has lasted."""
    if failure.reason is not Reason.CASSANDRA_UNAVAILABLE:
        return _with_tables_condition(blocked(memory, failure.reason, failure.message))
    since_us = failure.since_us or memory.store_down_since_us or now_us
    memory = replace(memory, store_down_since_us=since_us)
    if now_us < since_us + SILENT_US:
        return missing_input(memory, "the state in Cassandra", again_at_us=since_us + SILENT_US)
    return _with_tables_condition(blocked(memory, failure.reason, failure.message))


def _refused(error: HeadgateError, memory: DecisionMemory) -> PartialPlan:
    if isinstance(error, ResourceInvalid):
        return tables_forbid(error, memory)
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.PROGRESSING)
    return blocked(memory, reason, " ".join(str(error).split()))


_REASONS: Final = (
    (StorageElsewhere, Reason.WRONG_DATA_CENTER),
    (WrongDataCenter, Reason.WRONG_DATA_CENTER),
    (TooManyTables, Reason.TOO_MANY_TABLES),
    (OwnedByAnother, Reason.NAME_TAKEN),
    (BeingDeleted, Reason.PROGRESSING),
)


def _by_hand(verdict: PartialPlan, drifts: tuple[Drift, ...]) -> PartialPlan:
    """Faults that only a person can fix: a dropped table is missing, others have drifted."""
    dropped = [drift.table for drift in drifts if drift.what == "the table"]
    if dropped:
        message = f"{', '.join(dropped)}: dropped by hand, and never recreated under its name; restore a backup"
        failure = ResourceFailure(Reason.TABLES_MISSING, message)
    else:
        cql = "; ".join(drift.cql for drift in drifts if drift.cql)
        message = "; ".join(str(drift) for drift in drifts) + (f"; to fix it: {cql}" if cql else "")
        failure = ResourceFailure(Reason.TABLES_DRIFTED, message)
    finding = ConditionUpdate(TYPE, "False", failure.reason, failure.message)
    return replace(verdict.with_condition(finding), blocked_by=failure, trail=(*verdict.trail, failure.message))


def format_step(step: Step) -> str:
    words = "".join(
        f" {character.lower()}" if character.isupper() else character for character in type(step).__name__
    ).strip()
    about = getattr(step, "name", None) or getattr(getattr(step, "table", None), "name", None)
    about = about or getattr(getattr(step, "keyspace", None), "name", None) or getattr(step, "number", None)
    return f"{words} {about}" if about is not None else words
