"""The operator's children on a real API server. The server accepts every child, warns of nothing under the restricted
Pod Security Standard, and stores each child exactly as it was applied.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.golang import sources
from dev.cluster.kubectl import Kubectl, has_condition
from dev.cluster.programs import SPARK_OPERATOR
from headgate.api.resources.queues import QueueResource
from headgate_operator.decide.children import KINDS, decide_children
from headgate_operator.manifests.document_diff import STAMP_PATH, differences, stamped
from headgate_operator.manifests.namespace_objects import (
    build_connection_copy,
    build_spark_account,
    build_spark_binding,
    build_worker_account,
)
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.manifests.spark_application import build_application
from headgate_operator.model.kinds import SPARK_APPLICATION
from headgate_operator.model.names import MANAGER, Key, consumer_name
from headgate_operator.model.plan import ApplyObject
from headgate_operator.model.world import ChildName, DecisionMemory
from tests.unit.api.api_cases import ROOT
from tests.unit.operator.operator_children_cases import (
    CONNECTION,
    CONSUMERS,
    PYTHON,
    SETTINGS,
    UID,
    every_child,
    made,
    name_of,
    queue,
    world,
)

RESTRICTED = "pod-security.kubernetes.io"
BULK = {
    "name": "nightly",
    "mode": "drain",
    "schedule": "0 2 * * *",
    "handler": "mailer.bulk:send_all",
    "spark": {
        "driver": {"cores": 2, "env": [{"name": "A", "value": "1"}]},
        "executor": {"instances": 3, "template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
        "conf": {"spark.sql.shuffle.partitions": "8"},
    },
}


@pytest.fixture
def restricted(k8s_namespace: Kubectl) -> Kubectl:
    """A namespace that refuses pods, and warns of templates, that are not restricted."""
    labels = [f"{RESTRICTED}/{mode}=restricted" for mode in ("enforce", "warn")]
    k8s_namespace.run("label", "namespace", str(k8s_namespace.namespace), *labels)
    return k8s_namespace


def apply(
    namespaced: Kubectl, document: dict[str, Any], *how: str, manager: str = MANAGER
) -> tuple[dict[str, Any], str]:
    """The stored object, and the server's warnings. Unknown fields are refused."""
    command = namespaced.command("apply", "--server-side", f"--field-manager={manager}", "--validate=strict", *how)
    done = subprocess.run(
        [*command, "-f", "-", "-o", "json"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown, done.stderr


def owner_in(namespaced: Kubectl, uid: str = UID) -> ChildOwner:
    return ChildOwner(Key("Queue", str(namespaced.namespace), "emails"), uid)


def test_every_child_is_taken_without_a_warning_and_shown_without_a_difference(restricted: Kubectl) -> None:
    namespace = str(restricted.namespace)
    source = {"data": {"CONTACT_POINTS": "YTo5MDQy", "ca.crt": "", "other": "eA=="}}
    documents = {
        **every_child(owner_in(restricted)),
        "account": build_worker_account(namespace),
        "spark account": build_spark_account(namespace),
        "binding": build_spark_binding(namespace),
        "copy": build_connection_copy(namespace, source),
    }
    for what, document in documents.items():
        wanted = stamped(document)
        shown, warned = apply(restricted, wanted, "--dry-run=server")
        assert ("", {}) == (warned, differences(wanted, shown)), what


@pytest.fixture
def spark_applications(kubernetes: KubernetesUnderTest) -> Iterator[None]:
    """The Spark operator's own definition, for as long as the test: others test that it is missed."""
    if shutil.which("go") is None:
        pytest.skip("needs go: the definition comes from the Spark operator's module")
    folder = sources(SPARK_OPERATOR) / "config/crd/bases"
    definition = f"sparkapplications.{SPARK_APPLICATION.group}"
    file = folder / f"{SPARK_APPLICATION.group}_{SPARK_APPLICATION.plural}.yaml"
    kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(file))
    kubernetes.kubectl.wait_for("crd", definition, has_condition("Established"), what="is established")
    try:
        yield
    finally:
        kubernetes.kubectl.delete("crd", definition)


@pytest.mark.usefixtures("spark_applications")
def test_the_bulk_run_is_a_spark_application_as_its_operator_takes_it(restricted: Kubectl) -> None:
    bulk = queue(bulk=[BULK]).spec.bulk
    assert bulk is not None
    wanted = stamped(build_application(owner_in(restricted), SETTINGS, CONNECTION, bulk[0], 29_000_000))
    shown, warned = apply(restricted, wanted, "--dry-run=server")
    assert ("", {}) == (warned, differences(wanted, shown))


@pytest.fixture
def owner(kubernetes: KubernetesUnderTest, restricted: Kubectl) -> ChildOwner:
    """A Queue that is there, so that the server does not collect what belongs to it."""
    kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubernetes.kubectl.wait_for("crd", "queues.headgate.io", has_condition("Established"), what="is established")
    made_of = {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": "emails"}, "spec": {}}
    return owner_in(restricted, restricted.apply(made_of)[0]["metadata"]["uid"])


def test_a_change_by_hand_and_a_field_that_is_applied_no_more_are_both_seen(
    restricted: Kubectl, owner: ChildOwner
) -> None:
    document = made("http", owner=owner)
    wanted, name = stamped(document), document["metadata"]["name"]
    apply(restricted, wanted)
    restricted.run("set", "image", f"deployment/{name}", "worker=other")
    restricted.run("rollout", "pause", f"deployment/{name}")
    result = differences(wanted, restricted.get("deployment", name))
    assert {"spec.paused": True, "spec.template.spec.containers[worker].image": "other"} == result
    shown, _ = apply(restricted, wanted, "--force-conflicts")
    assert {} == differences(wanted, shown)
    fewer = copy.deepcopy(document)
    del fewer["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    assert [STAMP_PATH] == list(differences(stamped(fewer), shown))
    shown, _ = apply(restricted, stamped(fewer))
    assert "livenessProbe" not in shown["spec"]["template"]["spec"]["containers"][0]


def test_replicas_change_passes_without_ever_becoming_one(restricted: Kubectl, owner: ChildOwner) -> None:
    """With all that decide_children wants done, in its order, and what the server shows in between."""
    ours, theirs = queue(PYTHON), queue(CONSUMERS["external"])
    name = consumer_name("emails", "mailer")
    numbers = [settle(restricted, owner, ours, 3), settle(restricted, owner, theirs, 7)]
    restricted.run("scale", f"deployment/{name}", "--replicas=5")
    numbers += [settle(restricted, owner, theirs, 7), settle(restricted, owner, ours, 2)]
    assert [3, 3, 5, 2] == numbers
    fields = deployment_in(restricted, name)["metadata"]["managedFields"]
    owners = {entry["manager"] for entry in fields if "f:replicas" in entry["fieldsV1"].get("f:spec", {})}
    assert {MANAGER} == owners


def settle(namespaced: Kubectl, owner: ChildOwner, resource: QueueResource, wanted: int) -> int:
    """Decide and do until nothing is left to do; how many replicas there are then. Never is it the server's one."""
    name = consumer_name("emails", "mailer")
    for _ in range(5):
        shown, budget = deployment_in(namespaced, name), namespaced.find("pdb", name)
        there = {name_of(result): result for result in (shown, budget) if result}
        around = world(resource, owner=owner, live=there, checked=frozenset(ChildName(kind, name) for kind in KINDS))
        decided = decide_children(around, CONNECTION, {"mailer": wanted}, DecisionMemory(), 0)
        if not decided.effects:
            return int(shown["spec"]["replicas"])
        for effect in decided.effects:
            assert isinstance(effect, ApplyObject)
            force = ("--force-conflicts",) if effect.force else ()
            after, _ = apply(namespaced, dict(effect.document), *force, manager=effect.manager)
            assert after.get("spec", {}).get("replicas") != 1
    raise AssertionError("it never comes to rest")


def deployment_in(namespaced: Kubectl, name: str) -> dict[str, Any]:
    """With its managed fields; empty if it is not there."""
    result = namespaced.run("get", "deployment", name, "--show-managed-fields", "--ignore-not-found", "-o", "json")
    shown: dict[str, Any] = json.loads(result or "{}")
    return shown
