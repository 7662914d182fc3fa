"""The choice of a Kubernetes and its reason: decided from the machine's state, in a predictable order.

    1. the context that the user names
    2. kind, or k3d, where a Docker engine runs: a cluster of its own, never the user's current one
    3. built from source, with root: a real control plane and a real node
    4. built from source, without root: a real control plane, and nodes that only report that pods run

Pure: `look_around` in surroundings.py collects the machine's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headgate.errors import EnvironmentProblem

Mode = Literal["context", "kind", "k3d", "node", "kwok"]
MODES: tuple[Mode, ...] = ("context", "kind", "k3d", "node", "kwok")


NOTHING_RUNS = "a real API server whose nodes only report that pods run: NO CONTAINER RUNS"


@dataclass(frozen=True)
class Machine:
    """The machine's state."""

    context: str | None = None
    wanted: Mode | None = None
    contexts: tuple[str, ...] = ()
    docker_runs: bool = False
    has_kind: bool = False
    has_k3d: bool = False
    is_root: bool = False
    is_linux: bool = True
    has_cgroups: bool = True
    # Missing programs that a node requires.
    missing: tuple[str, ...] = ()
    go: tuple[int, int] | None = None
    built_node: bool = False
    built_kwok: bool = False


@dataclass(frozen=True)
class Choice:
    """The choice, and a sentence with its reason."""

    mode: Mode
    reason: str
    context: str | None = None


def decide_source(machine: Machine) -> Choice:
    """The cluster to use; refuses with one line where there can be none."""
    if machine.context is not None:
        return _decide_context(machine)
    if machine.wanted is not None:
        return _decide_wanted(machine, machine.wanted)
    if machine.docker_runs and machine.has_kind:
        return Choice("kind", "a Docker engine runs and kind is installed: a cluster of its own in it")
    if machine.docker_runs and machine.has_k3d:
        return Choice("k3d", "a Docker engine runs and k3d is installed: a cluster of its own in it")
    _require_linux(machine)
    if obstacle_to_node(machine) is None:
        _require_go(machine, machine.built_node)
        return Choice("node", f"{_no_docker(machine)}, and this user is root: built from source, with a real node")
    _require_go(machine, machine.built_kwok)
    return Choice(
        "kwok",
        f"{_no_docker(machine)}, and {obstacle_to_node(machine)}: built from source, {NOTHING_RUNS}",
    )


def obstacle_to_node(machine: Machine) -> str | None:
    """Why this machine cannot have a node of its own, if so."""
    if not machine.is_root:
        return "this user is not root"
    if not machine.has_cgroups:
        return "this machine has no cgroups mounted"
    if machine.missing:
        return f"missing programs: {', '.join(machine.missing)}"
    return None


def _decide_context(machine: Machine) -> Choice:
    if machine.context not in machine.contexts:
        known = ", ".join(machine.contexts) or "none"
        raise EnvironmentProblem(
            "the context is not in your kubeconfig",
            remedy=f"available contexts: {known} (KUBECONFIG names the file)",
            context=machine.context,
        )
    return Choice("context", "you named it", context=machine.context)


def _decide_wanted(machine: Machine, wanted: Mode) -> Choice:
    reason = "you requested it"
    if wanted == "context":
        raise EnvironmentProblem("no context was named", remedy="name it: --context NAME")
    if wanted in ("kind", "k3d"):
        installed = machine.has_kind if wanted == "kind" else machine.has_k3d
        if not (machine.docker_runs and installed):
            raise EnvironmentProblem(
                f"{wanted} needs a running Docker engine, and {wanted} installed",
                remedy="start Docker, and install it",
            )
        return Choice(wanted, reason)
    _require_linux(machine)
    obstacle = obstacle_to_node(machine)
    if wanted == "node" and obstacle is not None:
        raise EnvironmentProblem(
            "a node cannot run on this machine",
            remedy="become root (sudo), or take `--mode kwok`, which runs no containers",
            because=obstacle,
        )
    _require_go(machine, machine.built_node if wanted == "node" else machine.built_kwok)
    return Choice(wanted, reason if wanted == "node" else f"{reason}; {NOTHING_RUNS}")


def _no_docker(machine: Machine) -> str:
    if not machine.docker_runs:
        return "no Docker engine runs"
    return "a Docker engine runs, but neither kind nor k3d is installed"


def _require_linux(machine: Machine) -> None:
    if not machine.is_linux:
        raise EnvironmentProblem(
            "Kubernetes can be built and run from source on Linux only",
            remedy="start Docker and install kind, or name a cluster you have: CONTEXT=name",
        )


def _require_go(machine: Machine, built: bool) -> None:
    if not built and machine.go is None:
        raise EnvironmentProblem(
            "Kubernetes has to be built once, and there is no Go",
            remedy="install Go 1.24 or later (https://go.dev/dl), or start Docker and install kind,"
            " or name a cluster you have: CONTEXT=name",
        )
