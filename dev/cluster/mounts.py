"""The mount namespace of a local cluster: every mount of a pod vanishes with the last process in it.

Mounts of runtime and kubelet are never visible to the rest of the machine, so that nothing has to be unmounted, not
even after a kill -9 of everything. The few directories with fixed names in their sources are covered by private ones.
So are the kernel settings that a kubelet would change for the whole machine: it reads the wanted values in files of
ours, and the machine keeps its own.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from dev.cluster.plan import Plan
from headgate.local.processes import Server

# The values that kubelet 1.34 requires (pkg/kubelet/cm, setupKernelTunables).
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_COVERED_BY_MEMORY = ("/run/containerd", "/var/log/containers")
KUBELET = "/var/lib/kubelet"
_COVERED_BY_DIRECTORY = {KUBELET: "kubelet", "/var/lib/cni": "cni"}


def missing_mount_points() -> tuple[str, ...]:
    """The directories that have to be made before they can be mounted on, the outermost first."""
    missing: list[str] = []
    for wanted in (*_COVERED_BY_MEMORY, *_COVERED_BY_DIRECTORY):
        path = Path(wanted)
        missing += [str(each) for each in reversed((path, *path.parents)) if not each.exists()]
    return tuple(dict.fromkeys(missing))


def holder(plan: Plan, pause: Path) -> Server:
    """The process that makes the namespace of mounts and keeps it while the cluster is up."""
    return Server(
        "holder",
        ["unshare", "--mount", "--propagation", "slave", "/bin/sh", "-ec", script(plan, pause)],
        log=plan.logs / "holder.log",
        pid_file=plan.pids / "holder",
    )


def script(plan: Plan, pause: Path) -> str:
    """The mounts, in their required order."""
    lines = ["mount --make-rshared /"]
    lines += [f"mount -t tmpfs -o mode=0711 headgate {directory}" for directory in _COVERED_BY_MEMORY]
    for directory, name in _COVERED_BY_DIRECTORY.items():
        lines.append(f"mount --bind {shlex.quote(str(plan.directory / name))} {directory}")
    for setting in _KERNEL_SETTINGS:
        ours = plan.settings / "kernel" / setting
        lines.append(f"[ ! -e /proc/sys/{setting} ] || mount --bind {shlex.quote(str(ours))} /proc/sys/{setting}")
    lines.append(f"exec {shlex.quote(str(pause))}")
    return "\n".join(lines)


def write_sources(plan: Plan) -> None:
    """Create the sources of the mounts."""
    for ours in _COVERED_BY_DIRECTORY.values():
        (plan.directory / ours).mkdir(parents=True, exist_ok=True)
    for setting, value in _KERNEL_SETTINGS.items():
        file = plan.settings / "kernel" / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


def is_made(server: Server) -> bool:
    """Whether everything is mounted: the shell has become the process that only waits."""
    try:
        return Path(f"/proc/{server.pid}/comm").read_text().strip() == "pause"
    except FileNotFoundError:
        return False
