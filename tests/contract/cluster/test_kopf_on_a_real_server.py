"""kopf before a real API server, under an account with the operator's rights and no others.

What it brings is held to the simulation's feed by tests/unit/operator/test_kopf_watch.py.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from headgate.process.background_tasks import end_task, start_task
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.kopf_watch import KopfWatch
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.watch_audit import WatchAudit
from headgate_operator.informers.watched_kinds import OURS, SPARK_CRD
from headgate_operator.informers.work_queue import WorkQueue
from headgate_operator.install.rbac import OPERATOR
from headgate_operator.model.kinds import CRD, SPARK_APPLICATION
from tests.kit.operator_rights import bindings, cluster_role, role

pytestmark = [pytest.mark.servers, pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

CRDS = Path(__file__).parents[3] / "crds"
WITHIN_S = 30.0
SPARK = {
    "apiVersion": CRD.api_version,
    "kind": CRD.kind,
    "metadata": {"name": SPARK_CRD, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
    "spec": {
        "group": SPARK_APPLICATION.group,
        "scope": "Namespaced",
        "names": {"plural": "sparkapplications", "singular": "sparkapplication", "kind": "SparkApplication"},
        "versions": [
            {
                "name": SPARK_APPLICATION.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


@pytest.fixture
def home(kubernetes: KubernetesUnderTest, tmp_path: Path) -> Iterator[tuple[Kubectl, Path]]:
    """A namespace with the operator's account and its rights, and a kubeconfig of that account."""
    kubectl, name = kubernetes.kubectl, f"kopf-{secrets.token_hex(3)}"
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": OPERATOR, "namespace": name}}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kubectl.apply(account, cluster_role(name), role(name, name), *bindings(name, name))
    home = kubectl.in_namespace(name)
    kubeconfig = tmp_path / "kubeconfig.yaml"
    view = json.loads(kubectl.run("config", "view", "--raw", "--minify", "-o", "json"))
    token = home.run("create", "token", OPERATOR).strip()
    view["users"] = [{"name": each["name"], "user": {"token": token}} for each in view["users"]]
    kubeconfig.write_text(json.dumps(view))
    try:
        yield home, kubeconfig
    finally:
        for kind in ("clusterrolebinding", "clusterrole", "namespace"):
            kubectl.delete(kind, name, wait=False)


@pytest.fixture
def lacks_spark(kubernetes: KubernetesUnderTest) -> Iterator[None]:
    """A cluster in which Spark's operator was never installed."""
    if kubernetes.kubectl.find("crd", SPARK_CRD) is not None:
        kubernetes.kubectl.delete("crd", SPARK_CRD)
    yield
    kubernetes.kubectl.delete("crd", SPARK_CRD)


def test_with_the_operator_s_rights_every_kind_arrives_and_one_definition(
    home: tuple[Kubectl, Path], lacks_spark: None
) -> None:
    asyncio.run(_watch(*home))


async def _watch(kubectl: Kubectl, kubeconfig: Path) -> None:
    cache = ObjectCache()
    intake = EventIngest(cache, WorkQueue(rng=Random(1), settle=True))
    cluster = await HttpApiClient.connect(kubeconfig=str(kubeconfig))
    running = start_task("kopf", KopfWatch(intake, cluster.access, asyncio.Event()).run())
    namespace = str(kubectl.namespace)

    def names(kind: str) -> list[str]:
        return cache.names_in(kind, namespace)

    audit = WatchAudit(cluster, cache, intake)
    try:
        await asyncio.wait_for(audit.wait_until_listed(), WITHIN_S)
        assert namespace in cache.names_in("Namespace", "")
        await _applied(kubectl, queue("emails"))
        await _until(lambda: names("Queue") == ["emails"])
        assert [] == cache.names_in(CRD.kind, "")
        await _applied(kubectl, SPARK)
        await _until(lambda: cache.names_in(CRD.kind, "") == [SPARK_CRD])
        await asyncio.to_thread(
            kubectl.run, "wait", "--for=condition=Established", "--timeout=30s", f"crd/{SPARK_CRD}"
        )
        await _applied(kubectl, run_of_spark("ours", dict([OURS.split("=")])), run_of_spark("theirs", {}))
        await _until(lambda: names(SPARK_APPLICATION.kind) == ["ours"])
        await asyncio.to_thread(kubectl.delete, "queue", "emails")
        await _until(lambda: names("Queue") == [])
        known = len(cache)
        await audit.audit()
        await audit.audit()
        assert (None, known) == (audit.why_dead(), len(cache))
    finally:
        await end_task(running)
        await cluster.close()


async def _applied(kubectl: Kubectl, *documents: dict[str, Any]) -> None:
    await asyncio.to_thread(kubectl.apply, *documents)


async def _until(holds: Callable[[], object]) -> None:
    deadline_s = asyncio.get_running_loop().time() + WITHIN_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline_s, "it never came"
        await asyncio.sleep(0.05)


def queue(name: str) -> dict[str, Any]:
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


def run_of_spark(name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": SPARK_APPLICATION.api_version, "kind": SPARK_APPLICATION.kind, "metadata": metadata}
