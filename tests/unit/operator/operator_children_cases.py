"""Resources with consumers of every sort, and the worlds around them, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from headgate.api.read.parse import parse_resource
from headgate.api.resources.consumer import Consumer
from headgate.api.resources.queues import QueueResource
from headgate_operator.manifests.deployment import build_deployment, build_disruption_budget
from headgate_operator.manifests.namespace_objects import build_cronjob
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.model.names import Key
from headgate_operator.model.world import (
    ChildName,
    Document,
    JobGroup,
    Meta,
    OperatorSettings,
    PresentResource,
    ResourceWorld,
    StoreConnection,
)

UID = "0b7e5e4c-1f2d-4c55-9b5e-3f1f6f2f7a11"
KEY = Key("Queue", "shop", "emails")
OWNER = ChildOwner(KEY, UID)
SETTINGS = OperatorSettings(cluster="c", version="0.1.0", image="headgate.local/headgate:dev", spark_image="spark:4")
CONNECTION = StoreConnection("headgate-connection", "d1", "headgate", "dc1", 3, is_copy=True)
PYTHON: dict[str, Any] = {"name": "mailer", "image": "registry.example/mailer:1.4", "handler": "mailer.tasks:send"}
HTTP: dict[str, Any] = {"name": "web", "image": "registry.example/web:2", "http": {"port": 8080, "path": "/work"}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "post", "headgate.io/queue": "other"}, "annotations": {"example.org/a": "b"}},
    "spec": {
        "serviceAccountName": "mighty",
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 300,
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "containers": [
            {
                "name": "worker",
                "resources": {"requests": {"cpu": "0.5"}, "limits": {"memory": "1Gi"}},
                "env": [{"name": "MODE", "value": "fast"}, {"name": "KEYSPACE", "value": "mine"}],
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                "livenessProbe": {"$patch": "delete"},
            },
            {
                "name": "proxy",
                "image": "envoy:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            },
        ],
        "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}],
    },
}
CONSUMERS: dict[str, dict[str, Any]] = {
    "python": PYTHON,
    "ours": {"name": "mailer", "handler": "mailer.tasks:send"},
    "all": {
        **PYTHON,
        "concurrency": 4,
        "rate": "50/s",
        "visibilityTimeout": "1m",
        "scaling": {"min": 0, "max": 12},
    },
    "http": HTTP,
    "http-on-our-port": {**HTTP, "http": {"port": 9090}},
    "template": {**PYTHON, "template": TEMPLATE},
    "http-template": {
        **HTTP,
        "template": {
            "spec": {
                "containers": [{"name": "handler", "env": [{"name": "A", "value": "1"}]}],
                "initContainers": [
                    {
                        "name": "migrate",
                        "image": "registry.example/web:2",
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            }
        },
    },
    "external": {**PYTHON, "scaling": {"mode": "external"}},
}
GROUPS = {
    "repair": JobGroup("repair", "*/5 * * * *", "headgate-connection", SETTINGS.image),
    "gc": JobGroup("gc", "@daily", "mine", "registry.example/types:3"),
}


def queue(*consumers: dict[str, Any], namespace: str = "shop", **spec: Any) -> QueueResource:
    """A queue with these consumers; several need engine extent."""
    engine = {"engine": "extent"} if len(consumers) > 1 else {}
    document = {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "emails", "namespace": namespace},
        "spec": {**engine, "consumers": list(consumers), **spec},
    }
    parsed = parse_resource(document)
    assert isinstance(parsed, QueueResource)
    return parsed


def consumer(report: dict[str, Any]) -> Consumer:
    """One consumer, checked as the API server checks it."""
    consumers = queue(report).spec.consumers
    assert consumers is not None
    return consumers[0]


def made(case: str, *, replicas: int | None = 2, owner: ChildOwner = OWNER) -> dict[str, Any]:
    """The Deployment of one of CONSUMERS."""
    return build_deployment(owner, SETTINGS, CONNECTION, consumer(CONSUMERS[case]), replicas)


def every_child(owner: ChildOwner) -> dict[str, dict[str, Any]]:
    """Every sort of Deployment, budget and CronJob, by the field that distinguishes it from the others."""
    namespace = owner.key.namespace
    return {
        **{f"deployment {case}": made(case, owner=owner) for case in CONSUMERS},
        "deployment without replicas": made("external", replicas=None, owner=owner),
        "budget": build_disruption_budget(owner, consumer(PYTHON)),
        **{f"cronjob {task}": build_cronjob(namespace, SETTINGS, group) for task, group in GROUPS.items()},
    }


def world(resource: QueueResource, *, owner: ChildOwner = OWNER, **parts: Any) -> ResourceWorld:
    """A world around the resource, in which nothing exists yet, except the given parts."""
    present = PresentResource({}, Meta(owner.uid, 1, 0), resource)
    return ResourceWorld(key=owner.key, settings=SETTINGS, resource=present, **{"connection": CONNECTION, **parts})


def live(document: Document, **status: Any) -> dict[str, Any]:
    """An applied document as an object that is there."""
    metadata = {"uid": f"uid-{document['kind']}", "resourceVersion": "7", "generation": 1, **document["metadata"]}
    return {**document, "metadata": metadata, "status": status}


def name_of(document: Document) -> ChildName:
    return ChildName(document["kind"], document["metadata"]["name"])
