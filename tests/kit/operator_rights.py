"""The roles of the operator and what binds them, as plain documents: for a server without the chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate_operator.install.rbac import AT_HOME, CLUSTER_ROLE, EVERYWHERE, OPERATOR, ROLE, rules
from headgate_operator.model.kinds import SERVICE_ACCOUNT, ResourceKind


def cluster_role(name: str = OPERATOR) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER_ROLE.api_version,
        "kind": CLUSTER_ROLE.kind,
        "metadata": {"name": name},
        "rules": rules(EVERYWHERE),
    }


def role(namespace: str, name: str = OPERATOR) -> dict[str, Any]:
    return {
        "apiVersion": ROLE.api_version,
        "kind": ROLE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "rules": rules(AT_HOME),
    }


def bindings(namespace: str, name: str = OPERATOR) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both roles for its account in its own namespace."""
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": OPERATOR, "namespace": namespace}

    def bound(kind: str, to: ResourceKind, metadata: Mapping[str, str]) -> dict[str, Any]:
        reference = {"apiGroup": to.group, "kind": to.kind, "name": name}
        return {
            "apiVersion": to.api_version,
            "kind": kind,
            "metadata": dict(metadata),
            "roleRef": reference,
            "subjects": [subject],
        }

    return (
        bound("ClusterRoleBinding", CLUSTER_ROLE, {"name": name}),
        bound("RoleBinding", ROLE, {"name": name, "namespace": namespace}),
    )
