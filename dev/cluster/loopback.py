"""A local cluster without root: a real control plane on 127.0.0.1, and kwok, whose nodes only report that pods run.

Everything an API server does is real: admission, CEL rules, controllers, garbage collection. No container runs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from dev.cluster import certificates, settings
from dev.cluster.api import Api
from dev.cluster.node import await_ready, node_ready
from dev.cluster.settings import ControlPlane
from dev.cluster.state import Cluster
from headgate.local.processes import Server, port_taken, server_ports

PROCESSES = ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
NODE_NAME = "pretended-0"
PREFERRED_API_PORT = 26500
# The lives of nodes and pods, as kwok's module describes them.
STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
)


def bring_up(cluster: Cluster, programs: dict[str, Path]) -> Cluster:
    """Start everything; done when pods can be created and are reported as running."""
    directory = cluster.directory
    for name in ("log", "pid", "etc"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    ports = choose_ports()
    cluster = cluster.with_(api_port=ports[0])
    control = ControlPlane(
        programs["hyperkube"], directory / "pki", directory / "etc", directory / "etcd", *ports, None
    )
    certificates.require_made(
        programs["certificates"] / "certificates", directory / "pki", node_name=NODE_NAME, addresses=("127.0.0.1",)
    )
    _write_settings(cluster, control)
    servers = [
        _started(cluster, "etcd", settings.etcd(control)),
        _started(cluster, "kube-apiserver", settings.api_server(control)),
    ]
    api = Api(ports[0], directory / "pki")
    await_ready("the API server is ready", servers, api.ready)
    servers += [
        _started(cluster, "kube-controller-manager", settings.controllers(control)),
        _started(cluster, "kube-scheduler", settings.scheduler(control)),
        _started(cluster, "kwok", kwok(directory, programs["kwok"])),
    ]
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": pretended_node()["metadata"]})
    api.patch_status(f"/api/v1/nodes/{NODE_NAME}", pretended_node()["status"])
    await_ready("the simulated node is Ready", servers, lambda: node_ready(api, NODE_NAME))
    default = "/api/v1/namespaces/default/serviceaccounts/default"
    await_ready("pods can be created", servers, lambda: api.get(default) is not None)
    return cluster.with_(ready=True)


def choose_ports() -> tuple[int, int, int, int, int]:
    """Ports that nobody listens on, the API server's the same each time where that is possible."""
    api = server_ports(1)[0] if port_taken("127.0.0.1", PREFERRED_API_PORT) else PREFERRED_API_PORT
    others: set[int] = set()
    while len(others) < 4:
        others.add(server_ports(1)[0])
    first, second, third, fourth = sorted(others - {api} or others)
    return api, first, second, third, fourth


def kwok(directory: Path, programs: Path) -> list[str]:
    """The settings that report pods as running: at once, and without any chaos."""
    return [
        str(programs / "kwok"),
        f"--kubeconfig={directory}/kubeconfig",
        *(f"--config={programs}/source/kustomize/stage/{stage}.yaml" for stage in STAGES),
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
    ]


def pretended_node() -> dict[str, Any]:
    """The node that runs nothing."""
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {"type": "kwok", "kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"}
    return {
        "metadata": {"name": NODE_NAME, "labels": labels},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def is_up(cluster: Cluster) -> bool:
    """Whether all processes of it run."""
    return cluster.ready and all(_known(cluster, name).alive() for name in PROCESSES)


def take_down(cluster: Cluster) -> None:
    """End everything of it; works from any state in between, and again."""
    for name in PROCESSES:
        identity = _known(cluster, name).identity
        if identity is not None and identity.alive():
            os.kill(identity.pid, signal.SIGTERM)
    for name in PROCESSES:
        _known(cluster, name).stop(grace_s=5)
    for leftover in ("etcd", "etc", "pid"):
        shutil.rmtree(cluster.directory / leftover, ignore_errors=True)
    (cluster.directory / "kubeconfig").unlink(missing_ok=True)
    cluster.forget()


def _write_settings(cluster: Cluster, control: ControlPlane) -> None:
    server = f"https://127.0.0.1:{control.api_port}"
    (control.settings / settings.AUDIT_POLICY).write_text(json.dumps(settings.audit_policy()))
    users = {user: control.settings / f"{user}.kubeconfig" for user in settings.kubeconfig_users(with_node=False)}
    users["admin"] = cluster.directory / "kubeconfig"
    for user, path in users.items():
        path.touch(mode=0o600)
        known = settings.kubeconfig(control.certificates, user, server, f"headgate-{cluster.name}")
        path.write_text(json.dumps(known, indent=1))


def _started(cluster: Cluster, name: str, argv: list[str]) -> Server:
    server = Server(
        name,
        argv,
        log=cluster.directory / "log" / f"{name}.log",
        pid_file=cluster.directory / "pid" / name,
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(cluster.directory)},
    )
    server.start()
    return server


def _known(cluster: Cluster, name: str) -> Server:
    directory = cluster.directory
    return Server(name, [], log=directory / "log" / f"{name}.log", pid_file=directory / "pid" / name)
