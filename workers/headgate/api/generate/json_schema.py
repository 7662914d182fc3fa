"""A JSON schema of each kind, for editors: completion, descriptions, and red lines before anything is applied.

It has all that a schema can express; the API server and `headgate validate` check the rules between fields.
"""

from __future__ import annotations

from typing import Any

from headgate.api.resources.model import Model
from headgate.api.values.shapes import KEY, ValueShape

Schema = dict[str, Any]


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
