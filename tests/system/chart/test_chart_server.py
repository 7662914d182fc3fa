"""Every option of the chart, offered to a real API server as a dry run: strict about fields, with all admission, in a
namespace that enforces the restricted Pod Security Standard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.golang import sources
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl, KubectlRefused, has_condition, refusal
from dev.cluster.programs import PROMETHEUS_OPERATOR
from tests.system.chart.cases import CASES, Values, rendered
from tests.system.chart.chart_release import RESTRICTED
from tests.system.chart.test_chart_rendering import pods
from tests.system.operator.operator_process import ROOT

DEFINITIONS = "example/prometheus-operator-crd"
MONITORS = ("servicemonitors", "podmonitors", "prometheusrules")


@pytest.fixture(scope="module")
def restricted(kubernetes: KubernetesUnderTest) -> Iterator[Kubectl]:
    """Where nothing but restricted pods is let in, on a server that knows all kinds that the chart speaks of."""
    folder = sources(PROMETHEUS_OPERATOR) / DEFINITIONS
    files = [argument for kind in MONITORS for argument in ("-f", str(folder / f"monitoring.coreos.com_{kind}.yaml"))]
    kubectl = kubernetes.kubectl
    for each in (files, ["-f", str(ROOT / "crds")]):
        kubectl.run("apply", "--server-side", "--force-conflicts", *each)
        kubectl.run("wait", "--for=condition=Established", "--timeout=60s", *each)
    kubectl.run("create", "namespace", "chart-restricted")
    kubectl.run("label", "namespace", "chart-restricted", RESTRICTED)
    client = kubectl.in_namespace("chart-restricted")
    client.wait_for("serviceaccount", "default", lambda _: True, what="is there")
    yield client
    kubectl.delete("namespace", "chart-restricted", wait=False)


def offered(kubectl: Kubectl, documents: list[dict[str, Any]]) -> None:
    """As a dry run; a refusal is an error with the server's words."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    replace(kubectl, namespace=None).run("apply", *how, "-f", "-", stdin=text)


def in_place(helm: Helm, values: Values, namespace: str) -> list[dict[str, Any]]:
    """The documents, in a namespace that is there."""
    documents = rendered(helm, values)
    for each in documents:
        if "namespace" in each["metadata"] and each["metadata"]["namespace"] == "headgate-system":
            each["metadata"]["namespace"] = namespace
    return documents


def bare_pods(documents: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """Each pod by itself, since only pods are enforced: with the default account, which is there."""
    matches = []
    for number, (_, pod) in enumerate(pods(documents)):
        spec = {**pod, "serviceAccountName": "default"}
        if not any(each["name"] == "data" for each in pod["volumes"]):  # a StatefulSet adds what it claims
            spec["volumes"] = [*pod["volumes"], {"name": "data", "emptyDir": {}}]
        metadata = {"name": f"pod-{number}", "namespace": namespace}
        matches.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return matches


@pytest.mark.parametrize("name", CASES)
def test_the_server_takes_every_option(restricted: Kubectl, helm: Helm, name: str) -> None:
    documents = in_place(helm, CASES[name], str(restricted.namespace))
    offered(restricted, documents)
    offered(restricted, bare_pods(documents, str(restricted.namespace)))


def test_the_server_is_strict_and_enforces_what_a_pod_may(restricted: Kubectl, helm: Helm) -> None:
    documents = in_place(helm, {}, str(restricted.namespace))
    pod = bare_pods(documents, str(restricted.namespace))[0]
    with pytest.raises(KubectlRefused) as refused:
        offered(restricted, [{**pod, "spec": {**pod["spec"], "securityContext": {}}}])
    assert "violates PodSecurity" in refusal(refused.value)
    with pytest.raises(KubectlRefused) as refused:
        offered(restricted, [{**pod, "spec": {**pod["spec"], "servicAccount": "x"}}])
    assert "servicAccount" in refusal(refused.value)


def test_the_definitions_of_monitors_are_there(restricted: Kubectl) -> None:
    names = [f"{kind}.monitoring.coreos.com" for kind in MONITORS]
    assert [] == [name for name in names if not has_condition("Established")(restricted.get("crd", name))]
