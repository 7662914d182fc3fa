"""The operator's rights: its ClusterRole, and the Role in its own namespace, as plain documents.

They are built from the kinds that it uses, so that there is one list. Pure: the chart renders it, and tests grant
exactly this. Objects with a fixed name are created, changed and deleted by that name alone: an attacker in the
operator can write no other Secret and no other account. Server-side apply that creates an object needs `patch` and
`create`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headgate_operator.informers.watched_kinds import SPARK_CRD
from headgate_operator.install.decide_crds import NAMES as CRD_NAMES
from headgate_operator.model.kinds import (
    ACCESS_REVIEW,
    COUNTER,
    CRD,
    CRON_JOB,
    DEPLOYMENT,
    EVENT,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    SPARK_APPLICATION,
    TOKEN_REVIEW,
    ResourceKind,
)
from headgate_operator.model.names import CONNECTION_COPY, LEASE_NAME, SPARK_ACCOUNT, WORKER_ACCOUNT

OPERATOR: Final = "headgate-operator"
"""The name of its account, of its roles and of what binds them."""

TEST_POD: Final = "headgate-test"
"""In which `helm test` ran."""

_READ: Final = ("get", "list", "watch")
_MAKE: Final = ("create", "patch", "delete")


@dataclass(frozen=True)
class Right:
    kind: ResourceKind
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()
    """Those alone; none: all."""

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


CLUSTER_ROLE: Final = ResourceKind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLE: Final = ResourceKind("rbac.authorization.k8s.io", "v1", "roles", "Role")

EVERYWHERE: Final = (
    Right(QUEUE, (*_READ, "patch")),
    Right(QUEUE, ("patch",), "status"),
    Right(COUNTER, (*_READ, "patch")),
    Right(COUNTER, ("patch",), "status"),
    Right(DEPLOYMENT, (*_READ, *_MAKE)),
    Right(CRON_JOB, (*_READ, *_MAKE)),
    Right(POD_DISRUPTION_BUDGET, (*_READ, *_MAKE)),
    Right(SPARK_APPLICATION, (*_READ, *_MAKE)),
    Right(SERVICE_ACCOUNT, _READ),
    Right(SERVICE_ACCOUNT, _MAKE, names=(SPARK_ACCOUNT, WORKER_ACCOUNT)),
    Right(ROLE_BINDING, _READ),
    Right(ROLE_BINDING, _MAKE, names=(SPARK_ACCOUNT,)),
    Right(CLUSTER_ROLE, ("bind",), names=(SPARK_ACCOUNT,)),
    Right(SECRET, ("get",)),
    Right(SECRET, _MAKE, names=(CONNECTION_COPY,)),
    Right(JOB, ("list", "watch")),
    Right(POD, ("list",)),
    Right(NAMESPACE, _READ),
    Right(CRD, ("get",), names=(f"{QUEUE.plural}.{QUEUE.group}",)),
    Right(CRD, ("list", "watch"), names=(SPARK_CRD,)),
    Right(EVENT, ("create",)),
)
REVIEWING: Final = (Right(TOKEN_REVIEW, ("create",)), Right(ACCESS_REVIEW, ("create",)))
"""Of the port of /why and /plan with a login (`process/inspection_login.py`)."""
AT_HOME: Final = (
    Right(LEASE, ("create",)),
    Right(LEASE, ("get", "update"), names=(LEASE_NAME,)),
)
"""In its own namespace. A right to create by POST cannot be restricted by name."""
BRINGING: Final = (Right(CRD, ("get", "create", "patch", "update"), names=CRD_NAMES),)
"""Of the Job that brings the CRDs to the chart's version (`install/crds.py`): these and no others."""
LEAVING: Final = (
    Right(QUEUE, ("list", "patch", "delete")),
    Right(COUNTER, ("list", "patch", "delete")),
    Right(DEPLOYMENT, ("list",)),
    Right(CRON_JOB, ("list", "delete")),
    Right(SERVICE_ACCOUNT, ("list",)),
    Right(SERVICE_ACCOUNT, ("delete",), names=(SPARK_ACCOUNT, WORKER_ACCOUNT)),
    Right(ROLE_BINDING, ("list",)),
    Right(ROLE_BINDING, ("delete",), names=(SPARK_ACCOUNT,)),
    Right(SECRET, ("get", "delete"), names=(CONNECTION_COPY,)),
    Right(CRD, ("delete",), names=CRD_NAMES),
)
"""Of the Job that makes an end before the chart is uninstalled (`install/uninstall.py`)."""
LEAVING_HOME: Final = (
    Right(DEPLOYMENT, ("patch",), names=(OPERATOR,)),
    Right(POD, ("list",)),
    Right(POD, ("delete",), names=(TEST_POD,)),
    Right(LEASE, ("delete",), names=(LEASE_NAME,)),
)
"""The same, in the operator's namespace. Deployment and pod have other names if the chart has a name override."""
DRIVING: Final = (
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"],
    },
)
"""Of a Spark driver in its namespace, as Spark's own documentation asks for: it makes its executors and what those
need."""


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """The rules of a role: one for all resources of a group with the same verbs and names."""
    grouped: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for right in rights:
        grouped.setdefault((right.kind.group, right.verbs, right.names), []).append(right.resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(verbs),
        }
        for (group, verbs, names), resources in grouped.items()
    ]
