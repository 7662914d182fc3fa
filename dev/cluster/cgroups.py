"""The cgroup of a cluster: every process of it starts in it, so that ending it ends exactly these.

Both kinds of hierarchy: v1 (one tree per controller) and v2 (one tree). Works without systemd. A process can leave
its cgroup only if root moves it; no process of a cluster does that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local.processes import wait_until

ROOT = Path("/sys/fs/cgroup")
# The group of control plane and runtime, next to the kubelet's own `kubepods`.
SYSTEM = "system"
_NEEDED_V2 = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def is_v2(root: Path = ROOT) -> bool:
    """Whether there is one tree for all controllers."""
    return (root / "cgroup.controllers").exists()


def trees(root: Path = ROOT) -> list[Path]:
    """The top of every hierarchy in which a cluster has a cgroup."""
    if is_v2(root):
        return [root]
    return sorted({path.resolve() for path in root.iterdir() if (path / "cgroup.procs").exists()})


def make(name: str, root: Path = ROOT) -> None:
    """Make it in every hierarchy."""
    for tree in trees(root):
        group = tree / name
        group.mkdir(exist_ok=True)
        if is_v2(root):
            switch_on(missing_below(group), group)
        _copy_cpuset(tree, group)
        (group / SYSTEM).mkdir(exist_ok=True)
        _copy_cpuset(group, group / SYSTEM)


def missing_at_the_top(root: Path = ROOT) -> tuple[str, ...]:
    """Controllers that have to be switched on before any cluster can have a cgroup (v2)."""
    return missing_below(root) if is_v2(root) else ()


def missing_below(group: Path) -> tuple[str, ...]:
    """Controllers that a kubelet needs, and that children of a v2 group do not have yet."""
    offered = (group / "cgroup.controllers").read_text().split()
    there = (group / "cgroup.subtree_control").read_text().split()
    return tuple(name for name in _NEEDED_V2 if name in offered and name not in there)


def switch_on(controllers: Iterable[str], group: Path = ROOT) -> None:
    """Let children of a v2 group have controllers."""
    for name in controllers:
        (group / "cgroup.subtree_control").write_text(f"+{name}")


def switch_off(controllers: Iterable[str], root: Path = ROOT) -> None:
    """Undo `switch_on` at the top, where no other group depends on it."""
    for name in controllers:
        try:
            (root / "cgroup.subtree_control").write_text(f"-{name}")
        except OSError:
            continue  # another group uses it by now


def _copy_cpuset(parent: Path, group: Path) -> None:
    """A v1 cpuset starts empty and takes no process until it is filled."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not is_v2(parent) and (parent / file).exists() and not (group / file).read_text().strip():
            (group / file).write_text((parent / file).read_text())


def enter(name: str, argv: list[str], root: Path = ROOT) -> list[str]:
    """The same command, started in the cgroup: the shell moves itself into it and becomes the command."""
    tree = membership_tree(root)
    return ["/bin/sh", "-c", f'echo $$ >"{tree / name / SYSTEM / "cgroup.procs"}" && exec "$@"', "sh", *argv]


def membership_tree(root: Path = ROOT) -> Path:
    """The hierarchy by which a process is known as ours."""
    if is_v2(root):
        return root
    for name in ("pids", "memory", "cpu"):
        if (root / name / "cgroup.procs").exists():
            return (root / name).resolve()
    return trees(root)[0]


def members(name: str, root: Path = ROOT) -> set[int]:
    """Every process in it, and in the groups below it, in any hierarchy."""
    matches: set[int] = set()
    for tree in trees(root):
        for file in (tree / name).glob("**/cgroup.procs"):
            try:
                matches.update(int(pid) for pid in file.read_text().split())
            except OSError:
                continue  # the group was removed meanwhile
    return matches - {0}


def end(name: str, root: Path = ROOT) -> None:
    """Kill its remaining processes and remove it; a missing one is removed already."""

    def empty() -> bool:
        pids = members(name, root)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not pids

    if not wait_until(empty, timeout_s=20):
        raise EnvironmentProblem(
            "processes survive SIGKILL",
            remedy="they hang in the kernel: check `cat /proc/PID/stack`, then try again",
            pids=sorted(members(name, root)),
        )
    for tree in trees(root):
        _remove(tree / name)


def _remove(group: Path) -> None:
    if not group.exists():
        return
    for path in sorted((path for path in group.glob("**/") if path.is_dir()), key=lambda path: -len(path.parts)):
        # The kernel may need a short time after the last process has gone.
        wait_until(lambda path=path: _removed(path), timeout_s=5)  # type: ignore[misc]


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
