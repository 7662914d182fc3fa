"""A Queue that is too large, on a real API server: it is refused, and one from before the bound harms nobody else."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from headgate.errors import HeadgateError
from headgate.local.processes import wait_until
from tests.system.operator.operator_process import ROOT, OperatorProcess, home, leading
from tests.system.operator.test_operator import becomes, queue

VARIABLES = 20_000
"""Before the bound one decision about this number took the operator's event loop a minute."""
PROBED_WITHIN_S = 5.0
"""As the chart's liveness probe does."""
LIVED_FOR_S = 40.0
"""More than two terms of the Lease."""
CRD = ROOT / "crds" / "queues.headgate.io.yaml"


def large_queue(name: str = "large") -> dict[str, Any]:
    env = [{"name": f"V{number}"} for number in range(VARIABLES)]
    consumer = {
        "name": "mailer",
        "image": "mailer:1",
        "handler": "mailer:send",
        "scaling": {"min": 0},
        "template": {"spec": {"containers": [{"name": "worker", "env": env}]}},
    }
    return queue(name, consumers=[consumer])


@dataclass
class Probes:
    """A liveness probe and the holder of the Lease, checked all the time."""

    operator: OperatorProcess
    kubectl: Kubectl
    missed: list[str] = field(default_factory=list)
    holders: set[str] = field(default_factory=set)
    count: int = 0

    def read_state(self, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            self.count += 1
            try:
                url = f"http://127.0.0.1:{self.operator.port}/livez"
                with urllib.request.urlopen(url, timeout=PROBED_WITHIN_S) as answer:
                    answer.read()
            except OSError as error:
                self.missed.append(f"probe {self.count}: {error}")
            spec = self.kubectl.get("lease", "headgate-operator")["spec"]
            self.holders.add(f"{spec.get('holderIdentity')} {spec.get('leaseTransitions')}")

    @contextmanager
    def probing(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self.read_state, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def without_bounds(node: Any) -> Any:
    """A CRD as it was before lists of a template were bounded."""
    if isinstance(node, list):
        return [without_bounds(each) for each in node]
    if not isinstance(node, dict):
        return node
    left = {name: without_bounds(value) for name, value in node.items()}
    if left.get("x-kubernetes-preserve-unknown-fields") is True:
        left.pop("properties", None)
    return left


@contextmanager
def unbounded_crd(kubectl: Kubectl) -> Iterator[None]:
    """For as long as it lasts the API server accepts a template of any size."""
    kubectl.apply(without_bounds(yaml.safe_load(CRD.read_text())))
    try:
        yield
    finally:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(CRD))


def is_accepted(namespaced: Kubectl, document: dict[str, Any]) -> bool:
    try:
        namespaced.run("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
    except HeadgateError:
        return False
    return True


@pytest.fixture
def operator(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OperatorProcess, Kubectl]]:
    """One that leads, and its own namespace."""
    with (
        home(kubernetes, cassandra.environment(), tmp_path_factory.mktemp("large")) as its_home,
        leading(its_home) as running,
    ):
        yield running, its_home.kubectl.in_namespace(its_home.namespace)
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


@pytest.fixture
def second_namespace(kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl) -> Iterator[Kubectl]:
    """Another namespace."""
    name = f"{k8s_namespace.namespace}-2"
    kubernetes.kubectl.run("create", "namespace", name)
    try:
        yield kubernetes.kubectl.in_namespace(name)
    finally:
        kubernetes.kubectl.delete("namespace", name, wait=False)


def test_a_queue_that_is_too_large_is_refused_and_one_from_before_the_bound_harms_no_other(
    operator: tuple[OperatorProcess, Kubectl], k8s_namespace: Kubectl, second_namespace: Kubectl
) -> None:
    running, its_namespace = operator
    client = k8s_namespace
    with pytest.raises(HeadgateError) as refused:
        client.apply(large_queue())
    assert (
        'spec.consumers[0].template.spec.containers[0].env: Invalid value: "array": must have at most 200 items; '
        "keep the others in a ConfigMap and name it in envFrom"
    ) in str(refused.value)
    probes = Probes(running, its_namespace)
    with probes.probing():
        with unbounded_crd(client):
            assert wait_until(lambda: is_accepted(client, large_queue()), timeout_s=60)
            client.apply(large_queue())
        assert wait_until(lambda: not is_accepted(client, large_queue("another")), timeout_s=60)
        began_s = time.monotonic()
        invalid = becomes(client, "large", "SpecInvalid")
        second_namespace.apply(queue("small"))
        becomes(second_namespace, "small", "Reconciled")
        wait_until(lambda: time.monotonic() - began_s > LIVED_FOR_S, timeout_s=LIVED_FOR_S + 5, every_s=1)
        second_namespace.apply(queue("later"))
        becomes(second_namespace, "later", "Reconciled")
    ready = next(each for each in invalid["status"]["conditions"] if each["type"] == "Ready")
    assert "env: must have at most 200 items; keep the others in a ConfigMap" in ready["message"]
    assert ([], 1, None) == (probes.missed, len(probes.holders), running.process.poll())
    assert probes.count > LIVED_FOR_S / 2
