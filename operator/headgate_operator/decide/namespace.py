"""The needs of our pods in a namespace: accounts, the copy of the connection, CronJobs.

These belong to no resource and to all: they are found by their labels, and go with the last resource that needs them.
Unread state changes nothing: while the groups of resources are not known no CronJob goes, and while the chart's
Secret is not there its copies stay.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.api.resources.reasons import Reason
from headgate_operator.decide.child import child_of, decide_child, remove
from headgate_operator.manifests.namespace_objects import (
    build_connection_copy,
    build_cronjob,
    build_spark_account,
    build_spark_binding,
    build_worker_account,
)
from headgate_operator.manifests.pod import Part
from headgate_operator.model.names import CONNECTION_COPY, SPARK_ACCOUNT, WORKER_ACCOUNT
from headgate_operator.model.plan import PartialPlan, ReconcilePlan
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    DecisionMemory,
    JobGroup,
    NamespaceState,
    NamespaceWorld,
    ResourceFailure,
)


def decide_namespace(world: NamespaceWorld, now_us: int, memory: DecisionMemory | None = None) -> ReconcilePlan:
    """Missing and superfluous objects."""
    memory = memory or DecisionMemory()
    if not world.present or world.terminating:
        reason = "the namespace is being deleted" if world.present else "the namespace does not exist"
        state = replace(build_namespace_identity(world), terminating=world.terminating)
        return ReconcilePlan(memory=memory, trail=(reason,), namespace=state)
    tended = PartialPlan(memory)
    for document in _needed(world):
        tended = tended.then(decide_child(world, document, tended.memory, now_us))
    stand = _stand(world, tended)
    for document in _jobs(world):
        tended = tended.then(decide_child(world, document, tended.memory, now_us))
    for child in sorted(_surplus(world)):
        tended = tended.then(remove(world, child, tended.memory, "no resource needs it any more"))
    return ReconcilePlan(
        effects=tended.effects,
        memory=tended.memory,
        again_at_us=tended.again_at_us,
        ask=tended.ask,
        trail=tended.trail,
        namespace=stand,
    )


def _needed(world: NamespaceWorld) -> Iterator[Part]:
    """The needs of pods before they start, in the order of their creation."""
    if _runs_pods(world):
        yield build_worker_account(world.namespace, world.settings.pull_secrets)
    if _wants_copy(world) and world.source is not UNKNOWN and world.source is not None:
        yield build_connection_copy(world.namespace, world.source)
    if world.wants_spark:
        yield build_spark_account(world.namespace, world.settings.pull_secrets)
        yield build_spark_binding(world.namespace)


def _jobs(world: NamespaceWorld) -> Iterator[Part]:
    for group in sorted(
        _groups(world), key=lambda group: (group.task, group.schedule, group.connection, group.image)
    ):
        yield build_cronjob(world.namespace, world.settings, group)


def _groups(world: NamespaceWorld) -> frozenset[JobGroup]:
    return frozenset() if world.groups is UNKNOWN else world.groups


def _runs_pods(world: NamespaceWorld) -> bool:
    return world.wants_workers or world.wants_spark or bool(_groups(world))


def _wants_copy(world: NamespaceWorld) -> bool:
    """Whether a copy of the chart's Secret has to be here: no namespace that may not use it gets its credentials."""
    return world.wants_copy and world.is_admitted is True and not _is_at_home(world)


def _is_at_home(world: NamespaceWorld) -> bool:
    """The Secret that pods need is here already: the chart's own."""
    settings = world.settings
    is_named_so = settings.connection_secret == CONNECTION_COPY or settings.workers_secret is not None
    return world.namespace == settings.namespace and is_named_so


def _surplus(world: NamespaceWorld) -> Iterator[ChildName]:
    """Objects of ours that no resource needs."""
    jobs = {child_of(document) for document in _jobs(world)}
    for child in world.live:
        match child:
            case ChildName("CronJob"):
                too_many = world.groups is not UNKNOWN and child not in jobs
            case ChildName("ServiceAccount", name) if name == WORKER_ACCOUNT:
                too_many = world.groups is not UNKNOWN and not _runs_pods(world)
            case ChildName("ServiceAccount" | "RoleBinding", name) if name == SPARK_ACCOUNT:
                too_many = not world.wants_spark
            case ChildName("Secret", name) if name == CONNECTION_COPY:
                is_needed = world.wants_copy and world.is_admitted is not False
                too_many = not is_needed and not _is_at_home(world)
            case _:
                too_many = False
        if too_many:
            yield child


def build_namespace_identity(world: NamespaceWorld) -> NamespaceState:
    """What its resources have to know of it, whatever stands there: a change of it wakes them."""
    return NamespaceState(is_admitted=world.is_admitted, uid=world.uid, adopts_from=world.adopts_from)


def _stand(world: NamespaceWorld, tended: PartialPlan) -> NamespaceState:
    """Whether pods can start: all that they need exists, even if it has to be fixed."""
    state = build_namespace_identity(world)
    if tended.blocked_by is not None:
        return replace(state, failure=tended.blocked_by)
    copy = ChildName("Secret", CONNECTION_COPY)
    if _wants_copy(world) and copy not in world.live:
        if world.source is None:
            settings = world.settings
            message = f"there is no Secret {settings.copied_secret} in namespace {settings.namespace}"
            return replace(state, failure=ResourceFailure(Reason.CONNECTION_MISSING, message))
        return state
    return replace(state, ready=all(child_of(document) in world.live for document in _needed(world)))
