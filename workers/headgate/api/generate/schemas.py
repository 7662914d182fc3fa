"""Schemas from the models: CustomResourceDefinitions for the API server, JSON schemas for editors.

A CRD has a structural schema, with every default, bound and rule in it.

Pydantic's schema is not structural yet: references are expanded, `X or null` becomes X (a person leaves the field
out), and titles and `additionalProperties: false` are removed (the API server prunes and, under strict validation,
refuses). A shape's pattern becomes a CEL rule with a sentence. Each description ends with the default and the bounds,
since `kubectl explain` shows nothing else. Invariant: every list, map and string that a rule can read is bounded,
else the API server's cost estimate refuses the CRD.

An editor's JSON schema brings completion, descriptions, and red lines before anything is applied. It has all that a
schema can express; the API server and `headgate validate` check the rules between fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.api.resources.counters import CounterResource
from headgate.api.resources.model import GROUP, VERSION, Model, kind_of
from headgate.api.resources.queues import QueueResource
from headgate.api.rules.rules import Rule, rules_of
from headgate.api.values.shapes import KEY, Range, ValueShape

Schema = dict[str, Any]

KINDS: Final[tuple[type[Model], ...]] = (QueueResource, CounterResource)
PLURALS: Final = {"Queue": "queues", "Counter": "counters"}
SHORT_NAMES: Final = {"Queue": ["hgq"], "Counter": ["hgc"]}
_DROPPED: Final = frozenset(
    {"title", "pattern", "additionalProperties", "propertyNames", "const", "anyOf", "$ref", KEY}
)


def _column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


_READY_PATH: Final = '.status.conditions[?(@.type=="Ready")]'
_READY: Final = _column("Ready", "string", f"{_READY_PATH}.status", "Whether the resource is as its spec declares.")
_REASON: Final = _column("Reason", "string", f"{_READY_PATH}.reason", "The reason of Ready.", wide=True)
_AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COLUMNS: Final[dict[str, list[Schema]]] = {
    "Queue": [
        _column("Engine", "string", ".spec.engine", "How messages are kept."),
        _column("Shards", "integer", ".spec.shards", "The number of parts of the queue."),
        _column("Backlog", "integer", ".status.backlog", "Messages that are due and not yet received."),
        _column("Oldest", "string", ".status.oldestAge", "Age of the oldest due message."),
        _column("Workers", "integer", ".status.consumers[0].ready", "Ready workers of the first consumer."),
        _READY,
        _column("In-Flight", "integer", ".status.inFlight", "Messages received and not yet settled.", wide=True),
        _column("Rate", "integer", ".status.rate", "Messages settled per second.", wide=True),
        _REASON,
        _AGE,
    ],
    "Counter": [
        _column("Type", "string", ".spec.type", "The value kept per key."),
        _column("Keys", "integer", ".status.keys", "Keys, as the last collection counted them."),
        _READY,
        _column("Shards", "integer", ".status.shards", "Shards of all keys.", wide=True),
        _column("Collected", "date", ".status.lastCollection", "When the collector last ran.", wide=True),
        _REASON,
        _AGE,
    ],
}


def build_crd(model: type[Model]) -> Schema:
    """The CustomResourceDefinition of a kind."""
    kind = kind_of(model)
    plural = PLURALS[kind]
    subresources: Schema = {"status": {}}
    if kind == "Queue":
        subresources["scale"] = {
            "specReplicasPath": ".spec.shards",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": SHORT_NAMES[kind],
                "categories": ["headgate"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": _COLUMNS[kind],
                    "schema": {"openAPIV3Schema": build_structural_schema(model)},
                }
            ],
        },
    }


def build_structural_schema(model: type[Model]) -> Schema:
    """The structural schema of a kind, with its rules."""
    made = model.model_json_schema(by_alias=True, mode="validation")
    properties = made["properties"]
    schema: Schema = {
        "type": "object",
        "description": made["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "headgate.io/v1beta1."},
            "kind": {"type": "string", "description": f"{kind_of(model)}."},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},  # so that a rule may blame it
            "spec": _structural(properties["spec"], made["$defs"]),
            "status": _structural(properties["status"], made["$defs"]),
        },
    }
    for rule in rules_of(model):
        _node_at(schema, rule.scope).setdefault("x-kubernetes-validations", []).append(_validation(rule))
    return schema


def _node_at(schema: Schema, scope: str) -> Schema:
    node = schema
    for step in scope.split(".") if scope else ():
        node = node["properties"][step.removesuffix("[]")]
        node = node["items"] if step.endswith("[]") else node
    return node


def _validation(rule: Rule) -> Schema:
    made = {"rule": rule.condition.cel, "message": rule.message, "fieldPath": f".{rule.field}"}
    return {**made, "reason": "FieldValueForbidden"} if rule.on_change else made


def _structural(node: Schema, defs: Mapping[str, Schema], *, required: bool = True) -> Schema:
    """One node written out: reference and null resolved, bounds kept, children in turn."""
    nullable = "nullable" in node or any(branch.get("type") == "null" for branch in node.get("anyOf", ()))
    branches = [branch for branch in node.get("anyOf", ()) if branch.get("type") != "null"]
    whole = {**(branches[0] if branches else {}), **node}
    if "$ref" in whole:
        whole = {**defs[whole["$ref"].rsplit("/", 1)[1]], **whole}
    made = {key: value for key, value in whole.items() if key not in _DROPPED}
    if made.get("default", ...) is None:
        del made["default"]
    if "default" in made:
        default = made["default"]
        made["default"] = default if isinstance(default, str | int | bool | dict | list) else str(default)
    elif not required and not nullable and made.get("type") == "object" and "properties" in made:
        made["default"] = {}
    if "const" in whole:
        made["enum"] = [whole["const"]]
    if "properties" in made:
        needed = made.get("required", ())
        made["properties"] = {
            name: _structural(child, defs, required=name in needed) for name, child in made["properties"].items()
        }
    if "items" in made:
        made["items"] = _structural(made["items"], defs)
    if isinstance(whole.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(whole["additionalProperties"], defs)
    return _with_shape(made, whole)


def _with_shape(made: Schema, whole: Schema) -> Schema:
    shape = whole.get(KEY)
    if isinstance(shape, ValueShape):
        made["x-kubernetes-validations"] = [{"rule": shape.cel, "message": shape.message}]
    elif "pattern" in whole:
        made["pattern"] = whole["pattern"]
    hints = _hints(made, shape)
    if hints and "description" in made:
        made["description"] = f"{made['description']} {hints}"
    return made


def _hints(made: Schema, shape: ValueShape | None) -> str:
    """Default and bounds in words."""
    default = made.get("default")
    hints = [] if default in (None, {}) else [f"Default: {format_default(default)}."]
    if isinstance(shape, Range):
        hints.append(f"From {shape.least} to {shape.most}.")
    elif {"minimum", "maximum"} <= made.keys():
        hints.append(f"From {made['minimum']} to {made['maximum']}.")
    return " ".join(hints)


def format_default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_json_schema(model: type[Model]) -> Schema:
    """The JSON schema (2020-12) of a kind."""
    made = model.model_json_schema(by_alias=True, mode="validation")
    schema: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_tidied(made)}
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["$defs"]["Metadata"].pop("additionalProperties", None)
    return schema


def _tidied(node: Any, *, names: bool = False) -> Any:
    """The node without titles, with a shape's sentence where an editor shows it; `names` where keys are names."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node if isinstance(node, str | int | float | bool | None) else str(node)
    made: Schema = {}
    for key, value in node.items():
        if not names and (key in ("title", KEY) or key.startswith("x-kubernetes-")):
            continue
        made[key] = _tidied(value, names=key in ("properties", "$defs") and not names)
    if not names and made.pop("nullable", False):
        made["type"] = [made["type"], "null"]
    shape = node.get(KEY)
    if not names and isinstance(shape, ValueShape) and "pattern" in made:
        made["patternErrorMessage"] = shape.message
    if not names and made.get("default", ...) is None:
        del made["default"]
    return made
