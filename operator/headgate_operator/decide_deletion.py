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

from headgate.api.model import API_VERSION
from headgate.api.status import Reason
from headgate.applying.decide_steps import Retain, decide_removal
from headgate.expiry import SECOND_US
from headgate.store.catalogue_entry import Entry, State
from headgate_operator.decide_children import all_removed
from headgate_operator.decide_ownership import is_ours
from headgate_operator.decide_passes import moment
from headgate_operator.decide_store import TYPE as TABLES
from headgate_operator.decide_store import connected, found_of, seen, told
from headgate_operator.effects import ApplyObject, DeleteObject, Effect, Plan, StoreStep
from headgate_operator.names import FINALIZER, owner_parts
from headgate_operator.verdict import Finding, Verdict, earliest, stopped
from headgate_operator.world import Connection, Memory, Nothing, Present, StoreView, World

LET_GO_AFTER_US: Final = 10 * SECOND_US
PODS_END_US: Final = 90 * SECOND_US
WAITED_FOR: Final = ("Deployment", "SparkApplication")
LEFT_BEHIND: Final = "left_behind"


def absent(world: World) -> Plan:
    """The resource is gone: its data in the store are kept, and refuse puts and receives from now on."""
    store, connection = world.store, world.connection
    if not isinstance(store, StoreView) or not isinstance(connection, Connection) or store.entry is None:
        return Plan(memory=Memory(), trail=(f"{world.key} is not there",))
    entry = store.entry
    parts = owner_parts(entry.owner)
    ours = parts is not None and parts[0] == world.settings.cluster
    if not ours or entry.state in (State.RETAINED, State.GONE):
        return Plan(memory=Memory(), trail=(f"{world.key} is not there",))
    step = StoreStep(Retain(entry), entry.owner, connection)
    return Plan((step,), Memory(), trail=(f"{world.key} is not there: {entry.id} is kept as retained",))


def with_finalizer(present: Present, wanted: bool) -> ApplyObject:
    """The resource with or without our finalizer, next to those of others, and no other field."""
    metadata = present.document["metadata"]
    others = [each for each in present.meta.finalizers if each != FINALIZER]
    said: dict[str, Any] = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": present.meta.uid,
        "finalizers": [*others, FINALIZER] if wanted else others,
    }
    if "resourceVersion" in metadata:
        said["resourceVersion"] = metadata["resourceVersion"]
    document = {"apiVersion": API_VERSION, "kind": present.document["kind"], "metadata": said}
    return ApplyObject(document, merges=True)


def policy_of(present: Present) -> str:
    """The policy for the data, also if the rest of the spec is not valid."""
    spec = present.document.get("spec")
    found = spec.get("deletionPolicy") if isinstance(spec, Mapping) else None
    return "Delete" if found == "Delete" else "Retain"


def finalized(present: Present, memory: Memory) -> Verdict:
    """The finalizer, as the policy asks for it."""
    wanted, there = policy_of(present) == "Delete", FINALIZER in present.meta.finalizers
    if wanted == there:
        return Verdict(memory)
    trail = "set the finalizer before anything is created" if wanted else "nothing to drop: no finalizer"
    return Verdict(memory, effects=(with_finalizer(present, wanted),), trail=(trail,))


def deletion(world: World, present: Present, memory: Memory, now_us: int) -> Verdict:
    """The remaining changes before the resource can go."""
    if not present.meta.finalizers:
        return Verdict(memory, trail=("no finalizer is left",))
    if FINALIZER not in present.meta.finalizers:
        others = ", ".join(present.meta.finalizers)
        return stopped(memory, Reason.DELETING, f"waiting for the finalizers of others: {others}")
    if policy_of(present) != "Delete":
        return _let_go(present, memory, "its data stay (Retain)")
    connection, verdict = connected(world, memory, now_us)
    store = None
    if connection is not None:
        store, verdict = seen(world, memory, now_us)
    since_us = present.meta.deleting_since_us or now_us
    tried = now_us - since_us >= LET_GO_AFTER_US
    unreachable = store is None or world.step_trouble is not None
    if world.namespace.terminating and unreachable:
        if tried:
            what = f"{world.key} is deleted with its namespace, and its data stay in Cassandra"
            return replace(_let_go(present, verdict.memory, what), figures={LEFT_BEHIND: 1})
        waiting = replace(verdict, stop=None, blind="")
        return _waits(waiting, "its namespace terminates; one attempt to reach Cassandra", since_us + LET_GO_AFTER_US)
    if connection is None or store is None:
        return _waiting_for_store(world, verdict, now_us)
    if not is_ours(world, store.entry) or store.entry is None:
        return _let_go(present, verdict.memory, "nothing of it is left in Cassandra")
    return _removed(world, store, store.entry, connection, verdict.memory, now_us)


def _removed(
    world: World, store: StoreView, entry: Entry, connection: Connection, memory: Memory, now_us: int
) -> Verdict:
    """Marked, then without workers, then without tables, then without a name."""
    decided = decide_removal(entry, found_of(store), now_us=now_us)
    steps = tuple(StoreStep(step, entry.owner, connection) for step in decided.steps)
    trail = tuple(told(step) for step in decided.steps)
    if world.step_trouble is not None and steps:
        refused = Verdict(memory, effects=steps, trail=trail, is_refused=True)
        return _waits(refused, world.step_trouble.says, None)
    if entry.state is not State.DELETING:
        return _waits(Verdict(memory, effects=steps, trail=trail), "puts and receives have ended", None)
    ended = _without_workers(world, memory, now_us)
    if ended is not None:
        return ended
    if not steps:
        return _waits(Verdict(memory), "every process has to learn that it is being deleted", decided.again_at_us)
    says = "its tables are being dropped"
    found = (Finding(TABLES, "False", Reason.TABLES_MISSING, says),)
    return _waits(Verdict(memory, effects=steps, findings=found, trail=trail), says, decided.again_at_us)


def _without_workers(world: World, memory: Memory, now_us: int) -> Verdict | None:
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
        return _waits(Verdict(removed.memory, effects=effects, trail=removed.trail), "its workers end", None)
    if not there:
        return None
    until_us = (world.resource.meta.deleting_since_us or now_us if world.resource else now_us) + PODS_END_US
    if now_us >= until_us:
        return None
    return _waits(Verdict(removed.memory), "its workers end", until_us)


def _waiting_for_store(world: World, verdict: Verdict, now_us: int) -> Verdict:
    if verdict.blind and isinstance(world.store, Nothing) and verdict.memory.store_down_since_us is None:
        return verdict
    since_us = verdict.memory.store_down_since_us
    since = f" since {moment(since_us)}" if since_us is not None else ""
    why = f": {verdict.stop.says}" if verdict.stop is not None else ""
    says = f"waiting for Cassandra{since}{why}; to release it and keep its data, set `deletionPolicy: Retain`"
    waiting = replace(verdict, stop=None, blind="")
    return _waits(waiting, says, earliest(verdict.again_at_us))


def _let_go(present: Present, memory: Memory, why: str) -> Verdict:
    return Verdict(memory, effects=(with_finalizer(present, False),), trail=(f"remove the finalizer: {why}",))


def _waits(verdict: Verdict, says: str, again_at_us: int | None) -> Verdict:
    told_to = stopped(verdict.memory, Reason.DELETING, says, again_at_us=again_at_us)
    return verdict.then(told_to)
