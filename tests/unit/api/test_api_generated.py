"""The files that are generated from the models are fresh, structural, bounded and explained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from headgate.api.generate import __main__ as generate
from headgate.api.generate.schemas import KINDS, build_crd, build_json_schema, build_structural_schema
from headgate.api.resources import reasons
from headgate.api.resources.model import kind_of
from headgate.api.rules.rules import rules_of
from tests.unit.api.api_cases import ACCEPTED, ROOT, document

SCHEMAS = {kind_of(model): build_structural_schema(model) for model in KINDS}
NOT_STRUCTURAL = {"$ref", "$defs", "anyOf", "allOf", "oneOf", "not", "title", "const", "nullable", "exclusiveMinimum"}


PRESERVES = "x-kubernetes-preserve-unknown-fields"


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of our own; what is inside of somebody else's piece has tests of its own below."""
    yield path, node
    if PRESERVES not in node:
        yield from children(node, path, nodes)


def inside_pieces(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node that is declared inside of somebody else's piece."""
    yield from children(node, path, every_node if PRESERVES in node else inside_pieces)


def every_node(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    yield from children(node, path, every_node)


def children(node: dict[str, Any], path: str, of: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in node.get("properties", {}).items():
        yield from of(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from of(node[key], f"{path}[]")


NODES = [result for kind, schema in SCHEMAS.items() for result in nodes(schema, kind)]
WRITTEN = [(path, node) for path, node in NODES if ".spec" in path or ".status" in path]


def test_no_generated_file_is_stale() -> None:
    assert generate.read_stale(ROOT) == [], "run `make generate` and commit what it writes"


def test_a_stale_a_missing_and_a_strange_file_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--into", str(tmp_path)]) == 0
    assert generate.main(["--check", "--into", str(tmp_path)]) == 0
    (tmp_path / "docs/reference.md").write_text("old")
    (tmp_path / "crds/queues.headgate.io.yaml").unlink()
    shutil.copy(tmp_path / "crds/counters.headgate.io.yaml", tmp_path / "crds/others.yaml")
    assert generate.main(["--check", "--into", str(tmp_path)]) == 1
    named = [line.split(" is stale")[0] for line in capsys.readouterr().err.splitlines()]
    assert named == ["crds/others.yaml", "crds/queues.headgate.io.yaml", "docs/reference.md"]


@pytest.mark.parametrize("model", KINDS, ids=kind_of)
def test_a_generated_crd_reads_back_as_what_was_built(model: Any) -> None:
    text = generate.generated_files()[f"crds/{kind_of(model).lower()}s.headgate.io.yaml"]
    assert yaml.safe_load(text) == build_crd(model)


def is_bounded(node: dict[str, Any]) -> bool:
    match node["type"]:
        case "string":
            return "maxLength" in node or "enum" in node
        case "array":
            return "maxItems" in node
        case "integer":
            return "minimum" in node
        case "object":
            return bool(node.get("properties")) or "maxProperties" in node
        case kind:
            return bool(kind == "boolean")


def has_text(path: str, node: dict[str, Any]) -> bool:
    message = node.get("description", "")
    return path.endswith("[]") or (len(message) >= 20 and message.endswith("."))


def states_default(node: dict[str, Any]) -> bool:
    default = node.get("default")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return default in (None, {}) or f"Default: {shown}." in node["description"]


def test_every_node_is_structural() -> None:
    assert [path for path, node in NODES if NOT_STRUCTURAL & node.keys() or not isinstance(node["type"], str)] == []


def test_every_node_is_bounded() -> None:
    assert [path for path, node in WRITTEN if not is_bounded(node)] == []


def test_every_field_reports_something() -> None:
    assert [path for path, node in WRITTEN if not has_text(path, node)] == []


def test_kubectl_explain_reports_every_default() -> None:
    assert [path for path, node in WRITTEN if not states_default(node)] == []


def test_a_node_without_bound_or_words_would_be_found() -> None:
    assert len(WRITTEN) > 100
    assert [is_bounded({"type": kind}) for kind in ("string", "array", "integer", "object", "number")] == [False] * 5
    assert not has_text("spec.x", {"description": "Size"})
    assert not states_default({"default": "1s", "description": "How long."})


def bound_of(node: dict[str, Any]) -> Any:
    """How a list inside of somebody else's piece is bounded."""
    return node.get("maxItems") or [rule["rule"] for rule in node.get("x-kubernetes-validations", ())]


def test_inside_of_somebody_else_s_piece_lists_are_bounded_and_nothing_else_is_reported() -> None:
    pieces = [result for kind, schema in SCHEMAS.items() for result in inside_pieces(schema, kind)]
    lists = [(path, node) for path, node in pieces if node["type"] == "array"]
    places = {path.partition("[].")[2] for path, _ in lists}
    assert {"template.spec.containers[].env", "spark.driver.env", "spark.executor.template.spec.volumes"} <= places
    assert [path for path, node in lists if bound_of(node) not in (200, ["self.size() <= 200"])] == []
    assert [path for path, node in lists if node["nullable"] is not True] == [], "null removes a list of ours"
    others = [node for _, node in pieces if node["type"] != "array"]
    assert [node for node in others if (node["type"], node[PRESERVES]) != ("object", True)] == []
    message = {key for _, node in pieces for key in node}
    assert message == {"type", "nullable", "items", "properties", "maxItems", "x-kubernetes-validations", PRESERVES}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_list_of_objects_is_a_map_by_its_key(kind: str) -> None:
    lists = [(path, node) for path, node in nodes(SCHEMAS[kind], kind) if node["type"] == "array"]
    objects = [(path, node) for path, node in lists if node["items"]["type"] == "object"]
    assert objects
    for path, node in objects:
        (key,) = node["x-kubernetes-list-map-keys"]
        assert node["x-kubernetes-list-type"] == "map", path
        assert key in node["items"]["required"], path


@pytest.mark.parametrize("model", KINDS, ids=kind_of)
def test_every_rule_is_in_the_crd(model: Any) -> None:
    message = {
        rule["message"]
        for _, node in nodes(SCHEMAS[kind_of(model)], "")
        for rule in node.get("x-kubernetes-validations", ())
    }
    assert {rule.message for rule in rules_of(model)} <= message


@pytest.mark.parametrize("model", KINDS, ids=kind_of)
def test_the_field_that_a_rule_blames_is_there(model: Any) -> None:
    for rule in rules_of(model):
        node = SCHEMAS[kind_of(model)]
        path = ".".join(step for step in (rule.scope, rule.field) if step)
        for step in path.split("."):
            node = node["properties"][step.removesuffix("[]")]
            node = node["items"] if step.endswith("[]") else node


def test_an_engines_block_that_is_absent_stays_absent_and_what_is_in_it_has_defaults() -> None:
    spec = SCHEMAS["Queue"]["properties"]["spec"]["properties"]
    assert [name for name in ("timeline", "bucket", "extent") if "default" in spec[name]] == []
    assert spec["timeline"]["properties"]["lease"]["default"] == {}
    assert spec["timeline"]["properties"]["lease"]["properties"]["ttl"]["default"] == "10s"


def test_what_is_chosen_by_the_store_has_no_default() -> None:
    storage = SCHEMAS["Queue"]["properties"]["spec"]["properties"]["storage"]["properties"]
    without = [name for name, node in storage.items() if "default" not in node]
    assert without == ["keyspace", "dataCenter", "replication", "connectionSecret"]


def test_every_reason_and_condition_has_a_meaning() -> None:
    assert [] == [reason for reason in reasons.Reason if not reason.meaning]
    assert set(reasons.CONDITION_MEANINGS) == {*reasons.QUEUE_CONDITIONS, *reasons.COUNTER_CONDITIONS}


def test_every_reason_is_one_of_some_condition_and_reports_what_to_do() -> None:
    assert set(reasons.REASONS_OF) == set(reasons.CONDITION_MEANINGS)
    assert {reason for of in reasons.REASONS_OF.values() for reason in of} == set(reasons.Reason)
    idle = {reason for reason in reasons.Reason if not reason.remedy}
    assert {str(reason) for reason in idle} == NOTHING_IS_DONE_ABOUT
    assert not reasons.STALLING & reasons.AWAITED


NOTHING_IS_DONE_ABOUT = {
    "Reconciled",
    "TablesPresent",
    "LanesServed",
    "NoConsumers",
    "ConsumersRunning",
    "RepairCurrent",
    "CollectionCurrent",
    "NoBulk",
    "BulkIdle",
    "BulkRunning",
    "NoDeadLetter",
    "DeadLetterFound",
}


@pytest.mark.parametrize("model", KINDS, ids=kind_of)
def test_an_editors_schema_is_valid_and_takes_what_is_accepted(model: Any) -> None:
    schema = build_json_schema(model)
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema)
    for kind, spec in ACCEPTED:
        if kind == kind_of(model):
            assert list(judge.iter_errors(document(kind, spec))) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"safetyLag": "1s"},
        {"retention": "2w"},
        {"shards": 0},
        {"shards": "4"},
        {"engine": "time"},
        {"consumers": [{}]},
    ],
)
def test_an_editors_schema_refuses_what_a_schema_can_see(spec: dict[str, Any]) -> None:
    judge = jsonschema.Draft202012Validator(build_json_schema(KINDS[0]))
    assert list(judge.iter_errors(document("Queue", spec)))
