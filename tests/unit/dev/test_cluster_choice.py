"""The choice of a Kubernetes: its order, and the sentence that gives the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.cluster.choice import Choice, Machine, decide_source
from headgate.errors import EnvironmentProblem

GO = (1, 24)
BARE = Machine(is_root=True, go=GO)


@pytest.mark.parametrize(
    ("machine", "mode"),
    [
        (replace(BARE, context="prod", contexts=("prod",), docker_runs=True, has_kind=True), "context"),
        (replace(BARE, docker_runs=True, has_kind=True, has_k3d=True), "kind"),
        (replace(BARE, docker_runs=True, has_k3d=True), "k3d"),
        (replace(BARE, docker_runs=False, has_kind=True), "node"),
        (replace(BARE, docker_runs=True), "node"),
        (replace(BARE, go=None, built_node=True), "node"),
        (replace(BARE, is_root=False), "kwok"),
        (replace(BARE, has_cgroups=False), "kwok"),
        (replace(BARE, missing=("nsenter",)), "kwok"),
        (replace(BARE, is_root=False, go=None, built_kwok=True), "kwok"),
        (replace(BARE, docker_runs=True, has_kind=True, wanted="node"), "node"),
        (replace(BARE, wanted="kwok"), "kwok"),
    ],
)
def test_the_first_that_is_there_is_taken(machine: Machine, mode: str) -> None:
    assert decide_source(machine).mode == mode


def test_a_named_context_is_taken_and_no_other() -> None:
    named = replace(BARE, context="staging", contexts=("prod", "staging"))
    assert decide_source(named) == Choice("context", "you named it", context="staging")


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (BARE, "no Docker engine runs, and this user is root: built from source, with a real node"),
        (replace(BARE, docker_runs=True), "neither kind nor k3d is installed"),
        (replace(BARE, is_root=False), "this user is not root"),
        (replace(BARE, is_root=False), "NO CONTAINER RUNS"),
        (replace(BARE, wanted="kwok"), "NO CONTAINER RUNS"),
        (replace(BARE, missing=("nsenter", "ip")), "missing programs: nsenter, ip"),
        (replace(BARE, has_cgroups=False), "no cgroups mounted"),
    ],
)
def test_the_reason_is_reported(machine: Machine, message: str) -> None:
    assert message in decide_source(machine).reason


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (replace(BARE, context="nope", contexts=("prod",)), "available contexts: prod"),
        (replace(BARE, context="nope"), "available contexts: none"),
        (replace(BARE, go=None), "there is no Go"),
        (replace(BARE, go=None), "CONTEXT=name"),
        (replace(BARE, is_linux=False), "on Linux only"),
        (replace(BARE, wanted="kind"), "kind needs a running Docker engine"),
        (replace(BARE, wanted="k3d", docker_runs=True), "k3d installed"),
        (replace(BARE, wanted="node", is_root=False), "become root"),
        (replace(BARE, wanted="node", go=None), "there is no Go"),
    ],
)
def test_where_there_can_be_none_the_remedy_is_one_line(machine: Machine, message: str) -> None:
    with pytest.raises(EnvironmentProblem) as refused:
        decide_source(machine)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
