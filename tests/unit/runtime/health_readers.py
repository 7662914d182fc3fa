"""How three readers judge a resource by its status: Argo CD by our Lua, kstatus by its rules, Flux by expressions.

Argo CD's Lua is run by a real interpreter of the same version, with nothing but the language; Flux's CEL by another
implementation of CEL. kstatus is written down here as its library has it (generic rules, then Ready).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import yaml
from lupa import lua51

ROOT = Path(__file__).parents[3]
GITOPS = ROOT / "examples" / "gitops"
LIBRARIES = ("os", "io", "require", "package", "debug", "string", "math", "coroutine", "dofile", "loadfile", "print")
"""Libraries of Lua that Argo CD does not provide, or that no check should use."""
Object = Mapping[str, Any]


def argo_health(resource: Object) -> tuple[str, str]:
    """Status and message, as Argo CD shows them."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    names = lua.globals()
    for name in LIBRARIES:
        names[name] = None
    names.obj = lua.table_from(resource, recursive=True)
    result = lua.execute((GITOPS / "argocd" / "health.lua").read_text())
    assert sorted(result) == ["message", "status"]
    return result.status, result.message


def kstatus(resource: Object) -> str:
    """The status by kstatus, by its rules for kinds without rules of their own."""
    metadata, status = resource["metadata"], resource.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata.get("generation")) != metadata.get("generation"):
        return "InProgress"
    for condition in status.get("conditions", ()):
        if condition["status"] == "True" and condition["type"] == "Reconciling":
            return "InProgress"
        if condition["status"] == "True" and condition["type"] == "Stalled":
            return "Failed"
    ready = [condition["status"] for condition in status.get("conditions", ()) if condition["type"] == "Ready"]
    return "InProgress" if ready and ready[0] != "True" else "Current"


@cache
def flux_expressions(kind: str) -> Mapping[str, str]:
    """Those of examples/gitops/flux/shop.yaml."""
    text = yaml.safe_load((GITOPS / "flux" / "shop.yaml").read_text())["spec"]["healthCheckExprs"]
    (result,) = (one for one in text if one["kind"] == kind and one["apiVersion"] == "headgate.io/v1beta1")
    assert sorted(result) == ["apiVersion", "current", "failed", "inProgress", "kind"]
    return {name: result[name] for name in ("inProgress", "failed", "current")}


@cache
def _program(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def flux_health(resource: Object) -> str:
    """The verdict of Flux; an expression that cannot be evaluated is tried again, until the timeout."""
    metadata, status = resource["metadata"], resource.get("status", {})
    if status.get("observedGeneration", metadata.get("generation")) != metadata.get("generation"):
        return "InProgress"
    activation = {name: celpy.json_to_cel(part) for name, part in resource.items()}
    answers = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
    for name, expression in flux_expressions(resource["kind"]).items():
        try:
            if _program(expression).evaluate(activation):
                return answers[name]
        except celpy.CELEvalError:
            return "asked again"
    return "InProgress"
