"""examples/gitops on a real cluster: what Kustomize makes of it, what the API server takes, and in whatever order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from tests.system.operator.operator_process import OperatorProcess, home, leading
from tests.system.operator.test_operator import becomes
from tests.unit.runtime.health_readers import argo_health, flux_health, kstatus

GITOPS = Path(__file__).parents[3] / "examples" / "gitops"
Resource = dict[str, Any]


@pytest.fixture(scope="module")
def operator(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that leads."""
    environment = cassandra.environment()
    with (
        home(kubernetes, environment, tmp_path_factory.mktemp("gitops")) as its_home,
        leading(its_home) as running,
    ):
        yield running
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


def rendered(kubernetes: KubernetesUnderTest, folder: Path) -> dict[str, Resource]:
    """Resources that `kubectl kustomize` renders from a folder, by name."""
    resources = yaml.safe_load_all(kubernetes.kubectl.run("kustomize", str(folder)))
    return {one["metadata"]["name"]: one for one in resources}


def without_workers(resource: Resource) -> Resource:
    """The same, but that nobody has to run: its image is not there."""
    spec = {name: value for name, value in resource["spec"].items() if name != "consumers"}
    return {**resource, "metadata": {"name": resource["metadata"]["name"]}, "spec": spec}


def test_the_base_is_rendered_as_it_is(kubernetes: KubernetesUnderTest) -> None:
    result = rendered(kubernetes, GITOPS / "base")
    assert ["emails", "emails-dead", "page-views"] == sorted(result)
    assert "emails-dead" == result["emails"]["spec"]["deadLetter"]
    assert {None} == {one["metadata"].get("namespace") for one in result.values()}


def test_the_overlay_changes_namespace_image_shards_and_scaling(kubernetes: KubernetesUnderTest) -> None:
    result = rendered(kubernetes, GITOPS / "production")
    emails = result["emails"]["spec"]
    (mailer,) = emails["consumers"]
    assert {"shop"} == {one["metadata"]["namespace"] for one in result.values()}
    assert (12, "registry.example/shop:1.5") == (emails["shards"], mailer["image"])
    assert {"min": 0, "max": 12, "backlogPerWorker": 5000} == mailer["scaling"]
    assert "shop.mailer:send" == mailer["handler"]


def test_a_prefix_reaches_the_dead_letter_queue_that_is_named(
    kubernetes: KubernetesUnderTest, tmp_path: Path
) -> None:
    for file in (GITOPS / "base").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    with (tmp_path / "kustomization.yaml").open("a") as kustomization:
        kustomization.write("namePrefix: eu-\n")
    result = rendered(kubernetes, tmp_path)
    assert "eu-emails-dead" in result
    assert "eu-emails-dead" == result["eu-emails"]["spec"]["deadLetter"]


def test_argo_cd_gets_both_health_checks_under_the_keys_that_it_reads(kubernetes: KubernetesUnderTest) -> None:
    config = rendered(kubernetes, GITOPS / "argocd")["argocd-cm"]
    lua = (GITOPS / "argocd" / "health.lua").read_text()
    keys = [f"resource.customizations.health.headgate.io_{kind}" for kind in ("Counter", "Queue")]
    assert dict.fromkeys(keys, lua) == config["data"]
    assert "argocd" == config["metadata"]["labels"]["app.kubernetes.io/part-of"]


def test_the_api_server_takes_all_that_is_rendered(
    operator: OperatorProcess, kubernetes: KubernetesUnderTest
) -> None:
    kubectl = kubernetes.kubectl
    for folder in ("base", "production"):
        for resource in rendered(kubernetes, GITOPS / folder).values():
            resource["metadata"]["namespace"] = "default"
            text = kubectl.run("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=json.dumps(resource))
            assert text.endswith("serverside-applied (server dry run)\n")


def test_a_queue_may_come_before_its_dead_letter_queue_and_is_answered_so_by_all_three(
    operator: OperatorProcess, kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl
) -> None:
    client, result = k8s_namespace, rendered(kubernetes, GITOPS / "base")
    client.apply(without_workers(result["emails"]))
    waits = becomes(client, "emails", "DeadLetterMissing")
    assert ("Progressing", "InProgress", "InProgress") == (argo_health(waits)[0], kstatus(waits), flux_health(waits))
    client.apply(without_workers(result["emails-dead"]))
    ready = becomes(client, "emails", "Reconciled")
    assert ("Healthy", "Current", "Current") == (argo_health(ready)[0], kstatus(ready), flux_health(ready))


def test_in_whatever_order_all_become_ready(
    operator: OperatorProcess, kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl
) -> None:
    client, result = k8s_namespace, rendered(kubernetes, GITOPS / "base")
    for name in ("page-views", "emails-dead", "emails"):
        client.apply(without_workers(result[name]))
    for name in ("emails", "emails-dead"):
        assert "Healthy" == argo_health(becomes(client, name, "Reconciled"))[0]
    counter = client.wait_for(
        "counter",
        "page-views",
        lambda observation: argo_health(observation)[0] == "Healthy",
        what="is Healthy",
        timeout_s=60,
    )
    assert ("Current", "Current") == (kstatus(counter), flux_health(counter))
