"""The decision about one resource: the order of effects, from the parts.

    plan = decide(world, memory, now_us)

A reconcile depends on the present state, never on events. So `decide` is total, deterministic and idempotent: on the
world after its plan it decides nothing further, and after a kill between any two effects the same decision continues.
The order (docs/internals/protocols/operator.md): deletion; the spec; the connection; ownership; the finalizer; the
store; shards; the namespace; workers; bulk; status.

Pure. It knows no cluster, no store, no clock and no randomness.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.api.read.parse import Resource
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate.engines.registry import engine_of
from headgate.store.catalogue.decide_generation import shards_in_force
from headgate_operator.decide.bulk import add_bulk_status, decide_bulk
from headgate_operator.decide.children import decide_children
from headgate_operator.decide.consumers import TYPE as CONSUMERS
from headgate_operator.decide.consumers import decide_consumers, fails_at_us, former_places
from headgate_operator.decide.dead_letters import decide_dead_letters
from headgate_operator.decide.deletion import decide_absent, decide_deletion, decide_finalizer
from headgate_operator.decide.lanes import decide_lane_health
from headgate_operator.decide.maintenance import decide_maintenance
from headgate_operator.decide.ownership import is_ours
from headgate_operator.decide.scaling import decide_scaling
from headgate_operator.decide.stats import decide_stats, lanes_of
from headgate_operator.decide.status import decide_status
from headgate_operator.decide.store import decide_connection, decide_store, decide_store_view
from headgate_operator.model.plan import ConditionUpdate, PartialPlan, ReconcilePlan, blocked, earliest
from headgate_operator.model.world import (
    DecisionMemory,
    PresentResource,
    ResourceFailure,
    ResourceWorld,
    StoreConnection,
    StoreView,
)


def decide(world: ResourceWorld, memory: DecisionMemory, now_us: int) -> ReconcilePlan:
    """The first effects that are missing, in order; and when to decide again without an event."""
    present = world.resource
    if present is None:
        return decide_absent(world)
    memory = _of_this(present, memory, now_us)
    if present.meta.generation < memory.generation:
        return ReconcilePlan(
            memory=memory,
            trail=(f"generation {present.meta.generation} is older than the last one that was acted upon",),
        )
    if present.meta.deleting_since_us is not None:
        return _deleted(world, present, memory, now_us)
    verdict = _walked(world, present, memory, now_us)
    if not isinstance(present.parsed, tuple) and present.parsed.spec.paused:
        verdict = _without_changes(verdict, memory)
    return decide_status(world, present, verdict, now_us)


def _of_this(present: PresentResource, memory: DecisionMemory, now_us: int) -> DecisionMemory:
    """The memory of this creation, with the latest generation that was decided about."""
    if memory.uid != present.meta.uid:
        memory = DecisionMemory(uid=present.meta.uid)
    if present.meta.generation > memory.generation:
        memory = replace(memory, generation=present.meta.generation, began_us=now_us)
    return memory


def _deleted(world: ResourceWorld, present: PresentResource, memory: DecisionMemory, now_us: int) -> ReconcilePlan:
    verdict = decide_deletion(world, present, memory, now_us)
    if verdict.is_stopped:
        return decide_status(world, present, verdict, now_us)
    return ReconcilePlan(verdict.effects, verdict.memory, trail=verdict.trail, left_behind=verdict.left_behind)


def _without_changes(verdict: PartialPlan, memory: DecisionMemory) -> PartialPlan:
    """Conditions and figures are updated; nothing else is changed."""
    return replace(
        verdict,
        effects=(),
        ask=frozenset(),
        again_at_us=None,
        memory=replace(memory, not_ready_since_us=verdict.memory.not_ready_since_us),
        blocked_by=ResourceFailure(Reason.PAUSED, _would(verdict)),
        trail=("paused: no change", *verdict.trail),
    )


def _would(verdict: PartialPlan) -> str:
    left = len(verdict.effects) + len(verdict.ask)
    return "`spec.paused` is true" + (f"; {left} changes wait" if left else "; no change waits")


# ---- the order


def _walked(world: ResourceWorld, present: PresentResource, memory: DecisionMemory, now_us: int) -> PartialPlan:
    resource = present.parsed
    if isinstance(resource, tuple):
        return blocked(memory, Reason.SPEC_INVALID, "; ".join(str(fault) for fault in resource))
    if not world.settings.supports(resource):
        supported = ", ".join(sorted(world.settings.supported)) or "none"
        version, engine = world.settings.version, engine_of(resource)
        message = f"headgate {version} does not support {engine} (it supports {supported})"
        return blocked(memory, Reason.ENGINE_UNAVAILABLE, message)
    connection, verdict = decide_connection(world, memory, now_us)
    verdict = _observed(world, connection, verdict, now_us)
    if connection is None:
        return verdict
    store, part = decide_store_view(world, verdict.memory, now_us)
    verdict = verdict.then(part)
    if store is None:  # existing children stay as they are; later changes wait for the store
        generation, shards = verdict.memory.stored or (0, 0)
        if generation != present.meta.generation:
            return verdict
        return _served(world, resource, connection, verdict, now_us, shards=shards, lanes=None)
    part = decide_store(world, resource, store, connection, verdict.memory, now_us)
    entry = store.entry
    if is_ours(world, entry) or part.effects:  # before the first table
        verdict = verdict.then(decide_finalizer(present, verdict.memory))
    verdict = verdict.then(replace(part, memory=_stored(part, present, store)))
    if verdict.is_stopped or entry is None:
        return verdict
    shards = shards_in_force(entry.generations)
    return _served(world, resource, connection, verdict, now_us, shards=shards, lanes=lanes_of(entry))


def _observed(
    world: ResourceWorld, connection: StoreConnection | None, verdict: PartialPlan, now_us: int
) -> PartialPlan:
    """Findings that no effect changes: dead letters, passes, lanes, bulk jobs, figures."""
    verdict = verdict.then(decide_dead_letters(world, verdict.memory))
    verdict = verdict.then(decide_maintenance(world, verdict.memory, now_us))
    if world.queue is not None:
        verdict = verdict.then(decide_lane_health(world, connection, verdict.memory, now_us))
    return verdict.then(decide_stats(world, None, verdict.memory, now_us))


def _stored(part: PartialPlan, present: PresentResource, store: StoreView) -> DecisionMemory:
    """The base of decisions while Cassandra is unavailable: only a store that was found complete."""
    if store.entry is None or part.blocked_by is not None:
        return replace(part.memory, stored=None)
    if part.is_stopped or part.effects:
        return part.memory
    return replace(part.memory, stored=(present.meta.generation, shards_in_force(store.entry.generations)))


def _served(
    world: ResourceWorld,
    resource: Resource,
    connection: StoreConnection,
    verdict: PartialPlan,
    now_us: int,
    *,
    shards: int,
    lanes: int | None,
) -> PartialPlan:
    """The namespace, workers, bulk."""
    if world.namespace.terminating:
        return verdict.then(blocked(verdict.memory, Reason.PROGRESSING, "its namespace is being deleted"))
    waiting = _namespace(world, resource, verdict.memory)
    if waiting.is_stopped:
        verdict = verdict.then(waiting)
        return add_bulk_status(world, verdict) if isinstance(resource, QueueResource) else verdict
    if not isinstance(resource, QueueResource):
        return verdict
    numbers = decide_scaling(world, shards, lanes, verdict.memory, now_us)
    verdict = verdict.then(numbers)
    made = decide_children(world, connection, numbers.wanted, verdict.memory, now_us)
    verdict = verdict.then(
        replace(
            made,
            ask=made.ask | former_places(world),
            findings=(decide_consumers(world, made.consumers, now_us),),
            again_at_us=earliest(made.again_at_us, fails_at_us(made.consumers, now_us)),
            blocked_by=None,
        )
    )
    verdict = verdict.then(decide_bulk(world, connection, verdict.memory, now_us))
    return verdict.then(decide_stats(world, made.consumers, verdict.memory, now_us))


def _namespace(world: ResourceWorld, resource: Resource, memory: DecisionMemory) -> PartialPlan:
    """The namespace's own key creates the needs of all its pods; workers and bulk jobs wait for it."""
    failure = world.namespace.failure
    has_pods = isinstance(resource, QueueResource) and bool(resource.spec.consumers or resource.spec.bulk)
    if failure is not None:
        verdict = blocked(memory, failure.reason, failure.message)
        if not has_pods:
            return verdict
        return verdict.with_condition(ConditionUpdate(CONSUMERS, "False", failure.reason, failure.message))
    if has_pods and not world.namespace.ready:
        return blocked(memory, Reason.PROGRESSING, "waiting for the namespace's account and Secret")
    return PartialPlan(memory)
