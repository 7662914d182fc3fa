"""The operator as a process out of the cluster, against a real API server and a real Cassandra.

It is one process for all of these tests; each has a namespace and a keyspace of its own.
"""

# ruff: noqa: S608 - names are made here
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl, names_of
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from headgate_operator.model.names import consumer_name
from tests.system.operator.operator_process import WITHIN_S, OperatorProcess, home, leading

CONSUMERS = [{"name": "mailer", "image": "mailer:1", "handler": "mailer:send", "scaling": {"min": 0}}]


@pytest.fixture(scope="module")
def operator(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that leads."""
    with (
        home(kubernetes, cassandra.environment(), tmp_path_factory.mktemp("operator")) as its_home,
        leading(its_home) as running,
    ):
        yield running
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


def queue(name: str = "emails", **spec: Any) -> dict[str, Any]:
    """A Queue with one consumer that sleeps."""
    values = {"shards": 2, "consumers": CONSUMERS, **spec}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": values}


def reason(document: Any, type_: str = "Ready") -> str:
    """The reason of a condition."""
    conditions = (document or {}).get("status", {}).get("conditions") or ()
    return next((str(each["reason"]) for each in conditions if each["type"] == type_), "")


def becomes(namespaced: Kubectl, name: str, wanted: str, type_: str = "Ready") -> dict[str, Any]:
    """The Queue, once a condition has this reason."""
    return namespaced.wait_for(
        "queue",
        name,
        lambda observation: reason(observation, type_) == wanted,
        what=f"is {wanted}",
        timeout_s=WITHIN_S,
    )


def tables_of(cassandra: Serving, keyspace: str) -> set[str]:
    """All tables of dedicated queues there."""
    rows = cassandra.cql(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")
    return {str(row["table_name"]) for row in rows if str(row["table_name"]).startswith("q_")}


def state_of(cassandra: Serving, keyspace: str, namespace: str, name: str) -> str:
    """Of the entry in the catalogue."""
    key = f"namespace = '{namespace}' AND kind = 'Queue' AND name = '{name}'"
    rows = cassandra.cql(f"SELECT state FROM {keyspace}.catalogue_entries WHERE {key} ALLOW FILTERING")
    return str(rows[0]["state"]) if rows else ""


def test_a_queue_that_is_applied_becomes_ready_with_its_children(
    operator: OperatorProcess, k8s_namespace: Kubectl, cassandra: Serving
) -> None:
    client = k8s_namespace
    client.apply(queue())
    made = becomes(client, "emails", "Reconciled")
    assert 2 == made["status"]["replicas"]
    assert [consumer_name("emails", "mailer")] == names_of(client.list("deployment"))
    assert {"headgate-worker"} <= set(names_of(client.list("serviceaccount")))
    assert {"headgate-connection"} <= set(names_of(client.list("secret")))
    assert wait_until(lambda: len(client.list("cronjob")) == 1, timeout_s=WITHIN_S)
    assert "active" == state_of(cassandra, operator.keyspace, client.namespace or "", "emails")


def test_children_that_are_edited_or_deleted_are_fixed(operator: OperatorProcess, k8s_namespace: Kubectl) -> None:
    client, name = k8s_namespace, consumer_name("emails", "mailer")
    client.apply(queue())
    becomes(client, "emails", "Reconciled")
    first = client.get("deployment", name)
    change = {"spec": {"template": {"spec": {"containers": [{"name": "worker", "image": "stranger:9"}]}}}}
    client.run("patch", "deployment", name, "--type=strategic", "-p", json.dumps(change))
    client.wait_for(
        "deployment",
        name,
        lambda observation: observation["spec"]["template"]["spec"]["containers"][0]["image"] == "mailer:1",
        what="has its image again",
        timeout_s=30,
    )
    client.delete("deployment", name)
    again = client.wait_for("deployment", name, lambda _: True, what="is there again", timeout_s=30)
    assert first["metadata"]["uid"] != again["metadata"]["uid"]


def test_nothing_is_written_once_all_is_as_it_should_be(operator: OperatorProcess, k8s_namespace: Kubectl) -> None:
    client = k8s_namespace
    client.apply(queue())
    ready = becomes(client, "emails", "Reconciled")
    # a first check of the figures and of passes may change a message once
    assert wait_until(lambda: writes(operator) == writes(operator, after_s=8), timeout_s=WITHIN_S)
    later = client.get("queue", "emails")
    assert "True" == next(each["status"] for each in later["status"]["conditions"] if each["type"] == "Ready")
    assert ready["metadata"]["uid"] == later["metadata"]["uid"]


def writes(operator: OperatorProcess, *, after_s: float = 0) -> float:
    """How many changes it has asked for."""
    if after_s:
        wait_until(lambda: False, timeout_s=after_s)
    _, text = operator.ask("/metrics")
    name = "headgate_operator_api_writes_total"
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def test_deleted_under_retain_it_goes_at_once_and_its_data_stay(
    operator: OperatorProcess, k8s_namespace: Kubectl, cassandra: Serving
) -> None:
    client = k8s_namespace
    client.apply(queue(deletionPolicy="Retain"))
    becomes(client, "emails", "Reconciled")
    there = tables_of(cassandra, operator.keyspace)
    client.delete("queue", "emails")
    assert wait_until(
        lambda: state_of(cassandra, operator.keyspace, client.namespace or "", "emails") == "retained", timeout_s=30
    )
    assert there == tables_of(cassandra, operator.keyspace)
    assert wait_until(lambda: not client.list("deployment", "app.kubernetes.io/managed-by=headgate"), timeout_s=30)


def test_deleted_under_delete_it_goes_with_its_tables(
    operator: OperatorProcess, k8s_namespace: Kubectl, cassandra: Serving
) -> None:
    client = k8s_namespace
    before = tables_of(cassandra, operator.keyspace)
    client.apply(queue(deletionPolicy="Delete"))
    made = becomes(client, "emails", "Reconciled")
    assert ["headgate.io/store"] == made["metadata"]["finalizers"]
    assert before < tables_of(cassandra, operator.keyspace)
    client.delete("queue", "emails", wait=False)
    assert wait_until(lambda: client.find("queue", "emails") is None, timeout_s=180)
    assert before == tables_of(cassandra, operator.keyspace)
    assert "gone" == state_of(cassandra, operator.keyspace, client.namespace or "", "emails")


def test_why_reports_what_was_decided_and_plan_what_would_be(
    operator: OperatorProcess, k8s_namespace: Kubectl
) -> None:
    client = k8s_namespace
    client.apply(queue())
    becomes(client, "emails", "Reconciled")
    status, text = operator.ask(f"/why/queue/{client.namespace}/emails")
    assert 200 == status
    assert "DeclareEntry Queue emails" in text or "DeclareEntry" in text
    other = queue("letters")
    other["metadata"]["namespace"] = client.namespace
    status, text = operator.ask("/plan", other)
    assert 200 == status
    assert "2 shards, tables of its own" in json.loads(text)["effects"][0]["message"]
    assert client.find("queue", "letters") is None


def test_an_engine_that_is_not_supported_gets_nothing(operator: OperatorProcess, k8s_namespace: Kubectl) -> None:
    client = k8s_namespace
    client.apply(queue(engine="bucket"))
    becomes(client, "emails", "EngineUnavailable", "Stalled")
    assert [] == client.list("deployment")


def test_without_a_cluster_it_reports_it_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headgate_operator.process.main",
            "--kubeconfig",
            str(tmp_path / "none"),
            "--health",
            "off",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 1 == done.returncode
    assert 1 == len(done.stderr.strip().splitlines())
    assert "kubeconfig" in done.stderr
