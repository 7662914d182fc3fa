"""The operator as a process outside the cluster, under an account with the rights of its roles and no others.

The requests of its account are in the server's own audit log: `asked` reads it.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from headgate.local.processes import wait_until
from headgate_operator.install.rbac import OPERATOR
from headgate_operator.manifests.pod import CONNECTION_FILES
from tests.kit.operator_rights import bindings, cluster_role, role

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 60.0
FILES = dict(zip(CONNECTION_FILES, ("SSL_CA", "SSL_CERT", "SSL_KEY"), strict=True))
"""Keys of the connection Secret that a process outside the cluster reads from files."""
ACCOUNTS: list[str] = []
"""The operators' accounts of this session, as the API server calls them."""


@dataclass
class OperatorProcess:
    """The process, and where it answers."""

    process: subprocess.Popen[str]
    port: int
    """Of probes and metrics."""
    inspection_port: int
    """Of /why and /plan."""
    keyspace: str
    log: Path

    def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """Its HTTP ports."""
        port = self.inspection_port if path.startswith(("/why", "/plan")) else self.port
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own address
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def is_ready(self) -> bool:
        """Whether it leads, with all lists read, or stands by."""
        return self.process.poll() is None and self.ask("/readyz")[0] == 200

    def kill(self) -> None:
        """As a node does that is lost."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """As it should."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=60)


@dataclass(frozen=True)
class Home:
    """The objects that a chart creates before an operator: namespace, account, roles and connection Secret."""

    kubectl: Kubectl
    namespace: str
    keyspace: str
    kubeconfig: Path
    folder: Path

    def start(self, *options: str, program: str = "headgate_operator.process.main") -> OperatorProcess:
        """A process, as soon as its port is open."""
        log = self.folder / f"{secrets.token_hex(3)}.log"
        command = [sys.executable, "-m", program, "--kubeconfig", str(self.kubeconfig)]
        command += ["--namespace", self.namespace, "--health", "127.0.0.1:0", "--inspection", "127.0.0.1:0", *options]
        with log.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, text=True, env=dict(os.environ), cwd=ROOT)
        assert wait_until(lambda: '"inspection_port":' in log.read_text() or process.poll() is not None, timeout_s=60)
        assert process.poll() is None, log.read_text()
        ports = [port_in(name, log.read_text()) for name in ("port", "inspection_port")]
        return OperatorProcess(process, ports[0], ports[1], self.keyspace, log)


def port_in(name: str, log: str) -> int:
    """Its listening address, by the line of its log that has this field."""
    line = next(line for line in log.splitlines() if f'"{name}":' in line)
    return int(json.loads(line)[name])


@contextmanager
def home(kubernetes: KubernetesUnderTest, connection: Mapping[str, str], folder: Path) -> Iterator[Home]:
    """One of a test's own, with a keyspace of its own."""
    kubectl, mark = kubernetes.kubectl, secrets.token_hex(4)
    namespace, keyspace = f"headgate-system-{mark}", f"op_{mark}"
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    kubectl.run("create", "namespace", namespace)
    name = f"{OPERATOR}-{mark}"  # others' operators may be in this cluster
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": OPERATOR, "namespace": namespace}}
    kubectl.apply(
        account,
        cluster_role(name),
        role(namespace, name),
        *bindings(namespace, name),
        secret_of(connection, namespace, keyspace),
    )
    ACCOUNTS.append(f"system:serviceaccount:{namespace}:{OPERATOR}")
    kubeconfig = folder / f"{namespace}.yaml"
    kubeconfig.write_text(json.dumps(_by_token(kubectl.in_namespace(namespace))))
    try:
        yield Home(kubectl, namespace, keyspace, kubeconfig, folder)
    finally:
        kubectl.run("delete", "clusterrole,clusterrolebinding", name, "--wait=false")
        kubectl.delete("namespace", namespace, wait=False)


def _by_token(home: Kubectl) -> dict[str, Any]:
    """A kubeconfig of the operator's account, with nothing outside the file."""
    token = home.run("create", "token", OPERATOR, "--duration=4h").strip()
    text: dict[str, Any] = json.loads(home.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    text["users"] = [{"name": OPERATOR, "user": {"token": token}}]
    text["contexts"][0]["context"]["user"] = OPERATOR
    return text


@contextmanager
def leading(home: Home, *options: str) -> Iterator[OperatorProcess]:
    """A process that leads; what it logged is shown with what failed."""
    running = home.start(*options)
    try:
        assert wait_until(running.is_ready, timeout_s=60), running.log.read_text()
        yield running
    finally:
        running.end()
        sys.stdout.write(running.log.read_text()[-20_000:])


def secret_of(connection: Mapping[str, str], namespace: str, keyspace: str) -> dict[str, Any]:
    """The chart's Secret: files' contents instead of their paths."""
    by_name = {name: value.encode() for name, value in connection.items() if value and name not in FILES.values()}
    by_name |= {name: Path(connection[path]).read_bytes() for name, path in FILES.items() if connection.get(path)}
    by_name["KEYSPACE"] = keyspace.encode()
    data = {name: base64.b64encode(value).decode() for name, value in by_name.items()}
    metadata = {"name": "headgate-connection", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


# ---- what was asked of the API server


@dataclass(frozen=True)
class Asked:
    """One request, from the API server's audit."""

    verb: str
    group: str
    resource: str
    """With its subresource."""
    name: str
    namespace: str
    code: int
    lacks_a_right: bool = False
    """Whether it was refused for what its user may not do: also what ends with its namespace is forbidden."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group} {self.namespace}/{self.name}: {self.code}"


def asked(log: Path, users: frozenset[str]) -> list[Asked]:
    """All that these users asked, that was answered."""
    reports = []
    for file in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):  # including rotated files
        for line in file.read_text().splitlines():
            if OPERATOR not in line:
                continue
            event = json.loads(line)
            if event["user"]["username"] in users and "objectRef" in event:
                reports.append(_asked(event))
    return reports


def _asked(event: Mapping[str, Any]) -> Asked:
    at = event["objectRef"]
    resource = at["resource"] + (f"/{at['subresource']}" if "subresource" in at else "")
    status = event.get("responseStatus", {})
    code = status.get("code", 0)
    causes = {cause.get("reason") for cause in status.get("details", {}).get("causes", [])}
    lacks = code in (401, 403) and "NamespaceTerminating" not in causes
    name, namespace = at.get("name", ""), at.get("namespace", "")
    return Asked(event["verb"], at.get("apiGroup", ""), resource, name, namespace, code, lacks)
