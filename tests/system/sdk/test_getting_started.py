"""The pages for a platform team and for an engineer on call, run as printed: on a cluster that is there, with a
Cassandra that wants a password and TLS, by the role that docs/security.md grants and no more.

What stands for a name of the reader's own (servers, registry, password) is replaced, and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.servers.cassandra import Cassandra, certificates
from headgate.local.cache import cache_root
from headgate.local.processes import wait_until
from tests.kit.page_examples import ROOT, Example, examples_of

WITHIN_S = 420
DRAINED_WITHIN_S = 120.0
PASSWORD = "change-me"


@dataclass(frozen=True)
class Shell:
    """A person's shell: a checkout, kubectl and helm on the PATH, a kubeconfig."""

    folder: Path
    environment: Mapping[str, str]
    names: Mapping[str, str]
    """What stands on the page, and what it is here."""

    def as_in_checkout(self, text: str) -> str:
        """The text with names of servers and registry as they are here."""
        for there, local in self.names.items():
            text = text.replace(there, local)
        return text

    def run(self, example: Example) -> str:
        """A block, line by line, until one fails."""
        return self.run_line(f"set -euo pipefail\n{self.as_in_checkout(example.text)}")

    def run_line(self, script: str) -> str:
        """What a script writes."""
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def guarded_cassandra(kubernetes: KubernetesUnderTest) -> Iterator[Cassandra]:
    """One that asks for a password, and speaks TLS; the role of the page of security is there."""
    if not kubernetes.runs_containers():
        pytest.skip("needs root: without it no container runs")
    made = certificates((f"ip:{kubernetes.host_address}",))
    with Cassandra.start(address=str(kubernetes.host_address), tls=made) as server:
        grants = next(example for example in examples_of("security.md") if example.language == "cql")
        for statement in grants.text.replace("'dc1'", f"'{server.environment()['DATA_CENTER']}'").split(";"):
            if statement.strip():
                server.cql(statement)
        yield server


@pytest.fixture(scope="module")
def shell(
    kubernetes: KubernetesUnderTest,
    guarded_cassandra: Cassandra,
    headgate_image: str,
    helm: Helm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Shell:
    """In a folder like the checkout."""
    folder = tmp_path_factory.mktemp("newcomer")
    for name in ("examples", "charts", "crds"):
        (folder / name).symlink_to(ROOT / name)
    variables = guarded_cassandra.environment()
    shutil.copy(variables["SSL_CA"], folder / "ca.pem")
    registry, _, rest = headgate_image.partition("/")
    programs = (kubernetes.kubectl.program, helm.program, sys.executable)
    environment = {
        **os.environ,
        **variables,
        "USERNAME": "headgate",
        "PASSWORD": PASSWORD,
        "CASSANDRA_PASSWORD": PASSWORD,
        "PATH": os.pathsep.join([*(str(Path(program).parent) for program in programs), os.environ["PATH"]]),
        "KUBECONFIG": kubernetes.kubectl.kubeconfig,
        "HOME": str(folder),
        "HEADGATE_CACHE": str(cache_root()),
    }
    environment.pop("KEYSPACE", None)
    names = {
        "cassandra.example": variables["CONTACT_POINTS"],
        "DATA_CENTER=dc1": f"DATA_CENTER={variables['DATA_CENTER']}",
        "registry: registry.example": f"registry: {registry}\n  tag: {rest.partition(':')[2]}",
    }
    return Shell(folder, environment, names)


def run_of(page: str, shell: Shell) -> Iterator[tuple[Example, str]]:
    """Each block of a page that is run, with what it wrote; files of values are written where they stand."""
    for example in examples_of(page):
        if example.language == "yaml" and example.words[:1] == ("values",):
            (shell.folder / example.words[1]).write_text(shell.as_in_checkout(example.text))
        elif example.is_run:
            yield example, shell.run(example)


@pytest.mark.slow
def test_a_newcomer_installs_uses_checks_and_removes_by_the_pages_alone(
    shell: Shell, kubernetes: KubernetesUnderTest
) -> None:
    kubectl = kubernetes.kubectl
    message = []
    for example, _ in run_of("start-platform.md", shell):
        message.append(example.text)
        if "headgate put" in example.text:
            assert wait_until(lambda: is_drained(shell), timeout_s=DRAINED_WITHIN_S, every_s=2.0)
            on_call = dict(run_of("start-on-call.md", shell))
            assert any("why" in one.text for one in on_call)
    assert "helm uninstall" in message[-1]
    system = kubectl.in_namespace("headgate-system")
    assert [] == system.list("deployments,jobs,serviceaccounts", "app.kubernetes.io/instance")
    assert kubectl.find("namespace", "shop") is None
    kubectl.delete("namespace", "headgate-system")


def is_drained(shell: Shell) -> bool:
    """Whether all that was sent was handled."""
    text = shell.run_line("headgate stats shop/emails -o json")
    return '"backlog": 0, "in_flight": 0' in text


@pytest.mark.slow
def test_make_demo_on_a_cluster_that_is_there_shows_all_of_it_and_make_down_removes_it(
    shell: Shell, kubernetes: KubernetesUnderTest, tmp_path: Path
) -> None:
    kubectl = kubernetes.kubectl
    context = kubectl.run("config", "current-context").strip()
    values = (shell.as_in_checkout("registry: registry.example")).replace("tag:", "").replace("registry:", "").split()
    asked = f"CONTEXT={context} REGISTRY={values[0]} TAG={values[1]}"
    environment = {**shell.environment, "HEADGATE_STATE": str(tmp_path), "PYTHONPATH": "workers:."}
    there = Shell(ROOT, environment, {})
    try:
        text = there.run_line(f"make demo {asked}")
    finally:
        there.run_line("make down")
    assert text.startswith("headgate demo, on a Kubernetes")
    assert "and 0 again" in text
    assert "page-1 was viewed" in text
    assert "has no address" in text
    assert kubectl.find("namespace", "shop") is None
    assert kubectl.find("namespace", "headgate-system") is None
