"""A resource's life (tests/system/gitops/test_gitops_life.py) changes each mutable field, and tries each immutable
one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headgate.api.read.parse import check_resource
from tests.kit.page_examples import ROOT
from tests.system.pods.life_changes import BORN, CHANGES, IMMUTABLE, NOT_CHANGED, leaves

PLURAL = {"Queue": "queues", "Counter": "counters"}


def schema(kind: str) -> dict[str, Any]:
    """Of the spec, in the CRD."""
    crd = yaml.safe_load((ROOT / "crds" / f"{PLURAL[kind]}.headgate.io.yaml").read_text())
    decoded: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return decoded


def fields(node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every field that a spec may have."""
    if node.get("type") == "array" and "properties" in node["items"]:
        yield from fields(node["items"], f"{path}[]")
    elif "properties" in node and "x-kubernetes-preserve-unknown-fields" not in node:
        for name, child in node["properties"].items():
            yield from fields(child, f"{path}.{name}" if path else name)
    else:
        yield path


def fixed(kind: str) -> set[str]:
    """Fields that a rule on change holds."""
    rules = schema(kind)["x-kubernetes-validations"]
    return {rule["fieldPath"].removeprefix(".") for rule in rules if "oldSelf" in rule["rule"]}


def document(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "emails", "namespace": "shop"}
    return {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def merged(spec: Any, patch: dict[str, Any]) -> dict[str, Any]:
    """A merge patch, as the API server does it."""
    decoded = copy.deepcopy(dict(spec))
    for name, value in patch.items():
        if value is None:
            decoded.pop(name, None)
        elif isinstance(value, dict):
            decoded[name] = merged(decoded.get(name, {}), value)
        else:
            decoded[name] = value
    return decoded


@pytest.mark.parametrize("kind", CHANGES)
def test_every_field_is_changed_or_it_is_reported_why_not(kind: str) -> None:
    changed = {leaf for change in CHANGES[kind] for leaf in leaves(change)}
    mutable = set(fields(schema(kind))) - fixed(kind)
    assert set() == changed - mutable
    assert mutable - changed == {field for field in NOT_CHANGED if field in mutable}


@pytest.mark.parametrize("kind", IMMUTABLE)
def test_every_rule_on_change_is_tried_and_refuses(kind: str) -> None:
    born = document(kind, dict(BORN[kind]))
    assert not isinstance(check_resource(born), list)
    refused = set()
    for change in IMMUTABLE[kind]:
        faults = check_resource(document(kind, merged(BORN[kind], change)), born)
        assert isinstance(faults, list)
        refused |= {fault.path.removeprefix("spec.") for fault in faults if "fixed when" in str(fault)}
    assert fixed(kind) == refused


@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_is_allowed_one_after_the_other(kind: str) -> None:
    spec = dict(BORN[kind])
    for change in CHANGES[kind]:
        before, spec = spec, merged(spec, change)
        assert before != spec
        assert not isinstance(check_resource(document(kind, spec), document(kind, before)), list), change
