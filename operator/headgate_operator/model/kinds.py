"""The kinds of objects that the operator uses, and addresses of objects: values and look-ups.

Pure. A kind that is not in KINDS cannot be used: the operator's rights are built from the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import Bug

Document = Mapping[str, Any]
"""An object as the API server writes it."""


@dataclass(frozen=True, order=True)
class ResourceKind:
    """A kind of objects: what a document calls it, and what a path calls it."""

    group: str
    """Empty: the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As in messages and metrics: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


QUEUE: Final = ResourceKind("headgate.io", "v1beta1", "queues", "Queue")
COUNTER: Final = ResourceKind("headgate.io", "v1beta1", "counters", "Counter")
DEPLOYMENT: Final = ResourceKind("apps", "v1", "deployments", "Deployment")
CRON_JOB: Final = ResourceKind("batch", "v1", "cronjobs", "CronJob")
JOB: Final = ResourceKind("batch", "v1", "jobs", "Job")
POD: Final = ResourceKind("", "v1", "pods", "Pod")
POD_DISRUPTION_BUDGET: Final = ResourceKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SERVICE_ACCOUNT: Final = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount")
ROLE_BINDING: Final = ResourceKind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
SECRET: Final = ResourceKind("", "v1", "secrets", "Secret")
CONFIG_MAP: Final = ResourceKind("", "v1", "configmaps", "ConfigMap")
NAMESPACE: Final = ResourceKind("", "v1", "namespaces", "Namespace", namespaced=False)
CRD: Final = ResourceKind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
EVENT: Final = ResourceKind("events.k8s.io", "v1", "events", "Event")
LEASE: Final = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
SPARK_APPLICATION: Final = ResourceKind("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication")
REPLICA_SET: Final = ResourceKind("apps", "v1", "replicasets", "ReplicaSet")

TOKEN_REVIEW: Final = ResourceKind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEW: Final = ResourceKind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
"""Questions to the API server, which keeps no objects of them."""

KINDS: Final[Mapping[str, ResourceKind]] = {
    kind.kind: kind
    for kind in (
        QUEUE, COUNTER, DEPLOYMENT, CRON_JOB, JOB, POD, POD_DISRUPTION_BUDGET, SERVICE_ACCOUNT, ROLE_BINDING, SECRET,
        CONFIG_MAP, NAMESPACE, CRD, EVENT, LEASE, SPARK_APPLICATION, REPLICA_SET,
    )
}  # fmt: skip
"""By Kubernetes' word for it."""


@dataclass(frozen=True, order=True)
class ObjectAddress:
    """The place of an object; its namespace is None for a cluster-wide one."""

    kind: ResourceKind
    namespace: str | None
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.kind.lower()} {place}{self.name}"


def kind_of(document: Mapping[str, Any]) -> ResourceKind:
    kind = KINDS.get(str(document.get("kind")))
    if kind is None or kind.api_version != document.get("apiVersion"):
        raise Bug("The operator does not know the kind of this document", kind=document.get("kind"))
    return kind


def address_of(document: Mapping[str, Any]) -> ObjectAddress:
    """Where a document's object is, or will be."""
    kind = kind_of(document)
    metadata = document["metadata"]
    return ObjectAddress(kind, metadata.get("namespace") if kind.namespaced else None, metadata["name"])


def is_at_rest(deployment: Document) -> bool:
    """No pod of a Deployment is wanted and none exists: its controller has nothing to do, so nobody waits for it."""
    wanted, there = (deployment.get("spec") or {}).get("replicas"), (deployment.get("status") or {}).get("replicas")
    return bool(wanted == 0 and not there)
