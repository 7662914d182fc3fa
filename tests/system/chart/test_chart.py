"""The chart, really installed by Helm on a real node: it brings its definitions, leads, passes its own test, runs
as any user, and ends so that nothing is left but what was asked to stay.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm, HelmRefused
from dev.cluster.kubectl import Kubectl, KubectlRefused, has_condition
from dev.servers.cassandra import Cassandra
from headgate.local.processes import wait_until
from headgate.process.version import read_version
from headgate_operator.cli.kubectl import Kubectl as PeoplesKubectl
from headgate_operator.cli.leader_client import LeaderClient
from headgate_operator.install.decide_crds import NAMES, VERSION, definitions
from headgate_operator.model.names import FINALIZER
from tests.system.chart.chart_release import OPERATOR, RELEASE, Release, release_of
from tests.system.operator.people import Calling

ANY_USER = 1_000_650_000
GONE_WITHIN_S = 90.0


def older(definition: Any) -> dict[str, Any]:
    """A definition as a release before had it: one field less, and a column that is called otherwise."""
    document: dict[str, Any] = deepcopy(dict(definition))
    document["metadata"]["annotations"] = {VERSION: "0.0.9"}
    version = document["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["retention"]
    rules = json.dumps(version["schema"]["openAPIV3Schema"]["properties"]["spec"].get("x-kubernetes-validations", []))
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [
        rule for rule in json.loads(rules) if "retention" not in rule["rule"]
    ]
    return document


def put_in_place(kubectl: Kubectl, definition: dict[str, Any]) -> None:
    """This and nothing else, whatever wrote it."""
    verb = "create" if kubectl.find("crd", definition["metadata"]["name"]) is None else "replace"
    kubectl.run(verb, "-f", "-", stdin=json.dumps(definition))


def crd(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return kubectl.get("crd", name)


def fields(definition: dict[str, Any]) -> set[str]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


@pytest.fixture(scope="module")
def release(
    kubernetes: KubernetesUnderTest, near_cassandra: Cassandra, headgate_image: str, helm: Helm
) -> Iterator[Release]:
    """Installed over definitions of an older release, which somebody had applied by kubectl."""
    with release_of(kubernetes, helm, headgate_image, near_cassandra.environment()) as made:
        for definition in definitions("0.0.9"):
            put_in_place(kubernetes.kubectl, older(definition))
        assert "retention" not in fields(crd(made.kubectl, NAMES[0]))
        made.install()
        yield made
        sys.stdout.write(made.logs() if made.is_installed() else "not installed")


def queue(name: str, **spec: Any) -> dict[str, Any]:
    values = {"shards": 1, "storage": {"tables": "shared"}, **spec}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": values}


def test_definitions_of_an_older_release_are_brought_to_this_one(release: Release) -> None:
    for name, wanted in zip(NAMES, definitions(read_version()), strict=True):
        live = crd(release.kubectl, name)
        assert fields(dict(wanted)) == fields(live)
        assert read_version() == live["metadata"]["annotations"][VERSION]


def test_two_processes_are_ready_and_one_leads(release: Release) -> None:
    leader = release.until_led()
    assert 2 == len([pod for pod in release.pods() if has_condition("Ready")(pod)])
    assert "ok" in release.ask(leader, "/livez")


def test_why_and_plan_are_reached_by_port_forward_and_not_at_the_pod_s_address(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Calling(release.kubectl, tmp_path)  # puts this cluster's kubectl where people have theirs
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
    pod = release.until_led()
    people = PeoplesKubectl(release.kubectl.context, release.kubectl.kubeconfig)
    leader = LeaderClient(people, release.namespace)
    why = leader.ask("/why/queue/default/none")
    assert ([], True) == (why["decisions"], why["leader"].startswith(pod))
    planned = leader.post("/plan", {**queue("planned"), "spec": {"shards": 1}})
    assert "queue default/planned" in [end["of"] for end in planned["ends"]]
    assert [True] == [end["ready"] for end in planned["ends"]], planned["ends"]
    for port in (9091, 9092):
        path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}:{port}/proxy/why/queue/default/none"
        with pytest.raises(KubectlRefused):
            release.kubectl.run("get", "--raw", path)


def test_helm_test_sends_messages_through_a_queue_and_counts_each_once(release: Release) -> None:
    report = release.test()
    assert "10 messages passed through" in report
    assert wait_until(lambda: release.kubectl.list("queues,counters") == [], timeout_s=GONE_WITHIN_S)


def test_the_operator_runs_as_any_user(release: Release) -> None:
    def as_user(user: int | None) -> None:
        change = {"spec": {"template": {"spec": {"securityContext": {"runAsUser": user}}}}}
        release.kubectl.run("patch", "deployment", OPERATOR, "-p", json.dumps(change))
        release.kubectl.run("rollout", "status", f"deployment/{OPERATOR}", "--timeout=120s", timeout_s=130)

    as_user(ANY_USER)
    leader = release.until_led()
    status = release.kubectl.exec(leader, "python3", "-c", "import os; print(os.getuid(), os.access('/', os.W_OK))")
    assert f"{ANY_USER} False" == status.strip()
    as_user(None)


def test_a_rollback_leaves_definitions_of_a_newer_release(release: Release) -> None:
    newer = deepcopy(dict(definitions("9.0.0")[0]))
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["later"] = {"type": "string", "maxLength": 9}
    release.kubectl.apply(newer)
    release.upgrade({"operator": {"logLevel": "debug"}})
    assert "later" in fields(crd(release.kubectl, NAMES[0]))
    release.rollback()
    assert "later" in fields(crd(release.kubectl, NAMES[0]))
    release.kubectl.run("annotate", "crd", NAMES[0], f"{VERSION}=0.0.9", "--overwrite")
    release.upgrade()
    assert "later" not in fields(crd(release.kubectl, NAMES[0]))


def test_an_uninstall_is_refused_while_a_resource_states_delete_and_changes_nothing(
    release: Release, k8s_namespace: Kubectl
) -> None:
    k8s_namespace.apply(queue("precious", deletionPolicy="Delete"))
    k8s_namespace.wait_for("queue", "precious", has_condition("Ready"), what="is Ready")
    with pytest.raises(HelmRefused) as refused:
        release.uninstall()
    message = str(refused.value.facts["answer"])
    assert f"queue {k8s_namespace.namespace}/precious" in message
    assert "set `deletionPolicy: Retain`" in message
    assert 2 == release.kubectl.get("deployment", OPERATOR)["spec"]["replicas"]
    k8s_namespace.delete("queue", "precious")
    release.rollback(release.revision())  # Helm takes it for half uninstalled, and would upgrade it no more
    release.upgrade()


def test_after_an_uninstall_with_retain_workers_continue_and_a_namespace_is_released(
    release: Release, kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl
) -> None:
    if not release.is_installed():
        release.install()
    consumer = {"name": "mailer", "handler": "headgate.cli.check:count", "scaling": {"min": 1, "max": 1}}
    k8s_namespace.apply(queue("emails", consumers=[consumer]), queue("held"))
    for name in ("emails", "held"):
        k8s_namespace.wait_for("queue", name, has_condition("Ready"), what="is Ready", timeout_s=90)
    change = {"metadata": {"finalizers": [FINALIZER]}}  # as one that came back with a backup
    k8s_namespace.run("patch", "queue", "held", "--type=merge", "-p", json.dumps(change))
    release.uninstall()
    assert wait_until(lambda: of_release(release) == [], timeout_s=GONE_WITHIN_S), of_release(release)
    assert None is k8s_namespace.get("queue", "held")["metadata"].get("finalizers")
    assert 1 == k8s_namespace.list("deployments")[0]["status"]["readyReplicas"]
    kubernetes.kubectl.delete("namespace", str(k8s_namespace.namespace))
    assert kubernetes.kubectl.find("namespace", str(k8s_namespace.namespace)) is None


def test_an_end_without_definitions_leaves_nothing_but_data(
    release: Release, near_cassandra: Cassandra, k8s_namespace: Kubectl
) -> None:
    if release.is_installed():
        release.uninstall()
    release.install({"crds": {"keep": False}})
    k8s_namespace.apply(queue("emails", consumers=[{"name": "mailer", "handler": "headgate.cli.check:count"}]))
    k8s_namespace.wait_for("queue", "emails", has_condition("Ready"), what="is Ready", timeout_s=90)
    before = tables(near_cassandra, release.keyspace)
    release.uninstall()
    assert [] == [name for name in NAMES if release.kubectl.find("crd", name)]
    assert wait_until(lambda: of_release(release) == [], timeout_s=GONE_WITHIN_S), of_release(release)
    assert wait_until(lambda: left_in(k8s_namespace) == [], timeout_s=GONE_WITHIN_S), left_in(k8s_namespace)
    assert before == tables(near_cassandra, release.keyspace)
    assert ["retained"] == states(near_cassandra, release.keyspace, str(k8s_namespace.namespace))


def of_release(release: Release) -> list[str]:
    """Whatever is left of it, wherever."""
    kinds = "deployments,services,secrets,serviceaccounts,roles,rolebindings,jobs,pods,leases,poddisruptionbudgets"
    local = [
        f"{each['kind']} {each['metadata']['name']}"
        for each in release.kubectl.list(kinds)
        if each["metadata"]["name"] not in ("default",) and not each["metadata"].get("deletionTimestamp")
    ]
    wide = release.kubectl.run(
        "get", "clusterroles,clusterrolebindings", "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name"
    )
    return [*local, *wide.split()]


def left_in(namespace: Kubectl) -> list[str]:
    """Whatever of ours is left in a namespace of resources."""
    kinds = "deployments,cronjobs,jobs,secrets,serviceaccounts,rolebindings,poddisruptionbudgets"
    matches = [each for each in namespace.list(kinds) if each["metadata"]["name"] != "default"]
    return [f"{each['kind']} {each['metadata']['name']}" for each in matches]


def tables(cassandra: Cassandra, keyspace: str) -> list[str]:
    result = cassandra.cql(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")  # noqa: S608
    return sorted(str(row["table_name"]) for row in result)


def states(cassandra: Cassandra, keyspace: str, namespace: str) -> list[str]:
    result = cassandra.cql(
        f"SELECT state FROM {keyspace}.catalogue_entries WHERE namespace = '{namespace}' ALLOW FILTERING"  # noqa: S608
    )
    return [str(row["state"]) for row in result]
