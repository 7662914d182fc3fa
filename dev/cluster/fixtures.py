"""pytest fixtures: a Kubernetes for the session, and a namespace for each test.

The cluster of the tests has a name of its own, so that a developer's is not disturbed. A running one is used and left
running; one that had to be started is stopped with the session. HEADGATE_TEST_CONTEXT names another cluster;
HEADGATE_TEST_CLUSTER renames the one that is started, so that two sessions may run concurrently.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dev.cluster import image, lifecycle
from dev.cluster.helm import Helm, helm_program
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import Cluster

TEST_CLUSTER = "test"


@dataclass(frozen=True)
class KubernetesUnderTest:
    """The cluster that tests run on."""

    cluster: Cluster
    kubectl: Kubectl

    @property
    def host_address(self) -> str | None:
        """Where this machine is reached by pods and by itself alike, if it is."""
        return self.cluster.host_address

    def runs_containers(self) -> bool:
        """Whether pods run."""
        return self.cluster.runs_containers()


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesUnderTest]:
    """A real API server, and on most machines a real node."""
    context = os.environ.get("HEADGATE_TEST_CONTEXT")
    called = os.environ.get("HEADGATE_TEST_CLUSTER", TEST_CLUSTER)
    name = called if context is None else f"{called}-named"
    was_up = lifecycle.is_up(name)
    cluster = lifecycle.up(name, context=context)
    try:
        yield KubernetesUnderTest(cluster, lifecycle.client(cluster))
    finally:
        if not was_up:
            lifecycle.down(name)


@pytest.fixture(scope="session")
def python_image(kubernetes: KubernetesUnderTest) -> str:
    """An image with Python that pods of the cluster can run."""
    if not kubernetes.runs_containers():
        pytest.skip("needs root: without it no container runs")
    cluster = kubernetes.cluster
    if cluster.mode == "context":
        return "python:3.11-slim"
    built = image.build_python_image()
    lifecycle.load(cluster, built)
    return built.tag


@pytest.fixture(scope="session")
def headgate_image(kubernetes: KubernetesUnderTest) -> str:
    """The working tree as an image that pods of the cluster can run, built by the Dockerfile."""
    return _image_of(kubernetes, "headgate")


@pytest.fixture(scope="session")
def spark_image(kubernetes: KubernetesUnderTest) -> str:
    """The same for drivers and executors of Spark."""
    return _image_of(kubernetes, "headgate-spark")


def _image_of(kubernetes: KubernetesUnderTest, target: str) -> str:
    if not kubernetes.runs_containers():
        pytest.skip("needs root: without it no container runs")
    built = image.build_image(target)
    lifecycle.load(kubernetes.cluster, built)
    return built.tag


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm with no cluster: it lints and renders. With `kubectl` in its place it installs."""
    if shutil.which("go") is None:
        pytest.skip("needs go: helm is built from source")
    return Helm(helm_program(), tmp_path_factory.mktemp("helm"))


@pytest.fixture
def k8s_namespace(kubernetes: KubernetesUnderTest, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """A namespace of the test's own, as a client bound to it; deleted afterwards."""
    name = namespace_for(request.node.name, secrets.token_hex(3))
    kubernetes.kubectl.run("create", "namespace", name)
    connection = kubernetes.kubectl.in_namespace(name)
    # A pod made before the controllers have added its account would be refused.
    connection.wait_for("serviceaccount", "default", lambda _: True, what="is there")
    try:
        yield connection
    finally:
        kubernetes.kubectl.delete("namespace", name, wait=False)


def namespace_for(test: str, unique: str) -> str:
    """The name of a test's namespace, which contains the test's name."""
    readable = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-")
    return f"{readable}-{unique}" if readable else f"t-{unique}"
