"""The Deployment of one consumer, and its PodDisruptionBudget, as plain documents.

A Python handler runs in the container `worker`, whose image is the consumer's (with headgate in it) or ours. An http
handler is the consumer's image, unchanged, as the sidecar `handler` (an init container that keeps running): it is up
before our worker starts, and Kubernetes ends it after our worker, so it answers until the drain is over.

On termination the preStop hook asks the worker to drain and waits for it; at the signal nothing is in flight any
more. The time for that is the pod's grace less REST_S, also where the template sets another grace.

Pure. The template wins over everything but what it could only break: the labels by which the Deployment finds its
pods, our own labels, and the account, which has no rights.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.api.resources.consumer import Consumer, PodTemplate
from headgate_operator.manifests.pod import (
    REQUESTS,
    ChildOwner,
    Part,
    build_head,
    connection_env,
    connection_mount,
    connection_volume,
    container_security,
    pod_security,
    temporary_mount,
    temporary_volume,
)
from headgate_operator.manifests.strategic_merge import PatchInvalid, merge
from headgate_operator.model.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET
from headgate_operator.model.names import CONNECTION_DIGEST, GROUP, WORKER_ACCOUNT, consumer_name, labels_of
from headgate_operator.model.world import OperatorSettings, StoreConnection

WORKER: Final = "worker"
HANDLER: Final = "handler"
HEALTH_PORT: Final = 9090
REST_S: Final = 10
"""Of the grace, what is left for ending after the drain."""
START_WITHIN_S: Final = 60


def build_deployment(
    owner: ChildOwner,
    settings: OperatorSettings,
    connection: StoreConnection,
    consumer: Consumer,
    replicas: int | None,
) -> Part:
    """The whole document; `replicas` None leaves them to somebody else. PatchInvalid where the template is wrong."""
    labels = labels_of(owner.key, consumer=consumer.name)
    replicas_field = {} if replicas is None else {"replicas": replicas}
    return {
        **build_head(DEPLOYMENT, consumer_name(owner.key.name, consumer.name), owner.key.namespace, labels, owner),
        "spec": {
            **replicas_field,
            "paused": False,
            "minReadySeconds": 0,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 120,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "selector": {"matchLabels": selector_of(owner, consumer.name)},
            "template": _template(owner, settings, connection, consumer),
        },
    }


def selector_of(owner: ChildOwner, consumer: str) -> dict[str, str]:
    return {f"{GROUP}/queue": owner.key.name, f"{GROUP}/consumer": consumer}


def _template(owner: ChildOwner, settings: OperatorSettings, connection: StoreConnection, consumer: Consumer) -> Part:
    grace_s = _grace_s(settings, consumer)
    labels = labels_of(owner.key, consumer=consumer.name)
    selector = {"matchLabels": selector_of(owner, consumer.name)}
    spec: Part = {
        "terminationGracePeriodSeconds": grace_s,
        "serviceAccountName": WORKER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "topologySpreadConstraints": [
            {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "containers": [_worker(owner, settings, connection, consumer, max(grace_s - REST_S, 1))],
        "volumes": [connection_volume(connection.secret), temporary_volume()],
    }
    if consumer.http is not None:
        spec["initContainers"] = [_handler(consumer)]
    pod: Part = {
        "metadata": {
            "labels": labels,
            "annotations": {CONNECTION_DIGEST: connection.pods_digest or connection.digest},
        },
        "spec": spec,
    }
    if consumer.template is None:
        return pod
    patched = merge(pod, _patch_of(consumer.template, with_handler=consumer.http is not None))
    _keep(patched, labels)
    return patched


def _worker(
    owner: ChildOwner, settings: OperatorSettings, connection: StoreConnection, consumer: Consumer, drain_s: int
) -> Part:
    port = health_port(consumer)
    alive = {"httpGet": {"path": "/livez", "port": port}}
    return {
        "name": WORKER,
        "image": settings.image if consumer.http is not None else consumer.image or settings.image,
        "command": command(owner, consumer, drain_s),
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HEADGATE_OPERATOR_VERSION", "value": minor_of(settings.version)},
            {"name": "HEADGATE_HEALTH", "value": f"0.0.0.0:{port}"},
            *connection_env(connection.secret),
        ],
        "ports": [{"name": "health", "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": container_security(),
        "startupProbe": {**alive, "periodSeconds": 1, "failureThreshold": START_WITHIN_S, "timeoutSeconds": 1},
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 2, "timeoutSeconds": 2,
        },
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 3, "timeoutSeconds": 5},
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-m", "headgate.runtime.drain"]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [connection_mount(), temporary_mount()],
    }  # fmt: skip


def command(owner: ChildOwner, consumer: Consumer, drain_s: int) -> list[str]:
    """How the worker is started, word by word: no shell stands between it and its signals."""
    words = ["headgate", "worker", f"{owner.key.namespace}/{owner.key.name}"]
    if consumer.http is not None:
        words += ["--http", f"http://127.0.0.1:{consumer.http.port}{consumer.http.path}"]
    else:
        words += ["--handler", str(consumer.handler)]
    words += ["--concurrency", str(consumer.concurrency), "--grace", f"{drain_s}s"]
    if consumer.rate is not None:
        words += ["--rate", consumer.rate]
    if consumer.visibility_timeout is not None:
        words += ["--visibility", str(consumer.visibility_timeout)]
    return words


def minor_of(version: str) -> str:
    """Major and minor, by which a worker fits an operator: a patch release of the operator restarts no worker."""
    return ".".join(version.split(".")[:2])


def health_port(consumer: Consumer) -> int:
    """The worker's health port: all containers of a pod share their ports."""
    return HEALTH_PORT + 1 if consumer.http is not None and consumer.http.port == HEALTH_PORT else HEALTH_PORT


def _handler(consumer: Consumer) -> Part:
    port = consumer.http.port if consumer.http is not None else 0
    return {
        "name": HANDLER,
        "image": consumer.image,
        "restartPolicy": "Always",
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "startupProbe": {
            "tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": START_WITHIN_S, "timeoutSeconds": 1,
        },
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": container_security(read_only=False),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }  # fmt: skip


def _grace_s(settings: OperatorSettings, consumer: Consumer) -> int:
    """Of the whole pod; the template may set it, and the drain follows."""
    spec = (consumer.template.spec if consumer.template else None) or {}
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds if isinstance(seconds, int) and not isinstance(seconds, bool) else settings.drain_grace_s + REST_S


def _patch_of(template: PodTemplate, *, with_handler: bool) -> Part:
    """The template as a patch: its container `handler` is a patch of the sidecar."""
    spec = dict(template.spec or {})
    containers = spec.get("containers")
    if with_handler and isinstance(containers, list):
        meant = [item for item in containers if _is_handler(item)]
        inits = spec.get("initContainers", [])
        if not isinstance(inits, list):
            raise PatchInvalid("`spec.initContainers` is not a list")
        spec["initContainers"] = [*meant, *inits]
        spec["containers"] = [item for item in containers if not _is_handler(item)]
    return {"metadata": template.metadata or {}, "spec": spec}


def _is_handler(container: object) -> bool:
    return isinstance(container, dict) and container.get("name") == HANDLER


def _keep(pod: dict[str, Any], labels: dict[str, str]) -> None:
    """Fields that no template changes."""
    metadata, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec["serviceAccountName"] = WORKER_ACCOUNT
    spec["automountServiceAccountToken"] = False
    spec.pop("serviceAccount", None)


def build_disruption_budget(owner: ChildOwner, consumer: Consumer) -> Part:
    """A drain of nodes takes one worker at a time. A pod that is not ready protects nothing: it may be evicted."""
    name, labels = consumer_name(owner.key.name, consumer.name), labels_of(owner.key, consumer=consumer.name)
    return {
        **build_head(POD_DISRUPTION_BUDGET, name, owner.key.namespace, labels, owner),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector_of(owner, consumer.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
