"""The results of an operator's work, so that two runs can be compared: children, entries, statuses."""

# ruff: noqa: S608 - names are made here
from __future__ import annotations

import json
from typing import Any

from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from tests.system.operator.test_operator import reason

CHILDREN = "deployments,poddisruptionbudgets,cronjobs,serviceaccounts,rolebindings,secrets"
OURS = "app.kubernetes.io/managed-by=headgate"


def is_reported(one: dict[str, Any]) -> bool:
    """Whether the status is of the spec that stands, with its tables made and its shards in force."""
    status = one.get("status", {})
    return bool(
        status.get("observedGeneration") == one["metadata"]["generation"]
        and reason(one, "TablesReady") == "TablesPresent"
        and status.get("replicas") == one["spec"]["shards"]
    )


def state(namespaced: Kubectl, cassandra: Serving, keyspace: str) -> dict[str, Any]:
    """Children, entries and statuses, without what no two runs have in common."""
    children = {
        f"{one['kind']} {one['metadata']['name']}": child_spec(one) for one in namespaced.list(CHILDREN, OURS)
    }
    rows = cassandra.cql(
        f"SELECT name, state FROM {keyspace}.catalogue_entries WHERE namespace = '{namespaced.namespace}'"
        " AND kind = 'Queue' ALLOW FILTERING"
    )
    statuses = {one["metadata"]["name"]: _status(one) for one in namespaced.list("queues")}
    values = {"children": children, "entries": {row["name"]: row["state"] for row in rows}, "statuses": statuses}
    plain: dict[str, Any] = json.loads(json.dumps(values).replace(str(namespaced.namespace), "NAMESPACE"))
    return plain


def child_spec(child: dict[str, Any]) -> dict[str, Any]:
    """The operator's report of it."""
    owners = [{"kind": one["kind"], "name": one["name"]} for one in child["metadata"].get("ownerReferences", ())]
    values = {name: value for name, value in child.items() if name not in ("metadata", "status")}
    return {**values, "labels": child["metadata"]["labels"], "owners": owners}


def _status(one: dict[str, Any]) -> dict[str, Any]:
    """Without times, and without how far pods of an image that is nowhere have come."""
    conditions = one["status"]["conditions"]
    values = {each["type"]: (each["status"], each["reason"]) for each in conditions}
    for passing in ("Ready", "Reconciling", "ConsumersReady", "RepairHealthy", "CollectionHealthy"):
        values.pop(passing, None)
    return {
        "conditions": values,
        "shards": one["status"]["replicas"],
        "generation": one["status"]["observedGeneration"],
    }
