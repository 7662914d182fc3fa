"""The chart's admission policy on a real API server: a tenant with a right on Queues alone gets no other right by it.

The tenant is impersonated. Objects are sent as dry runs, and what is there before a change is applied by an
administrator.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl, KubectlRefused, refusal
from headgate.local.processes import wait_until
from tests.system.chart.cases import rendered
from tests.system.operator.operator_process import ROOT

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CONSUMER = {"name": "mailer", "handler": "mailer:send", "image": "evil:1"}
BULK = {"name": "drain", "mode": "redrive", "schedule": "@daily"}
RIGHTS: dict[str, dict[str, Any]] = {
    "deployments": {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
    "cronjobs": {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["create"]},
    "sparkapplications": {
        "apiGroups": ["sparkoperator.k8s.io"], "resources": ["sparkapplications"], "verbs": ["create"],
    },
    "account": {
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["headgate-spark"],
        "verbs": ["impersonate"],
    },
    "secret": {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["theirs"], "verbs": ["get"]},
}  # fmt: skip
QUEUES = {"apiGroups": ["headgate.io"], "resources": ["queues", "counters"], "verbs": ["*"]}


@dataclass(frozen=True)
class Tenant:
    """A person in a namespace of its own."""

    administrator: Kubectl
    name: str

    def may(self, *rights: str) -> None:
        """All that this person may do there."""
        rules = [QUEUES, *(RIGHTS[right] for right in rights)]
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": self.name}}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name}
        self.administrator.apply(
            {**head, "kind": "Role", "rules": rules},
            {**head, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
        )

    def answer(self, document: dict[str, Any]) -> str:
        """The refusal of an apply; empty where it is accepted."""
        how = ("--server-side", "--force-conflicts", "--dry-run=server", f"--as={self.name}")
        try:
            self.administrator.run("apply", *how, "-f", "-", stdin=json.dumps(document))
        except KubectlRefused as refused:
            return refusal(refused)
        return ""


@pytest.fixture(scope="module")
def tenant(kubernetes: KubernetesUnderTest, helm: Helm) -> Iterator[Tenant]:
    """With the policy in force in this namespace alone, since other tests share the cluster."""
    kubectl = kubernetes.kubectl
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    name = f"authors-{secrets.token_hex(3)}"
    kubectl.run("create", "namespace", name)
    documents = [each for each in rendered(helm, {}, release=name) if each["kind"] in POLICIES]
    assert len(POLICIES) == len(documents)
    for each in documents:
        if each["kind"] == POLICIES[1]:
            selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
            each["spec"]["matchResources"] = {"namespaceSelector": selector}
    cluster = replace(kubectl, namespace=None)
    cluster.apply(*documents)
    made = Tenant(kubectl.in_namespace(name), name)
    made.may()
    assert wait_until(lambda: made.answer(queue(consumers=[CONSUMER])) != "", timeout_s=60), "it is in force"
    yield made
    for each in documents:
        cluster.delete(each["kind"], each["metadata"]["name"])
    kubectl.delete("namespace", name, wait=False)


def queue(name: str = "emails", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def counter(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headgate.io/v1beta1", "kind": "Counter", "metadata": {"name": "views"},
        "spec": {"type": "sum", **spec},
    }  # fmt: skip


CASES: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
    (queue(consumers=[CONSUMER]), {"deployments": "create deployments.apps"}),
    (
        queue(bulk=[BULK]),
        {
            "sparkapplications": "create sparkapplications.sparkoperator.k8s.io",
            "account": "impersonate that service account",
        },
    ),
    (queue(storage={"connectionSecret": "theirs"}), {"secret": "get Secret theirs"}),
    (counter(storage={"connectionSecret": "theirs"}), {"secret": "get Secret theirs"}),
    (counter(gc={"image": "evil:1"}), {"cronjobs": "create cronjobs.batch"}),
)
"""What a tenant applies, and the rights that it needs, each with the words of the refusal where it is missing."""


@pytest.mark.parametrize(("document", "needed"), CASES)
def test_an_author_needs_the_rights_to_what_the_operator_does(
    tenant: Tenant, document: dict[str, Any], needed: dict[str, str]
) -> None:
    for missing, words in needed.items():
        tenant.may(*(each for each in RIGHTS if each != missing))
        assert words in eventually(tenant, document, accepted=False)
    tenant.may(*needed)
    assert "" == eventually(tenant, document, accepted=True)


def eventually(tenant: Tenant, document: dict[str, Any], *, accepted: bool) -> str:
    """The answer once the authorizer has learned of the rights."""
    answers: list[str] = []

    def holds() -> bool:
        answers.append(tenant.answer(document))
        return (answers[-1] == "") == accepted

    wait_until(holds, timeout_s=20, every_s=0.2)
    return answers[-1]


def test_a_queue_without_pods_and_secrets_needs_no_other_right(tenant: Tenant) -> None:
    tenant.may()
    assert "" == eventually(tenant, queue(shards=3, retention="1h"), accepted=True)
    assert "" == eventually(tenant, counter(), accepted=True)


def test_a_change_is_asked_about_what_it_changes_alone(tenant: Tenant) -> None:
    given = {"consumers": [CONSUMER], "storage": {"connectionSecret": "theirs"}}
    tenant.administrator.apply(queue("standing", **given))
    tenant.may()
    assert "" == eventually(tenant, queue("standing", shards=4, **given), accepted=True)
    hostile = {**given, "consumers": [{**CONSUMER, "image": "more-evil:1"}]}
    assert "create deployments.apps" in eventually(tenant, queue("standing", **hostile), accepted=False)
    other = {**given, "storage": {"connectionSecret": "another"}}
    assert "get Secret another" in eventually(tenant, queue("standing", **other), accepted=False)


def test_finalizers_and_annotations_are_changed_without_a_question(tenant: Tenant) -> None:
    tenant.administrator.apply(queue("kept", consumers=[CONSUMER]))
    tenant.may()
    annotated = queue("kept", consumers=[CONSUMER])
    annotated["metadata"] |= {"annotations": {"example.org/a": "b"}, "finalizers": ["headgate.io/store"]}
    assert "" == eventually(tenant, annotated, accepted=True)
