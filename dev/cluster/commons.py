"""The shared objects of all local clusters of this machine: created by the first that needs them, removed by the
last.

Another cluster may mount on a mount point of one cluster, and its removal would remove that mount. So created objects
are recorded in one file, and undone only when no other cluster is left. All under one lock of the machine.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dev.cluster import cgroups, mounts
from dev.cluster.plan import Plan
from dev.cluster.state import state_root
from dev.servers import namespaces
from headgate.errors import EnvironmentProblem
from headgate.local.processes import wait_until


@dataclass(frozen=True)
class Commons:
    """The objects created for clusters in general, so far."""

    directories: tuple[str, ...] = ()
    # Whether the directory of network namespaces was first mounted for us.
    mounted_namespaces: bool = False
    # Controllers of the root cgroup (v2) that were switched on for us.
    controllers: tuple[str, ...] = ()


@contextmanager
def held() -> Iterator[None]:
    """One process of this machine at a time; the kernel frees the name when its holder ends, however that ends."""
    with socket.socket(socket.AF_UNIX) as lock:

        def free() -> bool:
            try:
                lock.bind("\0headgate-cluster-commons")
            except OSError:
                return False
            return True

        if not wait_until(free, timeout_s=60):
            raise EnvironmentProblem(
                "another command that starts or stops a cluster does not finish", remedy="try again"
            )
        yield


def prepare() -> None:
    """Create missing ones, each recorded before its creation; the caller holds `held`."""
    there = read()
    there = _note(replace(there, mounted_namespaces=there.mounted_namespaces or not is_mounted(namespaces.NAMES)))
    missing = tuple(path for path in mounts.missing_mount_points() if path not in there.directories)
    there = _note(replace(there, directories=there.directories + missing))
    for directory in there.directories:
        Path(directory).mkdir(exist_ok=True)
    switched = tuple(name for name in cgroups.missing_at_the_top() if name not in there.controllers)
    _note(replace(there, controllers=there.controllers + switched))
    cgroups.switch_on(switched)


def release(plan: Plan) -> None:
    """Undo it when the cluster of `plan`, which has ended, was the last; `held` by the caller."""
    if others(plan):
        return
    there = read()
    cgroups.switch_off(there.controllers)
    # The innermost first; one that another process has filled meanwhile stays.
    for directory in reversed(there.directories):
        try:
            Path(directory).rmdir()
        except OSError:
            continue
    if there.mounted_namespaces:
        _unmount_namespaces()
    _file().unlink(missing_ok=True)


def others(plan: Plan) -> list[str]:
    """The other local clusters of this machine, of any user."""
    result = (path.name for path in namespaces.NAMES.glob("headgate-[0-9]*"))
    return sorted(name for name in result if name != plan.namespace)


def read() -> Commons:
    """The objects created so far."""
    try:
        output = json.loads(_file().read_text())
    except FileNotFoundError:
        return Commons()
    return Commons(tuple(output["directories"]), output["mounted_namespaces"], tuple(output["controllers"]))


def is_mounted(directory: Path) -> bool:
    """Whether it is a mount point; a directory mounted on itself shows in the kernel's list only."""
    return any(line.split()[1] == str(directory) for line in Path("/proc/self/mounts").read_text().splitlines())


def _note(commons: Commons) -> Commons:
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(commons)))
    partial.rename(file)
    return commons


def _file() -> Path:
    return state_root() / "commons.json"


def _unmount_namespaces() -> None:
    """The kernel refuses while any namespace uses it, and then it rightly stays."""
    if is_mounted(namespaces.NAMES) and not any(namespaces.NAMES.iterdir()):
        done = subprocess.run(["umount", str(namespaces.NAMES)], capture_output=True, check=False)
        if done.returncode == 0:
            namespaces.NAMES.rmdir()
