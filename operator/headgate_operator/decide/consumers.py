"""The condition of the consumers: whether the required number of workers runs, and if not, why.

A rollout is distinguished from scaling: a queue whose load needs more workers is as Ready as before. Workers that end
with exit code 2 refuse their handler (an import that fails, headgate missing or of another version), and only a
person can fix that.

Pure. It gets the state of each consumer's Deployment (`decide_children`), and pods only where some are not ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.api.resources.reasons import Reason
from headgate.expiry import SECOND_US
from headgate_operator.decide.children import ConsumerState
from headgate_operator.model.kinds import Document, is_at_rest
from headgate_operator.model.names import consumer_name
from headgate_operator.model.plan import ConditionUpdate, Status
from headgate_operator.model.world import ChildName, PodStatus, ResourceWorld

TYPE: Final = "ConsumersReady"
REFUSED_CODE: Final = 2
SHORT_US: Final = 120 * SECOND_US
WORDS_MAX: Final = 500


def decide_consumers(world: ResourceWorld, stands: Sequence[ConsumerState], now_us: int) -> ConditionUpdate:
    """One finding of all: the worst that one of them has, the first of those that have it."""
    if not stands:
        return ConditionUpdate(TYPE, "True", Reason.NO_CONSUMERS)
    updates = [_of(world, stand, now_us) for stand in stands]
    return min(updates, key=lambda finding: _ORDER.index(finding.reason))


def former_places(world: ResourceWorld) -> frozenset[ChildName]:
    """Names of Deployments of consumers that are in the status and no longer in the spec, as far as the watch has
    none of that name: one that lost our label is ours all the same, and is deleted.
    """
    if world.queue is None:
        return frozenset()
    named = {consumer.name for consumer in world.queue.spec.consumers or ()}
    former = {str(each.get("name")) for each in world.status.get("consumers") or ()} - named
    places = {ChildName("Deployment", consumer_name(world.key.name, each)) for each in former}
    return frozenset(places - world.live.keys() - world.foreign.keys() - world.checked)


def fails_at_us(stands: Sequence[ConsumerState], now_us: int) -> int | None:
    """When the first of those that are short of workers counts as failing, if nothing changes."""
    times = (stand.short_since_us + SHORT_US for stand in stands if stand.short_since_us is not None)
    return min((fails_us for fails_us in times if fails_us > now_us), default=None)


_ORDER: Final = (
    Reason.NAME_TAKEN,
    Reason.HANDLER_REFUSED,
    Reason.APPLY_REFUSED,
    Reason.CONSUMERS_FAILING,
    Reason.CONSUMERS_STARTING,
    Reason.CONSUMERS_RUNNING,
)


def _of(world: ResourceWorld, stand: ConsumerState, now_us: int) -> ConditionUpdate:
    if stand.failure is not None:
        return _finding("False", stand.failure.reason, f"consumer {stand.name}: {stand.failure.message}")
    pods = [pod for pod in world.pods if pod.consumer == stand.name and not pod.ready]
    refused = next((pod for pod in pods if pod.exit_code == REFUSED_CODE), None)
    if refused is not None:
        return _finding("False", Reason.HANDLER_REFUSED, f"consumer {stand.name}: {_last_words(refused)}")
    waits = _waits(world, stand)
    if not waits and stand.ready >= min(stand.replicas, 1):
        return _finding("True", Reason.CONSUMERS_RUNNING)
    restarted = next((pod for pod in pods if pod.restarts), None)
    since_us = stand.short_since_us
    lasts = since_us is not None and now_us - since_us >= SHORT_US
    if restarted is not None or lasts:
        words = "; ".join(filter(None, (stand.message, _last_words(restarted or next(iter(pods), None)))))
        count = f"{stand.ready} of {max(stand.required, min(stand.replicas, 1))} workers are ready"
        message = f"consumer {stand.name}: {count}{f': {words}' if words else ''}"
        return _finding("False", Reason.CONSUMERS_FAILING, message)
    if not waits:  # woken, and above what has to run: workers are on their way
        return _finding("True", Reason.CONSUMERS_RUNNING)
    return _finding("False", Reason.CONSUMERS_STARTING, f"consumer {stand.name}: {waits}")


def _waits(world: ResourceWorld, stand: ConsumerState) -> str:
    """For what it is waited, as far as it counts; nothing where all runs."""
    live = world.live.get(ChildName("Deployment", stand.deployment))
    if live is None:
        return "its Deployment does not exist yet"
    status = live.get("status") or {}
    if stand.ready < stand.required:
        return f"{stand.ready} of {stand.required} workers are ready"
    if not _is_observed(live):
        return "" if is_at_rest(live) or _ran(world) else "its controller has not processed the Deployment yet"
    old = int(status.get("replicas") or 0) - int(status.get("updatedReplicas") or 0)
    return f"{old} workers of the previous revision still run" if old > 0 else ""


def _is_observed(live: Document) -> bool:
    observed = int((live.get("status") or {}).get("observedGeneration") or 0)
    return observed >= int(live["metadata"].get("generation") or 0)


def _ran(world: ResourceWorld) -> bool:
    """Whether the same generation of the spec was found running: then it is the number alone that was changed."""
    return world.resource is not None and world.reports(TYPE, "True", world.resource.meta.generation)


def _last_words(pod: PodStatus | None) -> str:
    if pod is None:
        return ""
    code = f" (exit code {pod.exit_code})" if pod.exit_code is not None else ""
    return f"{pod.name}{code}: {pod.message}"[:WORDS_MAX]


def _finding(status: Status, reason: Reason, message: str = "") -> ConditionUpdate:
    return ConditionUpdate(TYPE, status, reason, message)
