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

from headgate.api.parse import Resource
from headgate.api.queues import Queue
from headgate.api.status import Reason
from headgate.engines.registry import engine_of
from headgate.store.decide_generation import shards_in_force
from headgate_operator.decide_bulk import bulk, said
from headgate_operator.decide_children import children
from headgate_operator.decide_consumers import TYPE as CONSUMERS
from headgate_operator.decide_consumers import consumers_finding, fails_at_us, former_places
from headgate_operator.decide_dead_letters import resolved
from headgate_operator.decide_deletion import LEFT_BEHIND, absent, deletion, finalized
from headgate_operator.decide_figures import figures, lanes_of
from headgate_operator.decide_health import health
from headgate_operator.decide_ownership import is_ours
from headgate_operator.decide_passes import passed
from headgate_operator.decide_scaling import scaled
from headgate_operator.decide_status import concluded
from headgate_operator.decide_store import connected, seen, stored
from headgate_operator.effects import Plan
from headgate_operator.verdict import Finding, Verdict, earliest, stopped
from headgate_operator.world import Connection, Memory, Present, StoreView, Trouble, World


def decide(world: World, memory: Memory, now_us: int) -> Plan:
    """The first effects that are missing, in order; and when to decide again without an event."""
    present = world.resource
    if present is None:
        return absent(world)
    memory = _of_this(present, memory, now_us)
    if present.meta.generation < memory.generation:
        return Plan(
            memory=memory,
            trail=(f"generation {present.meta.generation} is older than the last one that was acted upon",),
        )
    if present.meta.deleting_since_us is not None:
        return _deleted(world, present, memory, now_us)
    verdict = _walked(world, present, memory, now_us)
    if not isinstance(present.parsed, tuple) and present.parsed.spec.paused:
        verdict = _hands_off(verdict, memory)
    return concluded(world, present, verdict, now_us)


def _of_this(present: Present, memory: Memory, now_us: int) -> Memory:
    """The memory of this creation, with the latest generation that was decided about."""
    if memory.uid != present.meta.uid:
        memory = Memory(uid=present.meta.uid)
    if present.meta.generation > memory.generation:
        memory = replace(memory, generation=present.meta.generation, began_us=now_us)
    return memory


def _deleted(world: World, present: Present, memory: Memory, now_us: int) -> Plan:
    verdict = deletion(world, present, memory, now_us)
    if verdict.is_stopped:
        return concluded(world, present, verdict, now_us)
    return Plan(
        verdict.effects,
        verdict.memory,
        trail=verdict.trail,
        notes={name: value for name, value in verdict.figures.items() if name == LEFT_BEHIND},
    )


def _hands_off(verdict: Verdict, memory: Memory) -> Verdict:
    """Conditions and figures are updated; nothing else is changed."""
    return replace(
        verdict,
        effects=(),
        ask=frozenset(),
        again_at_us=None,
        memory=replace(memory, not_ready_since_us=verdict.memory.not_ready_since_us),
        stop=Trouble(Reason.PAUSED, _would(verdict)),
        trail=("paused: no change", *verdict.trail),
    )


def _would(verdict: Verdict) -> str:
    left = len(verdict.effects) + len(verdict.ask)
    return "`spec.paused` is true" + (f"; {left} changes wait" if left else "; no change waits")


# ---- the order


def _walked(world: World, present: Present, memory: Memory, now_us: int) -> Verdict:
    if isinstance(present.parsed, tuple):
        return stopped(memory, Reason.SPEC_INVALID, "; ".join(str(fault) for fault in present.parsed))
    engine = engine_of(present.parsed)
    if engine not in world.settings.carried:
        says = f"headgate {world.settings.version} does not support {engine} (it supports {_carried(world)})"
        return stopped(memory, Reason.ENGINE_UNAVAILABLE, says)
    connection, verdict = connected(world, memory, now_us)
    if connection is None:
        return _observed(world, None, verdict, now_us)
    verdict = _observed(world, connection, verdict, now_us)
    store, found = seen(world, verdict.memory, now_us)
    verdict = verdict.then(found)
    if store is None:
        return _without_store(world, present, present.parsed, connection, verdict, now_us)
    verdict = _with_store(world, present, present.parsed, store, connection, verdict, now_us)
    entry = store.entry
    if verdict.is_stopped or entry is None:
        return verdict
    return _served(
        world,
        present.parsed,
        connection,
        verdict,
        now_us,
        shards=shards_in_force(entry.generations),
        lanes=lanes_of(entry),
    )


def _observed(world: World, connection: Connection | None, verdict: Verdict, now_us: int) -> Verdict:
    """Findings that no effect changes: dead letters, passes, lanes, bulk jobs, figures."""
    verdict = verdict.then(resolved(world, verdict.memory))
    verdict = verdict.then(passed(world, verdict.memory, now_us))
    if isinstance(world.resource.parsed if world.resource else (), Queue):
        verdict = verdict.then(health(world, connection, verdict.memory, now_us))
    return verdict.then(figures(world, None, verdict.memory, now_us))


def _with_store(
    world: World,
    present: Present,
    resource: Resource,
    store: StoreView,
    connection: Connection,
    verdict: Verdict,
    now_us: int,
) -> Verdict:
    """The finalizer before the first table, then the store's steps."""
    found = stored(world, resource, store, connection, verdict.memory, now_us)
    if is_ours(world, store.entry) or found.effects:
        verdict = verdict.then(finalized(present, verdict.memory))
    return verdict.then(replace(found, memory=_stored(found, present, store)))


def _stored(found: Verdict, present: Present, store: StoreView) -> Memory:
    """The base of decisions while Cassandra is unavailable: only a store that was found complete."""
    if store.entry is None or found.stop is not None:
        return replace(found.memory, stored=None)
    if found.is_stopped or found.effects:
        return found.memory
    return replace(found.memory, stored=(present.meta.generation, shards_in_force(store.entry.generations)))


def _without_store(
    world: World, present: Present, resource: Resource, connection: Connection, verdict: Verdict, now_us: int
) -> Verdict:
    """Cassandra is unavailable: existing children stay as they are; later changes wait for the store."""
    generation, shards = verdict.memory.stored or (0, 0)
    if generation != present.meta.generation:
        return verdict
    return _served(world, resource, connection, verdict, now_us, shards=shards, lanes=None)


def _served(
    world: World,
    resource: Resource,
    connection: Connection,
    verdict: Verdict,
    now_us: int,
    *,
    shards: int,
    lanes: int | None,
) -> Verdict:
    """The namespace, workers, bulk."""
    if world.namespace.terminating:
        return verdict.then(stopped(verdict.memory, Reason.PROGRESSING, "its namespace is being deleted"))
    waiting = _namespace(world, resource, verdict.memory)
    if waiting.is_stopped:
        return said(world, verdict.then(waiting)) if isinstance(resource, Queue) else verdict.then(waiting)
    if not isinstance(resource, Queue):
        return verdict
    numbers = scaled(world, shards, lanes, verdict.memory, now_us)
    verdict = verdict.then(
        Verdict(numbers.memory, trail=numbers.trail, again_at_us=numbers.again_at_us),
    )
    made = children(world, connection, numbers.wanted, verdict.memory, now_us)
    verdict = verdict.then(
        Verdict(
            made.memory,
            effects=made.effects,
            ask=made.ask | former_places(world),
            findings=(consumers_finding(world, made.consumers, now_us),),
            trail=made.trail,
            again_at_us=earliest(made.again_at_us, fails_at_us(made.consumers, now_us)),
        )
    )
    verdict = verdict.then(bulk(world, connection, verdict.memory, now_us))
    return verdict.then(figures(world, made.consumers, verdict.memory, now_us))


def _namespace(world: World, resource: Resource, memory: Memory) -> Verdict:
    """The namespace's own key creates the needs of all its pods; workers and bulk jobs wait for it."""
    trouble = world.namespace.trouble
    has_pods = isinstance(resource, Queue) and bool(resource.spec.consumers or resource.spec.bulk)
    if trouble is not None:
        verdict = stopped(memory, trouble.reason, trouble.says)
        return verdict.found(Finding(CONSUMERS, "False", trouble.reason, trouble.says)) if has_pods else verdict
    if has_pods and not world.namespace.ready:
        return stopped(memory, Reason.PROGRESSING, "waiting for the namespace's account and Secret")
    return Verdict(memory)


def _carried(world: World) -> str:
    return ", ".join(sorted(world.settings.carried)) or "none"
