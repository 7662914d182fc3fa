"""The chart on the tests' cluster, installed by Helm as people do it: one release at a time, restricted, with
password and TLS to a Cassandra on this machine.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import CHART, Helm
from dev.cluster.kubectl import Kubectl, KubectlRefused
from headgate.local.processes import wait_until
from tests.system.chart.cases import Values, merged

RELEASE = "headgate"
OPERATOR = "headgate-operator"
WITHIN = "3m"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def image_values(image: str) -> Values:
    """The image of the working tree, which no registry has."""
    registry, _, rest = image.partition("/")
    repository, _, tag = rest.partition(":")
    return {"image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "Never"}}


def connection_values(environment: Mapping[str, str], keyspace: str) -> Values:
    """The same connection that a process outside reads from its environment."""
    variables: Values = {
        "contactPoints": environment["CONTACT_POINTS"].split(","),
        "dataCenter": environment.get("DATA_CENTER", ""),
        "username": environment.get("USERNAME", ""),
        "password": environment.get("PASSWORD", ""),
        "keyspace": keyspace,
    }
    files = {"ca": "SSL_CA", "certificate": "SSL_CERT", "key": "SSL_KEY"}
    tls = {name: Path(environment[path]).read_text() for name, path in files.items() if environment.get(path)}
    return {"connection": {**variables, "tls": {"enabled": True, **tls}} if tls else variables}


@dataclass(frozen=True)
class Release:
    """One that is installed, or will be."""

    helm: Helm
    kubectl: Kubectl
    """Of its namespace."""
    keyspace: str
    values: Values

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.kubectl.namespace)

    def install(self, values: Mapping[str, Any] | None = None) -> str:
        """As a person does, waiting until it is ready."""
        return self._change("install", values)

    def upgrade(self, values: Mapping[str, Any] | None = None) -> str:
        """With these values beside those that it has."""
        return self._change("upgrade", values)

    def _change(self, verb: str, values: Mapping[str, Any] | None) -> str:
        report = merged(self.values, values or {})
        return self._helm(verb, RELEASE, str(CHART), "--wait", "--timeout", WITHIN, values=report)

    def rollback(self, revision: int = 0) -> str:
        """To that revision, or to the one before."""
        return self._helm("rollback", RELEASE, str(revision), "--wait", "--timeout", WITHIN)

    def revision(self) -> int:
        """The latest."""
        return int(json.loads(self._helm("history", RELEASE, "--output", "json"))[-1]["revision"])

    def test(self) -> str:
        """`helm test`, with the pod's words."""
        return self._helm("test", RELEASE, "--logs", "--timeout", WITHIN)

    def uninstall(self) -> str:
        """Waiting until all is gone."""
        return self._helm("uninstall", RELEASE, "--wait", "--timeout", WITHIN)

    def is_installed(self) -> bool:
        """Whether Helm knows it."""
        return bool(json.loads(self._helm("list", "--all", "--output", "json")))

    def _helm(self, *arguments: str, values: Values | None = None) -> str:
        return self.helm.run(*arguments, "--namespace", self.namespace, values=values)

    # ---- its processes

    def pods(self) -> list[dict[str, Any]]:
        """The operator's that do not end."""
        result = self.kubectl.list("pods", "app.kubernetes.io/component=operator")
        return [pod for pod in result if not pod["metadata"].get("deletionTimestamp")]

    def ask(self, pod: str, path: str) -> str:
        """A pod's HTTP port, through the API server."""
        return self.kubectl.run("get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{pod}:9091/proxy{path}")

    def leaders(self) -> list[str]:
        """The pod that reports to be the leader."""
        names = [str(pod["metadata"]["name"]) for pod in self.pods()]
        return [name for name in names if "headgate_operator_leading 1.0" in self._metrics(name)]

    def _metrics(self, pod: str) -> str:
        try:
            return self.ask(pod, "/metrics")
        except (KubectlRefused, urllib.error.URLError):
            return ""

    def until_led(self) -> str:
        """The one that leads, as soon as there is one."""
        assert wait_until(lambda: len(self.leaders()) == 1, timeout_s=60), self.logs()
        return self.leaders()[0]

    def logs(self) -> str:
        """The latest output of all processes of the operator."""
        return self.kubectl.run("logs", "-l", "app.kubernetes.io/component=operator", "--tail=200", "--prefix")


@contextmanager
def release_of(
    kubernetes: KubernetesUnderTest, helm: Helm, image: str, environment: Mapping[str, str]
) -> Iterator[Release]:
    """A namespace for one, restricted; the release, if it is there, and the namespace go at the end."""
    mark = secrets.token_hex(3)
    namespace, keyspace = f"headgate-chart-{mark}", f"chart_{mark}"
    kubernetes.kubectl.run("create", "namespace", namespace)
    kubernetes.kubectl.run("label", "namespace", namespace, RESTRICTED)
    kubectl = kubernetes.kubectl.in_namespace(namespace)
    values = merged(image_values(image), connection_values(environment, keyspace))
    made = Release(replace(helm, kubectl=kubectl), kubectl, keyspace, values)
    try:
        yield made
    finally:
        if made.is_installed():
            made.helm.run("uninstall", RELEASE, "--no-hooks", "--wait", "--namespace", namespace)
        kubernetes.kubectl.delete("namespace", namespace, wait=False)
