"""Network namespaces of our own: hosts that are on this machine only, with links that can be cut, also one way.

Every object of this module carries the name of its creator, which removes it. Clients that connect to a host in a
namespace run in a namespace too (`enter`), so that no packet can leave the machine by a missing route. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import EnvironmentProblem

NAMES = Path("/run/netns")


def require_root(what: str) -> None:
    """Refuse with one line where the kernel would refuse with many."""
    if os.geteuid() != 0:
        raise EnvironmentProblem(
            "Root is needed",
            remedy=f"run it as root (sudo) to use {what}; the rest works without root",
            what=what,
        )


def ip(*arguments: str, namespace: str | None = None, quiet: bool = False) -> str:
    """Run `ip`, in a namespace if one is named; with `quiet` a refusal is not an error."""
    where = ["-n", namespace] if namespace is not None else []
    done = subprocess.run(["ip", *where, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 and not quiet:
        raise EnvironmentProblem(
            "The kernel refused a network change",
            remedy="check the kernel's answer",
            command=" ".join(["ip", *where, *arguments]),
            answer=done.stderr.strip(),
        )
    return done.stdout


def exists(namespace: str) -> bool:
    """Whether the namespace exists."""
    return (NAMES / namespace).exists()


def add(namespace: str) -> None:
    """Make a namespace with its own loopback up."""
    require_root("network namespaces")
    ip("netns", "add", namespace)
    ip("link", "set", "lo", "up", namespace=namespace)


def delete(namespace: str) -> None:
    """Remove it; a missing one is removed already."""
    if exists(namespace):
        ip("netns", "del", namespace)


def enter(namespace: str, argv: Sequence[str]) -> list[str]:
    """The same command, run in the namespace. (`ip netns exec` would remount /sys and hide the cgroups.)"""
    return ["nsenter", f"--net={NAMES / namespace}", *argv]


_CLONE_NEWNET = 0x40000000


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move the calling thread into the namespace, and back: sockets opened meanwhile stay in it for life.

    Threads started meanwhile start in it too; threads that run already do not move.
    """
    require_root("network namespaces")
    with Path("/proc/thread-self/ns/net").open("rb") as home, (NAMES / namespace).open("rb") as other:
        _set_namespace(other.fileno())
        try:
            yield
        finally:
            _set_namespace(home.fileno())


def _set_namespace(descriptor: int) -> None:
    # os.setns came with Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise EnvironmentProblem(
            "The kernel refused a network namespace", answer=os.strerror(code), remedy="run it as root"
        )
