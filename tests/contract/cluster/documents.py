"""Documents that the cases write: as small as their kinds allow, in the namespace of the case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate_operator.model.kinds import QUEUE, ObjectAddress
from tests.contract.cluster.worlds import CaseWorld

Document = dict[str, Any]


def queue(
    world: CaseWorld, name: str = "emails", /, spec: Mapping[str, Any] | None = None, **metadata: Any
) -> Document:
    """A Queue."""
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"namespace": world.namespace, "name": name, **metadata},
        "spec": dict(spec or {}),
    }


def status_of(world: CaseWorld, status: Mapping[str, Any], name: str = "emails", **metadata: Any) -> Document:
    """The document that is applied to a Queue's /status."""
    made = queue(world, name, **metadata)
    del made["spec"]
    return {**made, "status": dict(status)}


def queue_at(world: CaseWorld, name: str = "emails") -> ObjectAddress:
    """Where a Queue is."""
    return ObjectAddress(QUEUE, world.namespace, name)


def config(
    world: CaseWorld, name: str = "settings", /, data: Mapping[str, str] | None = None, **metadata: Any
) -> Document:
    """A ConfigMap: a kind that no controller minds."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": world.namespace, "name": name, **metadata},
        **({"data": dict(data)} if data is not None else {}),
    }


def deployment(world: CaseWorld, spec: Mapping[str, Any] | None = None, **container: Any) -> Document:
    """A Deployment of one container, by default with no pods."""
    labels = {"headgate.io/queue": "emails"}
    made = {"name": "worker", "image": "registry.example/worker:1", **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": world.namespace, "name": "mailer", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [made]}},
            **(spec or {}),
        },
    }


def owned_by(*owners: Mapping[str, Any], blocks: bool = True) -> list[Document]:
    """References to these objects as owners."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
