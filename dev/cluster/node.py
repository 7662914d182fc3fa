"""A local cluster with a real node: control plane, containerd, kubelet, kube-proxy, DNS, in namespaces of their own.

Needs root. Everything lives in one network namespace (`network`), one mount namespace (`mounts`) and one cgroup
(`cgroups`), so that `take_down` can end exactly what `bring_up` started, in any state. The state file is written
before each change that has to be undone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dev.cluster import certificates, cgroups, commons, images, mounts, network, settings
from dev.cluster.api import Api
from dev.cluster.debian import WRAPPERS
from dev.cluster.images import ImageStore
from dev.cluster.plan import API_PORT, Plan, require_short_path
from dev.cluster.state import Cluster
from dev.servers import namespaces
from headgate.errors import EnvironmentProblem
from headgate.local.processes import Server, port_taken, server_ports, wait_until

# The order in which they are asked to end: the components that start pods first, the stores last.
PROCESSES = (
    "kubelet",
    "kube-proxy",
    "coredns",
    "kube-scheduler",
    "kube-controller-manager",
    "containerd",
    "kube-apiserver",
    "etcd",
    "forward",
    "holder",
)
# Ten times the usual duration, for a machine with ten other tasks.
READY_WITHIN_S = 180.0


class Node:
    """A local cluster and its processes."""

    def __init__(self, plan: Plan, programs: dict[str, Path], packages: Path) -> None:
        self.plan = plan
        self.programs = programs
        self.packages = packages
        self.store = ImageStore(plan, packages)
        self.control = settings.for_node(plan, programs["hyperkube"])

    def process(self, name: str, argv: list[str], *, inside: bool = True) -> Server:
        """One of its processes, started or not, in the namespaces of the cluster or outside."""
        plan = self.plan
        if inside:
            holder = (plan.pids / "holder").read_text().split()[0]
            where = [f"--net={namespaces.NAMES / plan.namespace}", f"--mount=/proc/{holder}/ns/mnt"]
            argv = ["nsenter", *where, *argv]
        path = f"{self.packages / WRAPPERS}:{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
        return Server(
            name,
            cgroups.enter(plan.cgroup, argv),
            log=plan.logs / f"{name}.log",
            pid_file=plan.pids / name,
            env={"PATH": path, "LANG": "C.UTF-8"},
        )


def bring_up(node: Node, cluster: Cluster) -> Cluster:
    """Start everything; done when the node is Ready and a pod can be made."""
    plan = node.plan
    require_short_path(plan.directory)
    cluster = _prepare(node, cluster)
    port = cluster.api_port
    assert port is not None, "the port is chosen before the server listens"
    servers = [_start_holder(node)]
    servers += [
        _started(node, "etcd", settings.etcd(node.control)),
        _started(node, "kube-apiserver", settings.api_server(node.control)),
        _started(node, "containerd", ["containerd", "--config", str(plan.settings / "containerd.toml")]),
        _started(node, "forward", _forward(plan, port), inside=False),
    ]
    await_ready("containerd answers", servers, node.store.answers)
    node.store.load_pause(node.programs["pause"] / "pause")
    api = Api(port, plan.certificates)
    await_ready("the API server is ready", servers, api.ready)
    servers += [
        _started(node, "kubelet", settings.kubelet(plan, node.programs["hyperkube"])),
        _started(node, "kube-controller-manager", settings.controllers(node.control)),
        _started(node, "kube-scheduler", settings.scheduler(node.control)),
        _started(node, "kube-proxy", settings.proxy(plan, node.programs["hyperkube"])),
        _started(
            node,
            "coredns",
            [str(node.programs["coredns"] / "coredns"), "-conf", str(plan.settings / "Corefile")],
        ),
    ]
    for wanted in settings.dns_objects(plan):
        api.apply(wanted)
    await_ready("the node is Ready", servers, lambda: node_ready(api, plan.node_name))
    await_ready(
        "pods can be created",
        servers,
        lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
    )
    return cluster.with_(ready=True)


def node_ready(api: Api, name: str) -> bool:
    """Whether the node reports that it runs pods."""
    output = api.get(f"/api/v1/nodes/{name}")
    conditions = (output or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_up(cluster: Cluster) -> bool:
    """Whether all processes of it run."""
    plan = cluster.plan
    return cluster.ready and all(_known(plan, name).alive() for name in PROCESSES)


def take_down(cluster: Cluster, packages: Path | None) -> None:
    """End and remove everything of it; works from any state in between, and again."""
    plan = cluster.plan
    for name in PROCESSES[:5]:
        _ask_to_end(plan, name)
    at_rest = packages is not None and _settle_containers(plan, packages)
    for name in PROCESSES[5:]:
        _ask_to_end(plan, name)
    for name in PROCESSES:
        _known(plan, name).stop(grace_s=5)
    cgroups.end(plan.cgroup)
    with commons.held():
        network.remove(plan)
        commons.release(plan)
    if at_rest:
        images.rest(plan)
    for leftover in ("etcd", "kubelet", "cni", "run", "pod-logs", "etc", "opt", "pid", "volume-plugins"):
        shutil.rmtree(plan.directory / leftover, ignore_errors=True)
    plan.kubeconfig.unlink(missing_ok=True)
    cluster.forget()


def _prepare(node: Node, cluster: Cluster) -> Cluster:
    """Create the namespaces and groups of the processes, each recorded before its creation."""
    plan = node.plan
    for directory in (plan.logs, plan.pids, plan.settings, plan.containerd_socket.parent):
        directory.mkdir(parents=True, exist_ok=True)
    for log in plan.logs.iterdir():
        log.unlink()
    port = plan.preferred_api_port
    if port_taken("127.0.0.1", port):
        port = server_ports(1)[0]
    cluster = cluster.with_(api_port=port)
    cgroups.make(plan.cgroup)
    mounts.write_sources(plan)
    certificates.require_made(
        node.programs["certificates"] / "certificates",
        plan.certificates,
        node_name=plan.node_name,
        addresses=("127.0.0.1", plan.node_address, plan.api_service_address),
    )
    _write_settings(node, port)
    images.claim(plan)
    return cluster


def _write_settings(node: Node, port: int) -> None:
    plan = node.plan

    def write(name: str, content: str) -> None:
        path = plan.settings / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o600)

    inside = f"https://127.0.0.1:{API_PORT}"
    for user in settings.kubeconfig_users(with_node=True):
        known = settings.kubeconfig(plan.certificates, user, inside, plan.node_name)
        write(f"{user}.kubeconfig", json.dumps(known))
    outside = settings.kubeconfig(plan.certificates, "admin", f"https://127.0.0.1:{port}", plan.node_name)
    plan.kubeconfig.touch(mode=0o600)
    plan.kubeconfig.write_text(json.dumps(outside, indent=1))
    plugins = node.packages / "usr" / "lib" / "cni"
    write(
        "containerd.toml",
        settings.containerd_file(
            plan,
            plugins=plugins if plugins.exists() else Path("/usr/lib/cni"),
            snapshotter=choose_snapshotter(Path("/proc/filesystems").read_text(), _kernel_modules()),
        ),
    )
    write("kubelet.json", json.dumps(settings.kubelet_file(plan)))
    write("kube-proxy.json", json.dumps(settings.proxy_file(plan)))
    write("cni/10-headgate.conflist", json.dumps(settings.cni_file(plan)))
    write(settings.AUDIT_POLICY, json.dumps(settings.audit_policy()))
    write("Corefile", settings.dns_file(plan))
    write("resolv.conf", "")


def choose_snapshotter(file_systems: str, modules: str) -> str:
    """How containers share the files of their images: overlays where the kernel has or can load them, else copies."""
    can_overlay = "overlay" in file_systems.split() or "/overlay.ko" in modules
    return "overlayfs" if can_overlay else "native"


def _kernel_modules() -> str:
    """The features that the kernel could load."""
    index = Path("/lib/modules") / os.uname().release / "modules.dep"
    return index.read_text() if index.exists() else ""


def _start_holder(node: Node) -> Server:
    plan = node.plan
    holder = mounts.holder(plan, node.programs["pause"] / "pause")
    holder.argv = cgroups.enter(plan.cgroup, namespaces.enter(plan.namespace, holder.argv))
    holder.start()
    await_ready("the namespaces are created", [holder], lambda: mounts.is_made(holder))
    # In the network namespace, so that the machine's own setting stays as it is.
    _inside(node, ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"], remedy="check what sets /proc/sys read-only")
    _inside(
        node,
        [str(node.packages / WRAPPERS / "iptables"), "--table", "nat", "--list-rules"],
        remedy="use a kernel with nf_tables (4.17 or later, CONFIG_NF_TABLES, CONFIG_NFT_COMPAT), or `--mode kwok`",
    )
    return holder


def _inside(node: Node, argv: list[str], *, remedy: str) -> None:
    """Try a feature in the network namespace that a node requires."""
    command = namespaces.enter(node.plan.namespace, argv)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        answer = (done.stderr.strip().splitlines() or ["(no output)"])[-1]
        raise EnvironmentProblem(
            "this kernel lacks a feature that a node needs", remedy=remedy, command=argv[0], answer=answer
        )


def _forward(plan: Plan, port: int) -> list[str]:
    program = str(Path(__file__).with_name("forward.py"))
    namespace = str(namespaces.NAMES / plan.namespace)
    return [sys.executable, "-I", program, namespace, str(port), "127.0.0.1", str(API_PORT)]


def _started(node: Node, name: str, argv: list[str], *, inside: bool = True) -> Server:
    server = node.process(name, argv, inside=inside)
    server.start()
    return server


def await_ready(what: str, servers: list[Server], holds: Callable[[], bool]) -> None:
    """Until it holds; a process that ends meanwhile is reported with the last errors it wrote."""

    def ended() -> Server | None:
        return next((server for server in servers if not server.alive()), None)

    wait_until(lambda: holds() or ended() is not None, timeout_s=READY_WITHIN_S, every_s=0.03)
    dead = ended()
    if dead is not None:
        raise EnvironmentProblem(
            "a process of the cluster ended during its start",
            remedy=f"its last lines:\n{dead.last_error_lines()}",
            process=dead.name,
            log=dead.log,
        )
    if not holds():
        raise EnvironmentProblem(
            "the cluster did not start",
            remedy=f"the last lines of {servers[-1].name}:\n{servers[-1].last_error_lines()}",
            waited_for=what,
            seconds=READY_WITHIN_S,
        )


def _known(plan: Plan, name: str) -> Server:
    """A process of an earlier command, by its pid file."""
    return Server(name, [], log=plan.logs / f"{name}.log", pid_file=plan.pids / name)


def _ask_to_end(plan: Plan, name: str) -> None:
    server = _known(plan, name)
    identity = server.identity
    if identity is not None and identity.alive():
        os.kill(identity.pid, signal.SIGCONT)
        os.kill(identity.pid, signal.SIGTERM)


def _settle_containers(plan: Plan, packages: Path) -> bool:
    """End every container and forget them in containerd's records, so that only images remain in its store."""
    wait_until(lambda: not _known(plan, "kubelet").alive(), timeout_s=5)
    group = cgroups.membership_tree() / plan.cgroup / "kubepods"
    for file in group.glob("**/cgroup.procs"):
        for pid in map(int, file.read_text().split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    store = ImageStore(plan, packages)
    if not _known(plan, "containerd").alive() or not store.answers():
        return False

    def forgotten() -> bool:
        try:
            store.forget_containers()
        except EnvironmentProblem:
            return False  # it has not noticed yet that a container has ended
        return True

    return wait_until(forgotten, timeout_s=10, every_s=0.1)
