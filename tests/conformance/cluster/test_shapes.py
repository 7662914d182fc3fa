"""How fields merge: the tables of the simulation agree with the schema of a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from headgate_operator.kinds import (
    CONFIG_MAP,
    COUNTER,
    CRON_JOB,
    DEPLOYMENT,
    EVENT,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    REPLICA_SET,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
)
from headgate_operator.simulated.shapes import FOLLOWS, Shape, shape_of
from tests.conformance.cluster.grounds import RealGround

KINDS = (
    QUEUE, COUNTER, DEPLOYMENT, REPLICA_SET, CRON_JOB, JOB, POD, POD_DISRUPTION_BUDGET, SERVICE_ACCOUNT, ROLE_BINDING,
    SECRET, CONFIG_MAP, NAMESPACE, EVENT, LEASE,
)  # fmt: skip
Schema = Mapping[str, Any]


@cache
def definitions(ground: RealGround) -> Mapping[str, Schema]:
    """The server's report of all kinds."""
    return ground.openapi()["definitions"]  # type: ignore[no-any-return]


def schema_of(found: Mapping[str, Schema], kind: Kind) -> Schema:
    wanted = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    for schema in found.values():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()) and "properties" in schema:
            return schema
    raise AssertionError(kind)


def resolved(found: Mapping[str, Schema], schema: Schema) -> Schema:
    if "$ref" in schema:
        return {**found[schema["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in schema.items() if k != "$ref"}}
    return schema


def form_of(schema: Schema) -> tuple[Any, ...]:
    """How a field merges, by the server's schema."""
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ("piece",)
    if schema.get("type") == "array":
        kind = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(sorted(schema.get("x-kubernetes-list-map-keys", ())))
        return {"map": ("list", keys), "set": ("set",)}.get(kind, ("piece",))
    if "properties" in schema:
        return ("struct",)
    if isinstance(schema.get("additionalProperties"), Mapping):
        return ("map",)
    return ("piece",)


def ours(shape: Shape, schema: Schema) -> tuple[Any, ...]:
    """How a field merges by the table: a field without an entry follows its value."""
    if shape is FOLLOWS:
        is_struct = "properties" in schema and schema.get("x-kubernetes-map-type") != "atomic"
        return ("struct",) if is_struct else ("piece",)
    return ("list", tuple(sorted(shape.keys))) if shape.form == "list" else (shape.form,)


def differences(
    found: Mapping[str, Schema], shape: Shape, schema: Schema, path: str, depth: int
) -> Iterator[tuple[str, Any, Any]]:
    schema = resolved(found, schema)
    if shape.form == "guess" or depth > 14:
        return
    said, known = form_of(schema), ours(shape, schema)
    if said != known:
        yield path, said, known
        return
    if said == ("struct",):
        for name, child in schema["properties"].items():
            if path or name not in ("apiVersion", "kind"):
                yield from differences(found, shape.of_field(name), child, f"{path}.{name}", depth + 1)
    elif said[0] == "list":
        yield from differences(found, shape.item or FOLLOWS, schema["items"], f"{path}[]", depth + 1)


LEFT_OUT = {
    ".metadata.managedFields",
    ".spec.template.metadata.managedFields",
    ".spec.jobTemplate.metadata.managedFields",
    ".spec.jobTemplate.spec.template.metadata.managedFields",
}


@pytest.mark.servers
@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_fields_merge_as_the_server_says(_real_ground: RealGround, kind: Kind) -> None:
    found = definitions(_real_ground)
    told = differences(found, shape_of(kind), schema_of(found, kind), "", 0)
    assert [each for each in told if each[0] not in LEFT_OUT] == []
