"""Whose it is, on the real API server and Cassandra: names that are taken, what was retained and is adopted, the
connection's copies, and what is paused.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import headgate
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from headgate_operator.model.names import consumer_name
from tests.system.operator.operator_process import WITHIN_S, Home, home, leading
from tests.system.operator.operator_states import OURS
from tests.system.operator.test_operator import becomes, queue, reason, state_of

FIXED_S = 30.0
MAILER = consumer_name("emails", "mailer")


@pytest.fixture(scope="module")
def its_home(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    """Of one operator that leads."""
    with (
        home(kubernetes, cassandra.environment(), tmp_path_factory.mktemp("ownership")) as result,
        leading(result),
    ):
        yield result
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {result.keyspace}")


@pytest.fixture
def environment(its_home: Home, cassandra: Serving) -> dict[str, str]:
    """Of a program beside it."""
    return {**cassandra.environment(), "KEYSPACE": its_home.keyspace}


def message_of(document: Mapping[str, Any], type_: str = "Ready") -> str:
    return next(str(each["message"]) for each in document["status"]["conditions"] if each["type"] == type_)


def decoded(secret: Mapping[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


def test_what_was_retained_states_name_taken_until_it_is_adopted_and_then_has_its_messages(
    its_home: Home, k8s_namespace: Kubectl, cassandra: Serving, environment: dict[str, str]
) -> None:
    client, path = k8s_namespace, f"{k8s_namespace.namespace}/emails"
    client.apply(queue())
    becomes(client, "emails", "Reconciled")
    with headgate.connect_sync(environment) as connection:
        connection.queue(path).put("of before")
    client.delete("queue", "emails")
    assert wait_until(
        lambda: state_of(cassandra, its_home.keyspace, str(client.namespace), "emails") == "retained", timeout_s=30
    )
    client.apply(queue())
    taken = becomes(client, "emails", "NameTaken", "Stalled")
    assert "headgate.io/adopt" in message_of(taken)
    assert [] == client.list("deployment")
    client.run("annotate", "queue", "emails", "headgate.io/adopt=by-name")
    becomes(client, "emails", "Reconciled")
    with headgate.connect_sync(environment) as connection:
        [message] = connection.queue(path).receive(1, wait=20)
        assert "of before" == message.text()


def test_what_the_command_line_made_is_taken_until_it_is_adopted(
    its_home: Home, k8s_namespace: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    client, file = k8s_namespace, tmp_path / "emails.yaml"
    document = queue()
    document["metadata"]["namespace"] = client.namespace
    file.write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    client.apply(document)
    becomes(client, "emails", "NameTaken", "Stalled")
    client.run("annotate", "queue", "emails", "headgate.io/adopt=by-name")
    becomes(client, "emails", "Reconciled")


def test_somebody_elses_deployment_in_a_workers_place_is_reported_and_left_alone(
    its_home: Home, k8s_namespace: Kubectl
) -> None:
    client, labels = k8s_namespace, {"app": "theirs"}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": MAILER},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "theirs", "image": "theirs:1"}]},
            },
        },
    }
    client.apply(theirs)
    client.apply(queue())
    report = becomes(client, "emails", "NameTaken", "ConsumersReady")
    assert MAILER in message_of(report, "ConsumersReady")
    left = client.get("deployment", MAILER)
    assert ("theirs:1", None) == (
        left["spec"]["template"]["spec"]["containers"][0]["image"],
        left["metadata"].get("ownerReferences"),
    )
    client.delete("deployment", MAILER)
    becomes(client, "emails", "Reconciled")


def test_copies_of_the_connection_follow_it_are_fixed_and_go_with_the_last_resource(
    its_home: Home, k8s_namespace: Kubectl
) -> None:
    client, home_of_it = k8s_namespace, its_home.kubectl.in_namespace(its_home.namespace)
    client.apply(queue())
    becomes(client, "emails", "Reconciled")
    before = client.get("deployment", MAILER)["spec"]["template"]["metadata"]["annotations"]
    change = {"stringData": {"GRAPHITE_PREFIX": "rotated"}}
    home_of_it.run("patch", "secret", "headgate-connection", "-p", json.dumps(change))

    def is_rotated() -> bool:
        copy = decoded(client.get("secret", "headgate-connection"))
        template = client.get("deployment", MAILER)["spec"]["template"]
        return copy.get("GRAPHITE_PREFIX") == "rotated" and template["metadata"]["annotations"] != before

    assert wait_until(is_rotated, timeout_s=WITHIN_S)
    client.run("patch", "secret", "headgate-connection", "-p", json.dumps({"stringData": {"DATA_CENTER": "nowhere"}}))
    source = decoded(home_of_it.get("secret", "headgate-connection"))
    assert wait_until(lambda: decoded(client.get("secret", "headgate-connection")) == source, timeout_s=FIXED_S)
    client.delete("queue", "emails")
    assert wait_until(lambda: client.list("secrets,serviceaccounts,cronjobs", OURS) == [], timeout_s=WITHIN_S)


def test_a_process_that_names_a_secret_of_its_own_gets_no_copy(
    its_home: Home, k8s_namespace: Kubectl, environment: dict[str, str]
) -> None:
    client = k8s_namespace
    client.apply(queue(storage={"connectionSecret": "mine"}))
    becomes(client, "emails", "ConnectionMissing", "TablesReady")
    source = its_home.kubectl.in_namespace(its_home.namespace).get("secret", "headgate-connection")
    metadata = {"name": "mine", "namespace": client.namespace}
    client.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": source["data"]})
    becomes(client, "emails", "Reconciled")
    container = client.get("deployment", MAILER)["spec"]["template"]["spec"]["containers"][0]
    named = {each["valueFrom"]["secretKeyRef"]["name"] for each in container["env"] if "secretKeyRef" in str(each)}
    assert ({"mine"}, []) == (named, client.list("secrets", OURS))


def test_a_paused_queue_is_left_alone_and_fixed_once_it_continues(its_home: Home, k8s_namespace: Kubectl) -> None:
    client = k8s_namespace
    client.apply(queue())
    becomes(client, "emails", "Reconciled")
    client.run("patch", "queue", "emails", "--type=merge", "-p", '{"spec": {"paused": true}}')
    becomes(client, "emails", "Paused")
    client.delete("deployment", MAILER)
    assert not wait_until(lambda: client.find("deployment", MAILER) is not None, timeout_s=8)
    client.run("patch", "queue", "emails", "--type=merge", "-p", '{"spec": {"paused": false}}')
    assert wait_until(lambda: client.find("deployment", MAILER) is not None, timeout_s=FIXED_S)


def test_a_dead_letter_queue_that_comes_later_is_found(its_home: Home, k8s_namespace: Kubectl) -> None:
    client = k8s_namespace
    client.apply(queue(deadLetter="emails-dead"))
    becomes(client, "emails", "DeadLetterMissing", "DeadLetterResolved")
    client.apply(queue("emails-dead", consumers=[]))
    assert "DeadLetterFound" == reason(becomes(client, "emails", "Reconciled"), "DeadLetterResolved")
