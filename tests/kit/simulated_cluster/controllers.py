"""Controllers and a kubelet, as far as operators see them: they create pods of Deployments and make them ready.

A Deployment rolls by its surge, and reports its progress and its failure to make any. Its pods are pending, then
running, then ready or not, end in their grace, and restart after a failure with growing pauses. It does not know the
programs in a pod: `PodNode` decides about them and learns of starts and ends, so that a simulation can run workers of
its own. ReplicaSets are left out: pods belong to their Deployment, by label and owner.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import DEPLOYMENT, POD
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_cluster.writing import format_time

Object = Mapping[str, Any]
Later = Callable[[float, Callable[[], object]], object]

REACT_S: Final = (0.01, 0.1)
"""How long a controller takes to notice."""
SCHEDULE_S: Final = (0.3, 1.0)
"""From a pod's creation until its containers start."""
BACKOFF_S: Final = 10.0
BACKOFF_S_MAX: Final = 300.0
MANAGER: Final = {"fieldManager": "kube-controller-manager"}
KUBELET: Final = {"fieldManager": "kubelet"}
HASH: Final = "pod-template-hash"


@dataclass(frozen=True)
class PodOutcome:
    """The life of a pod's main container after its start."""

    ready_after_s: float | None = 1.0
    """None: it never is."""
    exits_after_s: float | None = None
    """None: it runs until its termination."""
    exit_code: int = 0
    message: str = ""
    """Its termination message."""


class PodNode(Protocol):
    """A node that runs pods; an implementation defines their programs."""

    def started(self, pod: Object) -> PodOutcome:
        """Its containers have started."""

    def ending(self, pod: Object) -> float:
        """Terminate it; returns the seconds until it has ended."""


class IdleNode:
    """Pods that get ready and do nothing."""

    def __init__(self, fate: PodOutcome | None = None) -> None:
        self.fate = fate or PodOutcome()
        """May be changed at any time; it is of those that start from then on."""

    def started(self, pod: Object) -> PodOutcome:
        """As for all."""
        return self.fate

    def ending(self, pod: Object) -> float:
        """At once."""
        return 0.1


class Deployments:
    """The controller of Deployments of one server."""

    def __init__(self, server: ApiServer, later: Later, rng: Random) -> None:
        self._server = server
        self._later = later
        self._rng = rng
        self._scheduled: set[tuple[str, str]] = set()
        self._made = 0
        self._pods: dict[str, dict[str, tuple[str, str]]] = {}
        """By the uid of their Deployment, then by their own: where they are."""
        self._progress_us: dict[str, tuple[Any, int]] = {}
        """By uid: what was reached last, and when."""
        server.when_written(self._written)

    def _written(self, entry: WriteEntry) -> None:
        metadata = entry.document["metadata"]
        if entry.kind is DEPLOYMENT and entry.type != "DELETED":
            self._soon(metadata["namespace"], metadata["name"])
        elif entry.kind is POD:
            for owner in metadata.get("ownerReferences") or ():
                if owner["kind"] == "Deployment":
                    self._know(owner["uid"], entry)
                    self._soon(metadata["namespace"], owner["name"])

    def _know(self, owner: str, entry: WriteEntry) -> None:
        metadata = entry.document["metadata"]
        pods = self._pods.setdefault(owner, {})
        if entry.type == "DELETED":
            pods.pop(metadata["uid"], None)
        else:
            pods[metadata["uid"]] = (metadata["namespace"], metadata["name"])

    def _soon(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self._scheduled:
            self._scheduled.add((namespace, name))
            self._later(self._rng.uniform(*REACT_S), lambda: self.sync(namespace, name))

    def sync(self, namespace: str, name: str) -> None:
        """Bring pods and status nearer to what is wanted."""
        self._scheduled.discard((namespace, name))
        deployment = self._server.find(DEPLOYMENT, namespace, name)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            return
        pods = self._pods_of(deployment)
        mark = template_hash(deployment)
        current = [pod for pod in pods if pod["metadata"]["labels"].get(HASH) == mark]
        former = [pod for pod in pods if pod["metadata"]["labels"].get(HASH) != mark]
        wanted = deployment["spec"]["replicas"]
        surge, unavailable = _roll(deployment)
        headroom = wanted + (surge if former else 0) - len(pods)
        for _ in range(min(wanted - len(current), max(headroom, 0))):
            self._make_pod(deployment, mark)
        for pod in _surplus(current, wanted):
            self._end(pod)
        ready = sum(is_ready(pod) for pod in pods)
        spare = ready - (wanted - unavailable)
        for pod in sorted(former, key=is_ready):
            if not is_ready(pod) or spare > 0:
                spare -= is_ready(pod)
                self._end(pod)
        self._write_status(deployment, current, former)

    def _pods_of(self, deployment: Object) -> list[Object]:
        places = self._pods.get(deployment["metadata"]["uid"], {}).values()
        pods = [self._server.find(POD, *place) for place in sorted(places)]
        return [pod for pod in pods if pod is not None and not pod["metadata"].get("deletionTimestamp")]

    def _make_pod(self, deployment: Object, mark: str) -> None:
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        self._made += 1
        labels = {**(template["metadata"].get("labels") or {}), HASH: mark}
        owner = {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": metadata["namespace"],
                "name": f"{metadata['name']}-{mark}-{self._made}",
                "labels": labels,
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        self._server.answer(ApiRequest("create", POD, metadata["namespace"], query=MANAGER, body=pod))

    def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}}
        self._server.answer(ApiRequest("delete", POD, metadata["namespace"], metadata["name"], body=options))

    def _write_status(self, deployment: Object, current: list[Object], former: list[Object]) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        ready = sum(is_ready(pod) for pod in (*current, *former))
        replicas, updated = len(current) + len(former), len(current)
        done = updated == spec["replicas"] == sum(is_ready(pod) for pod in current) and not former
        status: dict[str, Any] = {
            "observedGeneration": metadata["generation"],
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, spec["replicas"] - ready),
        }
        counts = {name: count for name, count in status.items() if count or name == "observedGeneration"}
        _, unavailable = _roll(deployment)
        counts["conditions"] = [
            self._available(deployment, ready >= spec["replicas"] - unavailable),
            self._progressing(deployment, done, (metadata["generation"], updated, ready, len(former))),
        ]
        gone = {name: None for name in status if name not in counts}
        body = {"status": {**counts, **gone}}
        at = (metadata["namespace"], metadata["name"], "status")
        self._server.answer(ApiRequest("patch", DEPLOYMENT, *at, query=MANAGER, body=body))

    def _available(self, deployment: Object, holds: bool) -> Object:
        if holds:
            return self._condition(deployment, "Available", "True", "MinimumReplicasAvailable")
        return self._condition(deployment, "Available", "False", "MinimumReplicasUnavailable")

    def _progressing(self, deployment: Object, done: bool, reached: Any) -> Object:
        metadata, now_us = deployment["metadata"], self._server.now_us()
        before, since_us = self._progress_us.get(metadata["uid"], (None, now_us))
        if before != reached:
            since_us = now_us
            self._progress_us[metadata["uid"]] = (reached, now_us)
        if done:
            return self._condition(deployment, "Progressing", "True", "NewReplicaSetAvailable")
        left_s = deployment["spec"]["progressDeadlineSeconds"] - (now_us - since_us) / 1_000_000
        if left_s <= 0:
            return self._condition(deployment, "Progressing", "False", "ProgressDeadlineExceeded")
        if before != reached:
            self._later(left_s + 0.1, lambda: self._soon(metadata["namespace"], metadata["name"]))
        return self._condition(deployment, "Progressing", "True", "ReplicaSetUpdated")

    def _condition(self, deployment: Object, type_: str, status: str, reason: str) -> Object:
        before = (deployment.get("status") or {}).get("conditions") or ()
        same = [one for one in before if (one["type"], one["status"], one["reason"]) == (type_, status, reason)]
        if same:
            return dict(same[0])
        now = format_time(self._server.now_us())
        return {"type": type_, "status": status, "reason": reason, "lastUpdateTime": now, "lastTransitionTime": now}


class Kubelet:
    """Starts and ends the pods of one server."""

    def __init__(self, server: ApiServer, later: Later, rng: Random, node: PodNode) -> None:
        self._server = server
        self._later = later
        self._rng = rng
        self.node = node
        self._ending: set[str] = set()
        server.when_written(self._written)

    def _written(self, entry: WriteEntry) -> None:
        if entry.kind is not POD:
            return
        metadata = entry.document["metadata"]
        at = (metadata["namespace"], metadata["name"], metadata["uid"])
        if entry.type == "ADDED":
            self._later(self._rng.uniform(*SCHEDULE_S), lambda: self._start(*at, restarts=0))
        elif entry.type == "MODIFIED" and metadata.get("deletionTimestamp") and metadata["uid"] not in self._ending:
            self._ending.add(metadata["uid"])
            grace_s = float(metadata.get("deletionGracePeriodSeconds", 0))
            self._later(min(self.node.ending(entry.document), grace_s), lambda: self._finish(*at))

    def _alive(self, namespace: str, name: str, uid: str) -> Object | None:
        pod = self._server.find(POD, namespace, name)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _start(self, namespace: str, name: str, uid: str, *, restarts: int) -> None:
        pod = self._alive(namespace, name, uid)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        fate = self.node.started(pod)
        running = {"running": {"startedAt": format_time(self._server.now_us())}}
        self._write_status(pod, "Running", ready=False, state=running, restarts=restarts)
        at = (namespace, name, uid)
        if fate.ready_after_s is not None:
            self._later(fate.ready_after_s, lambda: self._ready(*at, restarts=restarts))
        if fate.exits_after_s is not None:
            self._later(fate.exits_after_s, lambda: self._exit(*at, restarts=restarts, fate=fate))

    def _ready(self, namespace: str, name: str, uid: str, *, restarts: int) -> None:
        pod = self._alive(namespace, name, uid)
        if pod is None or _restarts(pod) != restarts or "running" not in _state(pod):
            return
        if not pod["metadata"].get("deletionTimestamp"):
            self._write_status(pod, "Running", ready=True, state=_state(pod), restarts=restarts)

    def _exit(self, namespace: str, name: str, uid: str, *, restarts: int, fate: PodOutcome) -> None:
        pod = self._alive(namespace, name, uid)
        if pod is None or _restarts(pod) != restarts or pod["metadata"].get("deletionTimestamp"):
            return
        ended = {
            "terminated": {
                "exitCode": fate.exit_code,
                "reason": "Completed" if fate.exit_code == 0 else "Error",
                "message": fate.message,
                "finishedAt": format_time(self._server.now_us()),
            }
        }
        pause_s = min(BACKOFF_S * 2**restarts, BACKOFF_S_MAX)
        message = f"back-off {pause_s:g}s restarting failed container"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        self._write_status(pod, "Running", ready=False, state=waiting, restarts=restarts + 1, last=ended)
        self._later(pause_s, lambda: self._start(namespace, name, uid, restarts=restarts + 1))

    def _finish(self, namespace: str, name: str, uid: str) -> None:
        self._ending.discard(uid)
        if self._alive(namespace, name, uid) is not None:
            self._server.answer(ApiRequest("delete", POD, namespace, name, body={"gracePeriodSeconds": 0}))

    def _write_status(
        self, pod: Object, phase: str, *, ready: bool, state: Object, restarts: int, last: Object | None = None
    ) -> None:
        metadata = pod["metadata"]
        before = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0].get("lastState", {})
        main = pod["spec"]["containers"][0]
        container = {
            "name": main["name"],
            "image": main.get("image", ""),
            "ready": ready,
            "restartCount": restarts,
            "state": state,
            "lastState": before if last is None else last,
        }
        verdict = {"type": "Ready", "status": "True" if ready else "False"}
        status = {"phase": phase, "conditions": [verdict], "containerStatuses": [container]}
        at = (metadata["namespace"], metadata["name"], "status")
        self._server.answer(ApiRequest("patch", POD, *at, query=KUBELET, body={"status": status}))


def template_hash(deployment: Object) -> str:
    """The mark of a pod template."""
    written = json.dumps(deployment["spec"]["template"], sort_keys=True).encode()
    return hashlib.sha256(written).hexdigest()[:10]


def is_ready(pod: Object) -> bool:
    """Whether a pod reports that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _state(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return dict(statuses[0].get("state", {}))


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def _surplus(pods: list[Object], wanted: int) -> list[Object]:
    """Those to be ended first: not ready, then the youngest."""
    ordered = sorted(pods, key=lambda pod: (not is_ready(pod), int(pod["metadata"]["name"].rsplit("-", 1)[1])))
    return ordered[::-1][: max(0, len(pods) - wanted)]


def _roll(deployment: Object) -> tuple[int, int]:
    """How many pods more, and how many fewer than wanted there may be during a rollout."""
    strategy = deployment["spec"]["strategy"]
    wanted = deployment["spec"]["replicas"]
    if strategy["type"] != "RollingUpdate":
        return 0, wanted
    rolling = strategy["rollingUpdate"]
    surge = _share(rolling["maxSurge"], wanted, math.ceil)
    unavailable = _share(rolling["maxUnavailable"], wanted, math.floor)
    return surge, unavailable if surge or unavailable else 1


def _share(amount: int | str, of: int, rounded: Callable[[float], int]) -> int:
    return rounded(int(amount[:-1]) * of / 100) if isinstance(amount, str) else amount
