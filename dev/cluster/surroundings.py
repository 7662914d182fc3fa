"""Collects this machine's capabilities for a cluster. Changes nothing, and runs each check within a time limit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.cluster import cgroups
from dev.cluster.choice import Machine, Mode
from dev.cluster.golang import build, go_version
from dev.cluster.programs import FOR_A_NODE, HYPERKUBE, WITHOUT_ROOT, is_built

_A_NODE_NEEDS = ("nsenter", "unshare", "mount")


def inspect_machine(context: str | None, wanted: Mode | None) -> Machine:
    """The machine's state."""
    go = answer_of(["go", "version"]) if shutil.which("go") else None
    return Machine(
        context=context,
        wanted=wanted,
        contexts=read_contexts() if context is not None else (),
        docker_runs=docker_runs(),
        has_kind=shutil.which("kind") is not None,
        has_k3d=shutil.which("k3d") is not None,
        is_root=os.geteuid() == 0,
        is_linux=sys.platform == "linux",
        has_cgroups=cgroups.ROOT.exists() and bool(cgroups.trees()),
        missing=tuple(name for name in _A_NODE_NEEDS if shutil.which(name) is None),
        go=go_version(go) if go is not None else None,
        built_node=all(is_built(program) for program in FOR_A_NODE),
        built_kwok=all(is_built(program) for program in WITHOUT_ROOT),
    )


def docker_runs() -> bool:
    """Whether a Docker engine of the machine's own runs."""
    return shutil.which("docker") is not None and answers(["docker", "info"])


def find_kubectl() -> str | None:
    """The user's own kubectl, or the one we have built."""
    result = shutil.which("kubectl")
    if result is None and is_built(HYPERKUBE):
        return str(build(HYPERKUBE) / "kubectl")
    return result


def read_contexts() -> tuple[str, ...]:
    """The contexts in the user's kubeconfig."""
    kubectl = find_kubectl()
    if kubectl is None:
        return ()
    answer = answer_of([kubectl, "config", "get-contexts", "-o", "name"])
    return tuple((answer or "").split())


def answers(argv: Sequence[str]) -> bool:
    """Whether the command succeeds within a few seconds."""
    return answer_of(argv) is not None


def answer_of(argv: Sequence[str], *, timeout_s: float = 10) -> str | None:
    """A command's output, if it succeeds in time."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=Path("/"))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
