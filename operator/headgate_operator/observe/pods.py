"""Pods of consumers that are short of workers: why they are not ready, by their last log line.

Pods are not watched, since there may be thousands and nothing is decided by those that are well; they are listed for
a queue whose Deployment reports that some are missing, at most each ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.manifests.deployment import HANDLER, WORKER
from headgate_operator.model.kinds import POD, Document
from headgate_operator.model.names import GROUP, Key
from headgate_operator.model.world import PodStatus

LIST_EVERY_S: Final = 10.0
PODS_MAX: Final = 50
KEPT_MAX: Final = 5_000


class PodInspector:
    def __init__(self, port: ClusterPort, *, now_s: Callable[[], float]) -> None:
        self._port = port
        self._now_s = now_s
        self._known: dict[Key, tuple[float, tuple[PodStatus, ...]]] = {}

    def fork(self) -> PodInspector:
        made = PodInspector(self._port, now_s=self._now_s)
        made._known = dict(self._known)
        return made

    async def of(self, key: Key, deployments: Iterable[Document]) -> tuple[PodStatus, ...]:
        """Pods that do not become ready, where there should be more of them."""
        if not any(_is_short(each) for each in deployments):
            self._known.pop(key, None)
            return ()
        known = self._known.get(key)
        if known is not None and self._now_s() - known[0] < LIST_EVERY_S:
            return known[1]
        page = await self._port.list(POD, key.namespace, labels=f"{GROUP}/queue={key.name}", limit=PODS_MAX)
        if isinstance(page, Denied):
            return () if known is None else known[1]
        pods = tuple(pod for pod in map(pod_status, page.items) if not pod.ready)
        self._known.pop(key, None)
        self._known[key] = (self._now_s(), pods)
        while len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]
        return pods


def pod_status(pod: Document) -> PodStatus:
    metadata, status = pod["metadata"], pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    conditions = status.get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    worst: Mapping[str, Any] = max(
        statuses, key=lambda each: (_ended(each) is not None, each.get("restartCount") or 0), default={}
    )
    ended = _ended(worst)
    return PodStatus(
        consumer=(metadata.get("labels") or {}).get(f"{GROUP}/consumer", ""),
        name=metadata["name"],
        ready=ready,
        restarts=max((int(each.get("restartCount") or 0) for each in statuses), default=0),
        # Of our own container alone: in a handler of somebody else's the same code means something else.
        exit_code=int(ended.get("exitCode") or 0) if ended is not None and worst.get("name") == WORKER else None,
        message=_words(statuses, conditions, ended),
    )


def _is_short(deployment: Document) -> bool:
    wanted = int((deployment.get("spec") or {}).get("replicas") or 0)
    status = deployment.get("status") or {}
    return any(int(status.get(count) or 0) < wanted for count in ("readyReplicas", "updatedReplicas"))


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How its last run ended with a failure."""
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("exitCode"):
            ended_state: Mapping[str, Any] = ended
            return ended_state
    return None


def _words(statuses: Iterable[Any], conditions: Iterable[Any], ended: Mapping[str, Any] | None) -> str:
    """Its last log line, else why it waits, else why it cannot be scheduled."""
    if ended is not None and ended.get("message"):
        return str(ended["message"]).strip().splitlines()[-1]
    for each in statuses:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return " ".join(str(part) for part in (waiting.get("reason"), waiting.get("message")) if part)
        if each.get("name") == HANDLER and each.get("restartCount") and each.get("started") is False:
            return "the handler runs, but does not listen at its port on the pod's address"
    for each in conditions:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "it cannot be scheduled")
    return "" if ended is None else f"it ended with exit code {ended.get('exitCode')} ({ended.get('reason', '')})"
