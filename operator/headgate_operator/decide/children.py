"""The workers' children of a resource: a Deployment for each consumer, and a PodDisruptionBudget where it protects
something. Further children are deleted.

The number of replicas is decided elsewhere and passed in. With `scaling: {mode: external}` another controller owns
it, and its ownership changes in two steps, since the API server writes 1 where the last owner of a field leaves it
out:

    ours --(headgate-replicas applies the current number)--> both --(headgate leaves it out)--> the other's
    the other's --(headgate applies the number, with force)--> both --(headgate-replicas applies nothing)--> ours

Each step is visible in the object's managed fields, so that a kill between two changes nothing.

Pure. It builds the documents by `build_*` and has each reconciled by `decide_child`. If one child fails, the others
are reconciled all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.api.resources.consumer import Consumer
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate_operator.decide.child import decide_child, remove, with_uid
from headgate_operator.manifests.deployment import build_deployment, build_disruption_budget
from headgate_operator.manifests.document_diff import stamped
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.manifests.strategic_merge import PatchInvalid
from headgate_operator.model.kinds import Document, is_at_rest
from headgate_operator.model.names import MANAGER, REPLICAS_MANAGER, consumer_name
from headgate_operator.model.plan import ApplyObject, PartialPlan
from headgate_operator.model.world import ChildName, DecisionMemory, ResourceFailure, ResourceWorld, StoreConnection

KINDS: Final = ("Deployment", "PodDisruptionBudget")
"""Kinds that this module decides about; other modules decide about other children."""


@dataclass(frozen=True)
class ConsumerState:
    """How one consumer's Deployment stands, for conditions and status."""

    name: str
    deployment: str
    replicas: int
    """The wanted number; in mode external, that of the Deployment."""
    required: int
    """The number that must be ready, else it counts as starting: `min`, or all without `scaling`."""
    ready: int = 0
    rolled_out: bool = False
    """All its pods are made from the template that was applied last."""
    short_since_us: int | None = None
    """Since when fewer are ready than are required, or a rollout is under way."""
    message: str = ""
    """The Deployment's own report if it makes no progress: a quota, a deadline that passed."""
    failure: ResourceFailure | None = None
    """NameTaken or ApplyRefused."""


@dataclass(frozen=True)
class ChildrenPlan(PartialPlan):
    """The decision about the children of one resource; `blocked_by` is the first failure of its consumers."""

    consumers: tuple[ConsumerState, ...] = ()


def decide_children(
    world: ResourceWorld, connection: StoreConnection, wanted: Mapping[str, int], memory: DecisionMemory, now_us: int
) -> ChildrenPlan:
    """Reconcile the children. `wanted`: replicas by consumer; the number of an absent one stays."""
    if world.resource is None or isinstance(world.resource.parsed, tuple):
        return ChildrenPlan(memory)
    consumers = (world.queue.spec.consumers or ()) if world.queue else ()
    tended, stands, expected = PartialPlan(memory), [], set[ChildName]()
    for consumer in consumers:
        step, stand = _consumer(world, connection, consumer, wanted.get(consumer.name), now_us, tended.memory)
        tended = tended.then(step)
        stands.append(stand)
        expected |= {ChildName(kind, consumer_name(world.key.name, consumer.name)) for kind in KINDS}
    for child in sorted(world.live):
        if child.kind in KINDS and child not in expected:
            tended = tended.then(remove(world, child, tended.memory, "no consumer has this name"))
    return ChildrenPlan(
        memory=_remembered(tended.memory, stands),
        effects=tended.effects,
        ask=tended.ask,
        trail=tended.trail,
        consumers=tuple(stands),
        again_at_us=tended.again_at_us,
        blocked_by=next((stand.failure for stand in stands if stand.failure), None),
    )


def all_removed(world: ResourceWorld, memory: DecisionMemory, why: str) -> PartialPlan:
    """Do without any of them: the resource is being deleted."""
    tended = PartialPlan(memory)
    for child in sorted(world.live):
        if child.kind in KINDS:
            tended = tended.then(remove(world, child, tended.memory, why))
    return tended


def _consumer(
    world: ResourceWorld,
    connection: StoreConnection,
    consumer: Consumer,
    wanted: int | None,
    now_us: int,
    memory: DecisionMemory,
) -> tuple[PartialPlan, ConsumerState]:
    name = consumer_name(world.key.name, consumer.name)
    live = world.live.get(ChildName("Deployment", name))
    replicas = _replicas(world, consumer, live, wanted)
    owner = ChildOwner(world.key, world.uid)
    replicas_set = None if _is_external(consumer) else replicas
    try:
        document = build_deployment(owner, world.settings, connection, consumer, replicas_set)
    except PatchInvalid as error:
        message = f"consumer {consumer.name}: template: {error}"
        tended = PartialPlan(memory, trail=(message,), blocked_by=ResourceFailure(Reason.APPLY_REFUSED, message))
        return tended, _stand(name, consumer, live, replicas, tended, now_us)
    tended = decide_child(world, document, memory, now_us, world)
    if live is not None and tended.blocked_by is None:
        tended = _handed_over(tended, document, live, is_external=_is_external(consumer))
    stand = _stand(name, consumer, live, replicas, tended, now_us)
    is_known = wanted is not None or _is_external(consumer)
    tended = tended.then(_budget(world, consumer, replicas if is_known else None, tended.memory, now_us))
    return tended, replace(stand, failure=tended.blocked_by)


def _is_external(consumer: Consumer) -> bool:
    return consumer.scaling is not None and consumer.scaling.mode == "external"


def _replicas(world: ResourceWorld, consumer: Consumer, live: Document | None, wanted: int | None) -> int:
    """The number of replicas: the wanted one, else the present one, else the minimum or the number of shards."""
    current = None if live is None else live["spec"].get("replicas")
    if current is not None and (wanted is None or _is_external(consumer)):
        return int(current)
    if wanted is not None:
        return wanted
    return consumer.scaling.min if consumer.scaling else _reported_shards(world)


def _reported_shards(world: ResourceWorld) -> int:
    """The shards in force as our own status has them, while the store is unavailable."""
    present = world.resource
    if present is None or not isinstance(present.parsed, QueueResource):
        return 0
    shards = (present.document.get("status") or {}).get("replicas")
    return int(shards) if shards is not None else present.parsed.spec.shards


def _handed_over(tended: PartialPlan, document: Document, live: Document, *, is_external: bool) -> PartialPlan:
    """With the changes that make the right manager the only owner of the number of replicas."""
    owners = _owners_of_replicas(live)
    name = document["metadata"]["name"]
    if owners is None:  # its owner is unknown: leaving it out is made safe whenever something is applied
        owners = frozenset((MANAGER,)) if is_external and tended.effects else frozenset()
    if is_external and MANAGER in owners:
        left_out = tended.effects or (ApplyObject(with_uid(stamped(document), live)),)
        if REPLICAS_MANAGER not in owners:
            kept = {**_bare(document), "spec": {"replicas": live["spec"]["replicas"]}}
            left_out = (ApplyObject(with_uid(kept, live), manager=REPLICAS_MANAGER), *left_out)
        return replace(
            tended,
            effects=left_out,
            trail=(*tended.trail, f"release the replicas of {name} to an external autoscaler"),
        )
    if not is_external and REPLICAS_MANAGER in owners:
        given_up = ApplyObject(with_uid(_bare(document), live), manager=REPLICAS_MANAGER)
        taken = tended.effects or (ApplyObject(with_uid(stamped(document), live)),)
        trail = (*tended.trail, f"take over the replicas of {name}")
        return replace(tended, effects=(*taken, given_up), trail=trail)
    return tended


def _bare(document: Document) -> dict[str, Any]:
    """Nothing but which object is meant."""
    metadata = {name: document["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}


def _owners_of_replicas(live: Document) -> frozenset[str] | None:
    """The owners of the number of replicas, by server-side apply; None where managed fields are unknown."""
    fields = live["metadata"].get("managedFields")
    if fields is None:
        return None
    return frozenset(
        str(one.get("manager"))
        for one in fields
        if one.get("operation") == "Apply" and "f:replicas" in one.get("fieldsV1", {}).get("f:spec", {})
    )


def _budget(
    world: ResourceWorld, consumer: Consumer, replicas: int | None, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    """From two workers on there is something to protect; it stays while there may be two again, and while nobody
    knows how many there should be (`replicas` None)."""
    child = ChildName("PodDisruptionBudget", consumer_name(world.key.name, consumer.name))
    wants = child in world.live
    if replicas is not None:
        most = consumer.scaling.max if consumer.scaling is not None else replicas
        wants = replicas >= 2 or (wants and most >= 2)
    if wants:
        return decide_child(
            world, build_disruption_budget(ChildOwner(world.key, world.uid), consumer), memory, now_us
        )
    if child in world.live:
        return remove(world, child, memory, "a single worker needs none")
    return PartialPlan(memory)


def _stand(
    name: str, consumer: Consumer, live: Document | None, replicas: int, tended: PartialPlan, now_us: int
) -> ConsumerState:
    required = min(consumer.scaling.min, replicas) if consumer.scaling is not None else replicas
    status = {} if live is None else live.get("status") or {}
    ready = int(status.get("readyReplicas") or 0)
    rolled_out = live is not None and not tended.effects and _is_rolled_out(live, status)
    before = dict(tended.memory.not_ready_since_us).get(consumer.name)
    is_short = ready < max(required, min(replicas, 1)) or not rolled_out
    return ConsumerState(
        name=consumer.name,
        deployment=name,
        replicas=replicas,
        required=required,
        ready=ready,
        rolled_out=rolled_out,
        short_since_us=(now_us if before is None else before) if is_short else None,
        message=_deployment_message(status),
        failure=tended.blocked_by,
    )


def _is_rolled_out(live: Document, status: Mapping[str, Any]) -> bool:
    """The controller has seen the spec, and all pods are of its template; or there are none, and none are wanted."""
    if is_at_rest(live):
        return True
    observed = int(status.get("observedGeneration") or 0) >= int(live["metadata"].get("generation") or 0)
    total, updated = int(status.get("replicas") or 0), int(status.get("updatedReplicas") or 0)
    return observed and total == updated and updated >= int(live["spec"].get("replicas") or 0)


def _deployment_message(status: Mapping[str, Any]) -> str:
    """A Deployment's own reason for making no progress; empty while it makes some."""
    for condition in status.get("conditions") or ():
        failed = condition["type"] == "ReplicaFailure" and condition["status"] == "True"
        if failed or (condition["type"] == "Progressing" and condition["status"] == "False"):
            return str(condition.get("message") or condition.get("reason") or condition["type"])
    return ""


def _remembered(memory: DecisionMemory, stands: list[ConsumerState]) -> DecisionMemory:
    """Since when which consumer is short of workers."""
    short = tuple((stand.name, stand.short_since_us) for stand in stands if stand.short_since_us is not None)
    return memory if memory.not_ready_since_us == short else replace(memory, not_ready_since_us=short)
