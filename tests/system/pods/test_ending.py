"""`down` ends everything that `up` starts: nothing is left of a cluster, whatever happened to it in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.cluster import cgroups, lifecycle, mounts, node
from dev.cluster.plan import Plan
from dev.cluster.settings import PAUSE_IMAGE
from dev.cluster.state import Cluster, directory_of, read_cluster
from dev.servers import namespaces
from dev.servers.namespaces import ip
from headgate.errors import EnvironmentProblem
from headgate.local.processes import Identity, wait_until

NAME = "ending"
MOUNT_POINTS = ("/run/containerd", "/var/log/containers", mounts.KUBELET, "/var/lib/cni")
KERNEL_SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
)

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a node of its own"),
]


@dataclass(frozen=True)
class Traces:
    """Traces that a cluster could leave on this machine. Others share it, so each trace carries its owner's name."""

    processes: tuple[str, ...]
    mounts: tuple[str, ...]
    namespaces: tuple[str, ...]
    cgroups: tuple[str, ...]
    routes: tuple[str, ...]
    links: tuple[str, ...]
    directories: tuple[str, ...]
    kernel_settings: tuple[str, ...]


def traces_of(plan: Plan) -> Traces:
    """The traces of a cluster with that plan."""
    ours = (plan.namespace, plan.cgroup, str(plan.directory))
    networks = tuple(str(network) for network in plan.networks)
    return Traces(
        processes=tuple(f"{pid} {line}" for pid, line in processes() if any(mark in line for mark in ours)),
        mounts=tuple(line for line in Path("/proc/mounts").read_text().splitlines() if any(m in line for m in ours)),
        namespaces=tuple(line for line in ip("netns", "list").splitlines() if line.split()[0] == plan.namespace),
        cgroups=tuple(str(path) for path in cgroups.ROOT.glob(f"**/{plan.cgroup}")),
        routes=tuple(line for line in ip("route", "show", "table", "all").splitlines() if is_of(networks, line)),
        links=tuple(line for line in ip("-brief", "link").splitlines() if line.startswith(plan.host_side)),
        directories=tuple(
            name for name in ("/run/containerd", mounts.KUBELET, "/var/lib/cni") if Path(name).exists()
        ),
        kernel_settings=tuple(Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS),
    )


def is_of(networks: tuple[str, ...], line: str) -> bool:
    return any(network.rpartition(".")[0] + "." in line for network in networks)


def processes() -> Iterator[tuple[int, str]]:
    """Every process with its command line and its cgroups, but this one, and those that only wait to be buried."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            groups = (directory / "cgroup").read_text()
        except OSError:
            continue
        pid = int(directory.name)
        if pid != os.getpid() and Identity.of(pid) is not None:
            yield pid, f"{command} {groups}"


@pytest.fixture
def nothing_before() -> Iterator[Callable[[Plan], Traces]]:
    """The traces of earlier clusters under the plan that the cluster gets. Ends the cluster in any case."""
    lifecycle.down(NAME)
    before = {index: traces_of(Plan(NAME, index, directory_of(NAME))) for index in range(16)}
    yield lambda plan: before[plan.index]
    lifecycle.down(NAME)


def start_with_a_pod() -> Cluster:
    cluster = lifecycle.up(NAME, mode="node")
    kubectl = lifecycle.client(cluster)
    container = {"name": "it", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
    volume = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    mount = {"name": "memory", "mountPath": "/memory"}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "held", "namespace": "default"},
            "spec": {"containers": [{**container, "volumeMounts": [mount]}], "volumes": [volume]},
        }
    )
    kubectl.in_namespace("default").wait_for_pod("held")
    return cluster


def members(cluster: Cluster) -> list[Identity]:
    matches = [Identity.of(pid) for pid in cgroups.members(cluster.plan.cgroup)]
    return [identity for identity in matches if identity is not None]


def test_down_leaves_nothing_behind_and_may_be_called_twice(nothing_before: Callable[[Plan], Traces]) -> None:
    cluster = start_with_a_pod()
    started = members(cluster)
    while_up = traces_of(cluster.plan)
    assert len(started) > len(node.PROCESSES)
    assert (len(while_up.namespaces), len(while_up.links)) == (1, 1)
    assert while_up.kernel_settings == nothing_before(cluster.plan).kernel_settings

    assert lifecycle.down(NAME) is True
    assert [identity for identity in started if identity.alive()] == []
    assert traces_of(cluster.plan) == nothing_before(cluster.plan)
    assert read_cluster(NAME) is None
    assert lifecycle.down(NAME) is False
    assert (directory_of(NAME) / "containerd" / "at-rest").exists(), "the images are kept for the next start"


def test_down_leaves_nothing_behind_after_everything_was_killed(nothing_before: Callable[[Plan], Traces]) -> None:
    cluster = start_with_a_pod()
    started = members(cluster)
    for identity in started:
        if identity.alive():
            os.kill(identity.pid, signal.SIGKILL)
    assert wait_until(lambda: not any(identity.alive() for identity in started), timeout_s=10)
    assert lifecycle.is_up(NAME) is False
    lifecycle.down(NAME)
    assert traces_of(cluster.plan) == nothing_before(cluster.plan)


def test_up_fixes_a_cluster_that_lost_its_kubelet_and_its_runtime(nothing_before: Callable[[Plan], Traces]) -> None:
    cluster = start_with_a_pod()
    for name in ("kubelet", "containerd"):
        pid, _ = (cluster.plan.pids / name).read_text().split()
        os.kill(int(pid), signal.SIGKILL)
    assert wait_until(lambda: not lifecycle.is_up(NAME), timeout_s=10)
    again = lifecycle.up(NAME, mode="node")
    assert lifecycle.is_up(NAME)
    lifecycle.down(NAME)
    assert traces_of(again.plan) == nothing_before(again.plan)


def test_an_up_that_fails_halfway_names_the_process_and_leaves_nothing_behind(
    nothing_before: Callable[[Plan], Traces], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    prepared = node._write_settings

    def spoil(made: node.Node, port: int) -> None:
        prepared(made, port)
        plans.append(made.plan)
        (made.plan.settings / "kubelet.json").write_text('{"kind": "Nonsense"}')

    monkeypatch.setattr(node, "_write_settings", spoil)
    with pytest.raises(EnvironmentProblem) as failed:
        lifecycle.up(NAME, mode="node")
    assert failed.value.facts["process"] == "kubelet"
    assert "Nonsense" in str(failed.value)
    assert traces_of(plans[0]) == nothing_before(plans[0])


@pytest.mark.parametrize("time", ["holder", "containerd", "coredns"])
def test_an_up_that_is_killed_leaves_nothing_that_down_does_not_end(
    nothing_before: Callable[[Plan], Traces], time: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dev.cluster", "up", "--name", NAME, "--mode", "node"],
        env={**os.environ, "PYTHONPATH": "workers:."},
        cwd=Path(__file__).parents[3],
        stdout=subprocess.DEVNULL,
    ) as command:
        reached = wait_until((directory_of(NAME) / "pid" / time).exists, timeout_s=60, every_s=0.002)
        command.kill()
    assert reached
    begun = read_cluster(NAME)
    assert begun is not None
    lifecycle.down(NAME)
    assert traces_of(begun.plan) == nothing_before(begun.plan)


def test_two_clusters_live_side_by_side_and_up_again_keeps_both(
    nothing_before: Callable[[Plan], Traces],
) -> None:
    first = lifecycle.up(NAME, mode="node")
    try:
        second = lifecycle.up(f"{NAME}-two", mode="node")
        assert first.index != second.index
        assert lifecycle.up(NAME, mode="node") == first
        assert lifecycle.up(f"{NAME}-two", mode="node") == second
        lifecycle.down(f"{NAME}-two")
        assert traces_of(second.plan) == nothing_before(second.plan)
        assert lifecycle.client(first).get("namespace", "default")["metadata"]["name"] == "default"
    finally:
        lifecycle.down(f"{NAME}-two", purge=True)


def test_a_lost_link_does_not_send_packets_out_of_the_machine(nothing_before: Callable[[Plan], Traces]) -> None:
    cluster = lifecycle.up(NAME, mode="node")
    plan = cluster.plan
    ip("link", "del", plan.host_side)
    for network in plan.networks:
        asked = subprocess.run(["ip", "route", "get", str(network[7])], capture_output=True, text=True, check=False)
        assert asked.returncode != 0, asked.stdout
    lifecycle.down(NAME)
    assert traces_of(plan) == nothing_before(plan)
    assert not namespaces.exists(plan.namespace)
