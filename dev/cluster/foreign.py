"""Clusters that are not ours to start process by process: a context the user names, kind and k3d in Docker.

A cluster in Docker is one of its own, with a kubeconfig of its own: the user's current context is neither used nor
changed.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from dev.cluster.state import Cluster
from headgate.errors import EnvironmentProblem
from headgate.local.progress import step

Runner = Callable[[Sequence[str]], str]


def run(argv: Sequence[str]) -> str:
    """A command's output; its failure in one line."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["(no output)"]
        raise EnvironmentProblem(
            "a program that creates other clusters failed",
            remedy="check its output",
            command=" ".join(argv[:3]),
            answer=lines[-1],
        )
    return done.stdout


def docker_name(cluster: Cluster) -> str:
    """The cluster's name in Docker."""
    return f"headgate-{cluster.name}"


def bring_up(cluster: Cluster, runner: Runner = run) -> Cluster:
    """Make or find it."""
    if cluster.mode == "context":
        return _use_context(cluster, runner)
    name = docker_name(cluster)
    Path(cluster.kubeconfig).parent.mkdir(parents=True, exist_ok=True)
    with step(f"starting a cluster with {cluster.mode}", expect_s=60):
        if cluster.mode == "kind":
            there = runner(["kind", "get", "clusters"]).split()
            if name not in there:
                runner(
                    [
                        "kind",
                        "create",
                        "cluster",
                        "--name",
                        name,
                        "--kubeconfig",
                        cluster.kubeconfig,
                        "--wait",
                        "120s",
                    ]
                )
            else:
                runner(["kind", "export", "kubeconfig", "--name", name, "--kubeconfig", cluster.kubeconfig])
            network = "kind"
        else:
            there = [each["name"] for each in json.loads(runner(["k3d", "cluster", "list", "-o", "json"]))]
            if name not in there:
                switches = ["--kubeconfig-update-default=false", "--kubeconfig-switch-context=false", "--wait"]
                runner(["k3d", "cluster", "create", name, *switches])
            runner(["k3d", "kubeconfig", "write", name, "--output", cluster.kubeconfig])
            network = f"k3d-{name}"
    return cluster.with_(ready=True, host_address=_gateway(network, runner))


def is_up(cluster: Cluster, runner: Runner = run) -> bool:
    """Whether its API server answers."""
    where = [f"--kubeconfig={cluster.kubeconfig}", *([f"--context={cluster.context}"] if cluster.context else [])]
    try:
        runner([cluster.kubectl, *where, "get", "--raw", "/readyz", "--request-timeout=5s"])
    except EnvironmentProblem:
        return False
    return cluster.ready


def take_down(cluster: Cluster, runner: Runner = run) -> None:
    """End what we made; a context that the user named was not made by us, and stays."""
    name = docker_name(cluster)
    if cluster.mode == "kind":
        runner(["kind", "delete", "cluster", "--name", name, "--kubeconfig", cluster.kubeconfig])
    elif cluster.mode == "k3d":
        runner(["k3d", "cluster", "delete", name])
    shutil.rmtree(cluster.directory / "kube", ignore_errors=True)
    (cluster.directory / "kubeconfig").unlink(missing_ok=True)
    cluster.forget()


def load_archive(cluster: Cluster, archive: Path, runner: Runner = run) -> None:
    """Make an image known to its nodes."""
    name = docker_name(cluster)
    if cluster.mode == "kind":
        runner(["kind", "load", "image-archive", str(archive), "--name", name])
    elif cluster.mode == "k3d":
        runner(["k3d", "image", "import", str(archive), "--cluster", name])
    else:
        raise EnvironmentProblem(
            "an image cannot be imported into a cluster that you named",
            remedy="push the archive to a registry that the cluster reads",
            archive=archive,
        )


def _use_context(cluster: Cluster, runner: Runner) -> Cluster:
    """A copy of the user's kubeconfig with that context only, so that a later change of the user's does not affect
    us."""
    own = runner(
        [cluster.kubectl, "config", "view", "--raw", "--minify", "--flatten", f"--context={cluster.context}"]
    )
    path = Path(cluster.kubeconfig)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(own)
    ready = cluster.with_(ready=True)
    if not is_up(ready, runner):
        raise EnvironmentProblem(
            "the cluster of this context does not answer",
            remedy="check it with kubectl, or pass no context",
            context=cluster.context,
        )
    where = f"--context={cluster.context}"
    server = runner(
        [cluster.kubectl, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}", where]
    )
    return cluster.with_(ready=True, host_address=address_towards(server))


def address_towards(server: str) -> str | None:
    """This machine's address as the cluster is likely to see it; no packet is sent to find out."""
    host = urlsplit(server).hostname
    if host is None:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return None
    return None if address.startswith("127.") else address


def _gateway(network: str, runner: Runner) -> str | None:
    """This machine as the containers of a Docker network see it."""
    output = json.loads(runner(["docker", "network", "inspect", network]))
    gateways = [each.get("Gateway", "") for each in output[0].get("IPAM", {}).get("Config") or []]
    return next((gateway for gateway in gateways if gateway and ":" not in gateway), None)
