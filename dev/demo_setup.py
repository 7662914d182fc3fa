"""The parts under the demo: a Kubernetes, a Cassandra, the image, the chart. Each is started and stopped by this
module.

Knows nothing of the demo's content (demo_day.py).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.cluster import lifecycle
from dev.cluster.helm import CHART, Helm, helm_program
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import Cluster, state_root
from dev.environment import RUN
from dev.servers.cassandra.connection import read_connection
from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate.local.cassandra.own_cassandra import start_kept
from headgate.local.progress import print_progress, step
from headgate.store.connection_variables import connection_variables

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
VENV = RUN.path
SHOP, BULK = ROOT / "examples" / "shop.yaml", ROOT / "examples" / "spark.yaml"
SYSTEM, RELEASE, SECRET = "headgate-system", "headgate", "headgate-demo"
LOCAL_REGISTRY, LOCAL_TAG = "headgate.local", "dev"
FILES = {"SSL_CA": "ca.crt", "SSL_CERT": "tls.crt", "SSL_KEY": "tls.key"}
"""A file that the environment names, and the key of the Secret that holds it."""
CHART_WITHIN_S = 300
Connection = Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """The user's request: none, or a cluster of the user's and the registry of our image for it."""

    context: str | None = None
    registry: str | None = None
    tag: str | None = None
    spark: bool = False

    def image(self, repository: str) -> dict[str, str]:
        """Of ours, as values of the chart name it."""
        fields = {
            "registry": self.registry or LOCAL_REGISTRY,
            "repository": repository,
            "tag": self.tag or (None if self.registry else LOCAL_TAG),
        }
        return {name: value for name, value in fields.items() if value}

    def require_possible(self) -> None:
        """Predictable failures are reported before anything starts."""
        if self.context is not None and self.registry is None:
            raise InvalidRequest(
                "an image cannot be imported into a cluster that you named",
                remedy="push one (docs/start-platform.md) and name its registry: make demo CONTEXT=... REGISTRY=...",
                context=self.context,
            )


@dataclass(frozen=True)
class Begun:
    """The parts that this demo started, which `down` stops."""

    cluster_started: bool = False
    cassandra_started: bool = False
    crds_made: bool = False
    namespace_made: bool = False

    @staticmethod
    def file() -> Path:
        """Where it is kept."""
        return state_root() / "demo.json"

    def keep(self) -> Begun:
        """For the command that ends it."""
        self.file().parent.mkdir(parents=True, exist_ok=True)
        self.file().write_text(json.dumps(asdict(self)))
        return self

    @classmethod
    def read(cls) -> Begun | None:
        """The record of an earlier `up`."""
        return cls(**json.loads(cls.file().read_text())) if cls.file().exists() else None


def cassandra_directory() -> Path:
    """The demo's own node, data and all; gone with `down`."""
    return state_root() / "demo-cassandra"


# ---- started parts


def start_cassandra(cluster: Cluster) -> tuple[Connection, bool]:
    """The connection, and whether it is a node of ours. CONTACT_POINTS names an existing one."""
    named = connection_variables(os.environ)
    if "CONTACT_POINTS" in named:
        print_progress(f"  using the Cassandra at {named['CONTACT_POINTS']} (CONTACT_POINTS is set)")
        return read_connection(named).environment(), False
    if cluster.host_address is None:
        raise EnvironmentProblem(
            "pods of this cluster cannot reach a Cassandra on this machine",
            remedy="name one that they reach: CONTACT_POINTS, and DATA_CENTER, USERNAME, PASSWORD, USE_SSL, SSL_CA",
            cluster=cluster.context or cluster.mode,
        )
    address = cluster.host_address
    with step(f"start Cassandra at {address}, which both this machine and pods reach", expect_s=10):
        return start_kept(cassandra_directory(), address=address), True


def bring_images(cluster: Cluster, asked: Asked) -> None:
    """The working tree as an image, known to the cluster's node; a cluster of the user's pulls its own."""
    if cluster.mode == "context":
        return
    target, title = ("all", "images of this tree") if asked.spark else ("headgate", "image of this tree")
    with step(f"import the {title} into the cluster", expect_s=90 if asked.spark else 15):
        command = [sys.executable, "-m", "dev.cluster", "image", "--name", cluster.name, "--target", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise EnvironmentProblem("the image could not be created", remedy="check its output", cause=output[-1])


def install_chart(cluster: Cluster, connection: Connection, asked: Asked) -> None:
    """The operator, by Helm, as anybody installs it; its way to Cassandra is a Secret."""
    kubectl = lifecycle.client(cluster)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}, secret_of(connection))
    values = values_for(asked)
    with step("install the chart: helm upgrade --install headgate charts/headgate", expect_s=20):
        helm_for(kubectl).run(
            *("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM),
            *("--wait", "--timeout", f"{CHART_WITHIN_S}s"),
            values=values,
            timeout_s=CHART_WITHIN_S + 30,
        )


def values_for(asked: Asked) -> dict[str, object]:
    """The images, and the file with the connection to Cassandra."""
    values: dict[str, object] = {"image": asked.image("headgate"), "connection": {"existingSecret": SECRET}}
    if asked.spark:
        spark = {"tag": version(), **asked.image("headgate-spark")}
        values["spark"] = {"image": "{registry}/{repository}:{tag}".format_map(spark)}
    return values


def version() -> str:
    """Of this tree, the default tag of a registry's images."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def secret_of(connection: Connection) -> dict[str, object]:
    """The connection as the chart takes it: files' contents instead of their paths."""
    fields = {name: value.encode() for name, value in connection.items() if value and name not in FILES}
    fields |= {key: Path(connection[name]).read_bytes() for name, key in FILES.items() if connection.get(name)}
    data = {name: base64.b64encode(value).decode() for name, value in fields.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM}, "data": data}


def helm_for(kubectl: Kubectl) -> Helm:
    """Helm, with caches and settings in a folder of ours."""
    return Helm(helm_program(), helm_home(), kubectl)


def helm_home() -> Path:
    """Caches and settings of Helm, gone with `down`."""
    return state_root() / "demo-helm"


# ---- ended


def take_out(kubectl: Kubectl, begun: Begun) -> None:
    """The demo's objects in a cluster that stays: the examples, the release, its namespace and kinds."""
    with step("remove the examples and the chart from the cluster", expect_s=30):
        kubectl.run("delete", "--ignore-not-found", "-f", str(BULK), "-f", str(SHOP), timeout_s=180)
        helm = helm_for(kubectl)
        if RELEASE in helm.run("list", "--namespace", SYSTEM, "--short", "--all").split():
            helm.run("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
        kubectl.run("delete", "secret", SECRET, "--namespace", SYSTEM, "--ignore-not-found")
        if begun.namespace_made:
            kubectl.run("delete", "namespace", SYSTEM, "--ignore-not-found", timeout_s=120)
        if begun.crds_made:
            kubectl.run("delete", "--ignore-not-found", "-f", str(CRDS))
