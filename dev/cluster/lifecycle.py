"""Up, down, status: one cluster by its name, of any kind. The functions of the command line and the fixtures.

`up` on a running cluster reports so and changes nothing; `down` may be called at any time, and repeatedly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev.cluster import commons, foreign, loopback, network, node
from dev.cluster.choice import Choice, Mode, decide_source
from dev.cluster.debian import NODE, require_ip, unpacked
from dev.cluster.golang import Program
from dev.cluster.images import ImageStore
from dev.cluster.kubectl import Kubectl
from dev.cluster.oci import Image, write_image
from dev.cluster.plan import Plan
from dev.cluster.programs import FOR_A_NODE, HYPERKUBE, WITHOUT_ROOT, require_built
from dev.cluster.state import DEFAULT_NAME, Cluster, directory_of, one_at_a_time, read_cluster, read_clusters
from dev.cluster.surroundings import find_kubectl, inspect_machine
from headgate.errors import Conflict, EnvironmentProblem
from headgate.local.cache import require_disk_space
from headgate.local.progress import duration, print_progress

# etcd takes 128 MB for its log at once; the rest is for images and logs.
NEEDS_MB = 700


def up(name: str = DEFAULT_NAME, *, context: str | None = None, mode: Mode | None = None) -> Cluster:
    """The cluster of that name, started unless it is up."""
    with one_at_a_time(name):
        there = read_cluster(name)
        if there is not None and _is_up(there):
            return _keep(there, context, mode)
        if there is not None:
            print_progress(f"cluster {name}: stopping what is left of an earlier one")
            _take_down(there)
        choice = decide_source(inspect_machine(context, mode))
        print_progress(f"cluster {name}: {describe_choice(choice)}")
        started = time.monotonic()
        cluster = _start(name, choice)
        print_progress(f"cluster {name}: up after {duration(time.monotonic() - started)}; {use(cluster)}")
        return cluster


def down(name: str = DEFAULT_NAME, *, purge: bool = False) -> bool:
    """Stop it; returns whether there was anything to stop. `purge` deletes its images too."""
    with one_at_a_time(name):
        there = read_cluster(name)
        if there is not None:
            started = time.monotonic()
            _take_down(there)
            print_progress(f"cluster {name}: stopped ({duration(time.monotonic() - started)})")
        if purge:
            shutil.rmtree(directory_of(name), ignore_errors=True)
        return there is not None


def is_up(name: str = DEFAULT_NAME) -> bool:
    """Whether it exists and answers."""
    there = read_cluster(name)
    return there is not None and _is_up(there)


def build(mode: Mode | None = None, *, extras: Sequence[Program] = ()) -> Choice:
    """Have in the cache all that `up` would need, and further programs, without starting anything."""
    choice = decide_source(inspect_machine(None, mode))
    print_progress(f"  {describe_choice(choice)}")
    if choice.mode == "node":
        # In parallel: the builds need the processor, and this the network.
        pool = ThreadPoolExecutor(1)
        packages = pool.submit(unpacked, NODE)
        pool.shutdown(wait=False)
        require_built([*FOR_A_NODE, *extras])
        packages.result()
        require_ip()
    elif choice.mode == "kwok":
        require_built([*WITHOUT_ROOT, *extras])
    else:
        require_built(extras)
    return choice


def load(cluster: Cluster, image: Image) -> bool:
    """Make an image known to the cluster; the answer is whether anything had to be sent."""
    if cluster.mode == "node":
        return ImageStore(cluster.plan, unpacked(NODE)).load(image)
    with tempfile.TemporaryDirectory(prefix="headgate-image-") as scratch:
        archive = Path(scratch) / "image.tar"
        write_image(archive, image)
        load_archive(cluster, archive)
    return True


def load_archive(cluster: Cluster, archive: Path) -> None:
    """Make the images of an archive known to the cluster."""
    if cluster.mode == "node":
        ImageStore(cluster.plan, unpacked(NODE)).load_archive(archive)
    elif cluster.mode == "kwok":
        raise EnvironmentProblem(
            "this cluster runs no containers, and so takes no images",
            remedy="start one as root, or with Docker and kind",
            name=cluster.name,
        )
    else:
        foreign.load_archive(cluster, archive)


def client(cluster: Cluster) -> Kubectl:
    """A client for it."""
    return Kubectl(cluster.kubectl, cluster.kubeconfig, cluster.context)


def describe_choice(choice: Choice) -> str:
    """The choice as a person reads it."""
    return f"{choice.context or choice.mode}: {choice.reason}"


def use(cluster: Cluster) -> str:
    """How to use it."""
    return f"export KUBECONFIG={cluster.kubeconfig}"


def _keep(there: Cluster, context: str | None, mode: Mode | None) -> Cluster:
    if (context is not None and there.context != context) or (mode is not None and there.mode != mode):
        raise Conflict(
            "another cluster of this name is already up",
            remedy=f"stop it first: python3 -m dev.cluster down --name {there.name}",
            name=there.name,
            is_a=there.context or there.mode,
        )
    print_progress(f"cluster {there.name}: already up ({there.context or there.mode}); {use(there)}")
    return there


def _is_up(cluster: Cluster) -> bool:
    if cluster.mode == "node":
        return node.is_up(cluster)
    return loopback.is_up(cluster) if cluster.mode == "kwok" else foreign.is_up(cluster)


def _start(name: str, choice: Choice) -> Cluster:
    cluster = Cluster(
        name=name,
        mode=choice.mode,
        reason=choice.reason,
        ready=False,
        kubeconfig=str(directory_of(name) / "kubeconfig"),
        kubectl=find_kubectl() or "",
        context=choice.context,
    )
    if choice.mode in ("node", "kwok"):
        require_disk_space(cluster.directory, NEEDS_MB)
    try:
        if choice.mode == "node":
            return _start_node(cluster)
        if choice.mode == "kwok":
            programs = require_built(WITHOUT_ROOT)
            return loopback.bring_up(cluster.with_(kubectl=_our_kubectl()), programs)
        if not cluster.kubectl:
            cluster = cluster.with_(kubectl=str(require_built([HYPERKUBE])["hyperkube"] / "kubectl"))
        return foreign.bring_up(cluster.write())
    except BaseException:
        # Half a cluster is of no use to anybody; its logs stay.
        begun = read_cluster(name)
        if begun is not None:
            _take_down(begun)
        raise


def _start_node(cluster: Cluster) -> Cluster:
    programs = require_built(FOR_A_NODE)
    packages = unpacked(NODE)
    require_ip()
    with commons.held():
        others = {each.index for each in read_clusters() if each.index is not None and each.name != cluster.name}
        plan = Plan(cluster.name, network.choose_index(others), cluster.directory)
        cluster = cluster.with_(
            index=plan.index,
            namespace=plan.namespace,
            host_address=plan.host_address,
            kubectl=_our_kubectl(),
        )
        commons.prepare()
        network.make(plan)
    return node.bring_up(node.Node(plan, programs, packages), cluster)


def _our_kubectl() -> str:
    return str(require_built([HYPERKUBE])["hyperkube"] / "kubectl")


def _take_down(cluster: Cluster) -> None:
    if cluster.mode == "node":
        if os.geteuid() != 0:
            raise EnvironmentProblem(
                "only root can stop what root has started", remedy="run it with sudo", name=cluster.name
            )
        _take_node_down(cluster)
    elif cluster.mode == "kwok":
        loopback.take_down(cluster)
    else:
        foreign.take_down(cluster)


def _take_node_down(cluster: Cluster) -> None:
    if cluster.index is None:
        cluster.forget()  # it ended before anything was made
        return
    try:
        require_ip()
        packages = unpacked(NODE)
    except (EnvironmentProblem, subprocess.SubprocessError):
        packages = None  # the cache was deleted meanwhile: ending works without, but images are not kept
    node.take_down(cluster, packages)


def describe(cluster: Cluster) -> str:
    """One line for `status`."""
    state = "up" if _is_up(cluster) else "not up, but not stopped either"
    address = f", pods reach this machine at {cluster.host_address}" if cluster.host_address else ""
    kind = f"{cluster.context or cluster.mode}: {cluster.reason}"
    return f"cluster {cluster.name}: {state} ({kind}){address}; {use(cluster)}"
