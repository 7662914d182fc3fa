"""The login of /why and /plan against a real API server: by tokens of its service accounts and their roles, with no
right of the operator but those of the chart for it."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from headgate.errors import HeadgateError
from headgate.local.processes import wait_until
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.install.rbac import REVIEWING, rules
from headgate_operator.model.names import Key
from headgate_operator.process.inspection_login import Login, permissions_to_plan, permissions_to_read
from tests.system.operator.operator_process import ROOT

RBAC = "rbac.authorization.k8s.io/v1"
DOCUMENT: dict[str, Any] = {"spec": {"storage": {"connectionSecret": "theirs"}}}


@dataclass(frozen=True)
class Namespace:
    """A tenant's, with the token of an account that may read its own queues."""

    kubectl: Kubectl
    name: str

    @property
    def key(self) -> Key:
        return Key("Queue", self.name, "emails")

    def token(self, account: str) -> str:
        return self.kubectl.run("create", "token", account).strip()


@pytest.fixture(scope="module")
def tenants(kubernetes: KubernetesUnderTest) -> Iterator[tuple[Namespace, Namespace]]:
    kubectl = kubernetes.kubectl
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    names = [f"{stem}-{secrets.token_hex(3)}" for stem in ("shop", "evil")]
    made = []
    for name in names:
        kubectl.run("create", "namespace", name)
        client = kubectl.in_namespace(name)
        client.run("create", "serviceaccount", "reader")
        rule = {"apiGroups": ["headgate.io"], "resources": ["queues"], "verbs": ["get"]}
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": name}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        head = {"apiVersion": RBAC, "metadata": {"name": "reader"}}
        client.apply(
            {**head, "kind": "Role", "rules": [rule]},
            {**head, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
        )
        made.append(Namespace(client, name))
    yield made[0], made[1]
    for name in names:
        kubectl.delete("namespace", name, wait=False)


@pytest.fixture(scope="module")
def reviewer(tenants: tuple[Namespace, Namespace], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an account that may review, and nothing else."""
    home = tenants[0]
    cluster = replace(home.kubectl, namespace=None)
    name = f"reviewer-{secrets.token_hex(3)}"
    home.kubectl.run("create", "serviceaccount", name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home.name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    head = {"apiVersion": RBAC, "metadata": {"name": name}}
    cluster.apply(
        {**head, "kind": "ClusterRole", "rules": rules(REVIEWING)},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    text = json.loads(home.kubectl.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    text["users"] = [{"name": name, "user": {"token": home.token(name)}}]
    text["contexts"][0]["context"]["user"] = name
    file = tmp_path_factory.mktemp("reviewer") / "kubeconfig"
    file.write_text(json.dumps(text))
    yield file
    cluster.run("delete", "clusterrole,clusterrolebinding", name, "--wait=false")


def refusal(kubeconfig: Path, token: str, *permissions: Any) -> str:
    """The answer to a caller; empty where it is let in."""

    async def ask() -> str:
        port = await HttpApiClient.connect(kubeconfig=str(kubeconfig))
        try:
            await Login(port).require(f"Bearer {token}", permissions)
        except HeadgateError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            await port.close()
        return ""

    return asyncio.run(ask())


def test_a_tenant_reads_its_own_queues_and_no_others(tenants: tuple[Namespace, Namespace], reviewer: Path) -> None:
    shop, evil = tenants
    own, others = permissions_to_read(shop.key), permissions_to_read(evil.key)
    token = shop.token("reader")
    assert wait_until(lambda: refusal(reviewer, token, *own) == "", timeout_s=20), refusal(reviewer, token, *own)
    assert refusal(reviewer, token, *others).startswith("AccessDenied")
    assert "get queues.headgate.io/emails in namespace" in refusal(reviewer, token, *others)
    namespace = permissions_to_read(Key("Namespace", shop.name, shop.name))
    assert "list queues.headgate.io in namespace" in refusal(reviewer, token, *namespace)


def test_a_tenant_plans_what_it_might_apply(tenants: tuple[Namespace, Namespace], reviewer: Path) -> None:
    shop, _ = tenants
    token = shop.token("reader")
    assert wait_until(lambda: refusal(reviewer, token, *permissions_to_read(shop.key)) == "", timeout_s=20)
    assert "create queues.headgate.io" in refusal(reviewer, token, *permissions_to_plan(shop.key, {}))
    shop.kubectl.run("create", "role", "writer", "--verb=create", "--resource=queues.headgate.io")
    shop.kubectl.run("create", "rolebinding", "writer", "--role=writer", f"--serviceaccount={shop.name}:reader")
    assert wait_until(lambda: refusal(reviewer, token, *permissions_to_plan(shop.key, {})) == "", timeout_s=20)
    assert "get secrets/theirs" in refusal(reviewer, token, *permissions_to_plan(shop.key, DOCUMENT))


@pytest.mark.parametrize("token", ["forged", "a.b.c", "x" * 4_000])
def test_a_token_that_the_cluster_did_not_issue_is_none(
    tenants: tuple[Namespace, Namespace], reviewer: Path, token: str
) -> None:
    answer = refusal(reviewer, token, *permissions_to_read(tenants[0].key))
    assert answer.startswith("NotLoggedIn")
