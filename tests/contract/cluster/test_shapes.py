"""How fields merge: the tables of the simulation agree with the schema of a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from headgate_operator.model.kinds import (
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
    ResourceKind,
)
from tests.contract.cluster.worlds import RealWorld
from tests.kit.simulated_cluster.shapes import FOLLOWS, FieldShape, shape_of

KINDS = (
    QUEUE, COUNTER, DEPLOYMENT, REPLICA_SET, CRON_JOB, JOB, POD, POD_DISRUPTION_BUDGET, SERVICE_ACCOUNT, ROLE_BINDING,
    SECRET, CONFIG_MAP, NAMESPACE, EVENT, LEASE,
)  # fmt: skip
Schema = Mapping[str, Any]


@cache
def definitions(world: RealWorld) -> Mapping[str, Schema]:
    """The server's report of all kinds."""
    return world.openapi()["definitions"]  # type: ignore[no-any-return]


def schema_of(result: Mapping[str, Schema], kind: ResourceKind) -> Schema:
    wanted = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    for schema in result.values():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()) and "properties" in schema:
            return schema
    raise AssertionError(kind)


def resolved(result: Mapping[str, Schema], schema: Schema) -> Schema:
    if "$ref" in schema:
        return {**result[schema["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in schema.items() if k != "$ref"}}
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


def ours(shape: FieldShape, schema: Schema) -> tuple[Any, ...]:
    """How a field merges by the table: a field without an entry follows its value."""
    if shape is FOLLOWS:
        is_struct = "properties" in schema and schema.get("x-kubernetes-map-type") != "atomic"
        return ("struct",) if is_struct else ("piece",)
    return ("list", tuple(sorted(shape.keys))) if shape.form == "list" else (shape.form,)


def differences(
    result: Mapping[str, Schema], shape: FieldShape, schema: Schema, path: str, depth: int
) -> Iterator[tuple[str, Any, Any]]:
    schema = resolved(result, schema)
    if shape.form == "guess" or depth > 14:
        return
    message, known = form_of(schema), ours(shape, schema)
    if message != known:
        yield path, message, known
        return
    if message == ("struct",):
        for name, child in schema["properties"].items():
            if path or name not in ("apiVersion", "kind"):
                yield from differences(result, shape.of_field(name), child, f"{path}.{name}", depth + 1)
    elif message[0] == "list":
        yield from differences(result, shape.item or FOLLOWS, schema["items"], f"{path}[]", depth + 1)


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
def test_fields_merge_as_the_server_states(_real_world: RealWorld, kind: ResourceKind) -> None:
    result = definitions(_real_world)
    report = differences(result, shape_of(kind), schema_of(result, kind), "", 0)
    assert [each for each in report if each[0] not in LEFT_OUT] == []
