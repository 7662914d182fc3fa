"""The decision about a resource that is being deleted, or is gone.

Under Retain nothing has to happen before it goes, so nothing can hold it. Data are dropped only for an existing
resource that has a deletionTimestamp, our finalizer and `deletionPolicy: Delete`. Nothing is ever stuck: while
Cassandra is unavailable it waits and reports why, the policy may be changed meanwhile, and a terminating namespace is
released after one attempt of ten seconds.

Pure. It drops data by the steps of `decide_removal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.api.resources.model import API_VERSION
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import Retain, decide_removal
from headgate.expiry import SECOND_US
from headgate.store.catalogue.entry import Entry, EntryState
from headgate_operator.decide.children import all_removed
from headgate_operator.decide.maintenance import format_time
from headgate_operator.decide.ownership import is_ours
from headgate_operator.decide.store import TYPE as TABLES
from headgate_operator.decide.store import build_store_facts, decide_connection, decide_store_view, format_step
from headgate_operator.model.names import FINALIZER, owner_parts
from headgate_operator.model.plan import (
    ApplyObject,
    ConditionUpdate,
    DeleteObject,
    Effect,
    PartialPlan,
    ReconcilePlan,
    StoreStep,
    blocked,
    earliest,
)
from headgate_operator.model.world import (
    DecisionMemory,
    Nothing,
    PresentResource,
    ResourceWorld,
    StoreConnection,
    StoreView,
)

LET_GO_AFTER_US: Final = 10 * SECOND_US
PODS_END_US: Final = 90 * SECOND_US
WAITED_FOR: Final = ("Deployment", "SparkApplication")


def decide_absent(world: ResourceWorld) -> ReconcilePlan:
    """The resource is gone: its data in the store are kept, and refuse puts and receives from now on."""
    store, connection = world.store, world.connection
    if not isinstance(store, StoreView) or not isinstance(connection, StoreConnection) or store.entry is None:
        return ReconcilePlan(memory=DecisionMemory(), trail=(f"{world.key} is not there",))
    entry = store.entry
    parts = owner_parts(entry.owner)
    ours = parts is not None and parts[0] == world.settings.cluster
    if not ours or entry.state in (EntryState.RETAINED, EntryState.GONE):
        return ReconcilePlan(memory=DecisionMemory(), trail=(f"{world.key} is not there",))
    step = StoreStep(Retain(entry), connection)
    return ReconcilePlan(
        (step,), DecisionMemory(), trail=(f"{world.key} is not there: {entry.id} is kept as retained",)
    )


def with_finalizer(present: PresentResource, wanted: bool) -> ApplyObject:
    """The resource with or without our finalizer, next to those of others, and no other field."""
    metadata = present.document["metadata"]
    others = [each for each in present.meta.finalizers if each != FINALIZER]
    fields: dict[str, Any] = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": present.meta.uid,
        "finalizers": [*others, FINALIZER] if wanted else others,
    }
    if "resourceVersion" in metadata:
        fields["resourceVersion"] = metadata["resourceVersion"]
    document = {"apiVersion": API_VERSION, "kind": present.document["kind"], "metadata": fields}
    return ApplyObject(document, merges=True)


def policy_of(present: PresentResource) -> str:
    """The policy for the data, also if the rest of the spec is not valid."""
    spec = present.document.get("spec")
    policy = spec.get("deletionPolicy") if isinstance(spec, Mapping) else None
    return "Delete" if policy == "Delete" else "Retain"


def decide_finalizer(present: PresentResource, memory: DecisionMemory) -> PartialPlan:
    wanted, there = policy_of(present) == "Delete", FINALIZER in present.meta.finalizers
    if wanted == there:
        return PartialPlan(memory)
    trail = "set the finalizer before anything is created" if wanted else "nothing to drop: no finalizer"
    return PartialPlan(memory, effects=(with_finalizer(present, wanted),), trail=(trail,))


def decide_deletion(
    world: ResourceWorld, present: PresentResource, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    """The remaining changes before the resource can go."""
    if not present.meta.finalizers:
        return PartialPlan(memory, trail=("no finalizer is left",))
    if FINALIZER not in present.meta.finalizers:
        others = ", ".join(present.meta.finalizers)
        return blocked(memory, Reason.DELETING, f"waiting for the finalizers of others: {others}")
    if policy_of(present) != "Delete":
        return _let_go(present, memory, "its data stay (Retain)")
    connection, verdict = decide_connection(world, memory, now_us)
    store = None
    if connection is not None:
        store, verdict = decide_store_view(world, memory, now_us)
    since_us = present.meta.deleting_since_us or now_us
    tried = now_us - since_us >= LET_GO_AFTER_US
    unreachable = store is None or world.step_failure is not None
    if world.namespace.terminating and unreachable:
        if tried:
            what = f"{world.key} is deleted with its namespace, and its data stay in Cassandra"
            return replace(_let_go(present, verdict.memory, what), left_behind=True)
        waiting = replace(verdict, blocked_by=None, missing_input="")
        return _waits(waiting, "its namespace terminates; one attempt to reach Cassandra", since_us + LET_GO_AFTER_US)
    if connection is None or store is None:
        return _waiting_for_store(world, verdict, now_us)
    if not is_ours(world, store.entry) or store.entry is None:
        return _let_go(present, verdict.memory, "nothing of it is left in Cassandra")
    return _removed(world, store, store.entry, connection, verdict.memory, now_us)


def _removed(
    world: ResourceWorld,
    store: StoreView,
    entry: Entry,
    connection: StoreConnection,
    memory: DecisionMemory,
    now_us: int,
) -> PartialPlan:
    """Marked, then without workers, then without tables, then without a name."""
    decided = decide_removal(entry, build_store_facts(store), now_us=now_us)
    steps = tuple(StoreStep(step, connection) for step in decided.steps)
    trail = tuple(format_step(step) for step in decided.steps)
    if world.step_failure is not None and steps:
        refused = PartialPlan(memory, effects=steps, trail=trail, is_refused=True)
        return _waits(refused, world.step_failure.message, None)
    if entry.state is not EntryState.DELETING:
        return _waits(PartialPlan(memory, effects=steps, trail=trail), "puts and receives have ended", None)
    ended = _without_workers(world, memory, now_us)
    if ended is not None:
        return ended
    if not steps:
        return _waits(PartialPlan(memory), "every process has to learn that it is being deleted", decided.again_at_us)
    message = "its tables are being dropped"
    updates = (ConditionUpdate(TABLES, "False", Reason.TABLES_MISSING, message),)
    return _waits(PartialPlan(memory, effects=steps, findings=updates, trail=trail), message, decided.again_at_us)


def _without_workers(world: ResourceWorld, memory: DecisionMemory, now_us: int) -> PartialPlan | None:
    """None once they are gone, or have had their time."""
    removed = all_removed(world, memory, "the queue is being deleted")
    effects: tuple[Effect, ...] = tuple(
        replace(effect, propagation="Foreground")
        if isinstance(effect, DeleteObject) and effect.kind in WAITED_FOR
        else effect
        for effect in removed.effects
    )
    there = [child for child in sorted(world.live) if child.kind in WAITED_FOR]
    for child in there:
        metadata = world.live[child]["metadata"]
        if child.kind == "SparkApplication" and not metadata.get("deletionTimestamp"):
            effect = DeleteObject(child.kind, metadata["namespace"], child.name, metadata["uid"], "Foreground")
            effects = (*effects, effect)
    if effects:
        return _waits(PartialPlan(removed.memory, effects=effects, trail=removed.trail), "its workers end", None)
    if not there:
        return None
    until_us = (world.resource.meta.deleting_since_us or now_us if world.resource else now_us) + PODS_END_US
    if now_us >= until_us:
        return None
    return _waits(PartialPlan(removed.memory), "its workers end", until_us)


def _waiting_for_store(world: ResourceWorld, verdict: PartialPlan, now_us: int) -> PartialPlan:
    if verdict.missing_input and isinstance(world.store, Nothing) and verdict.memory.store_down_since_us is None:
        return verdict
    since_us = verdict.memory.store_down_since_us
    since = f" since {format_time(since_us)}" if since_us is not None else ""
    why = f": {verdict.blocked_by.message}" if verdict.blocked_by is not None else ""
    message = f"waiting for Cassandra{since}{why}; to release it and keep its data, set `deletionPolicy: Retain`"
    waiting = replace(verdict, blocked_by=None, missing_input="")
    return _waits(waiting, message, earliest(verdict.again_at_us))


def _let_go(present: PresentResource, memory: DecisionMemory, why: str) -> PartialPlan:
    return PartialPlan(memory, effects=(with_finalizer(present, False),), trail=(f"remove the finalizer: {why}",))


def _waits(verdict: PartialPlan, message: str, again_at_us: int | None) -> PartialPlan:
    waiting = blocked(verdict.memory, Reason.DELETING, message, again_at_us=again_at_us)
    return verdict.then(waiting)
