"""Resources across versions: a document of the catalogue may be older or newer than the models that read it.

A reader takes the fields that it knows and skips the rest. A writer keeps unknown fields, so that an older release
that changes one field does not drop fields of a newer one. Pure, on documents as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from headgate.api.read.parse import KINDS, Resource, parse_stored
from headgate.api.resources.model import fields_of, model_of
from headgate.errors import InvalidRequest

Document = Mapping[str, Any]


def document_of(resource: Resource) -> dict[str, Any]:
    """The resource as JSON, defaults written out, so that a later release with other defaults reads the same."""
    written = resource.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status", "metadata"})
    written["metadata"] = {"name": resource.metadata.name, "namespace": resource.metadata.namespace}
    return written


def resource_of(document: Document) -> Resource:
    """The resource of a document, without what this version does not know. InvalidRequest if even that is not
    valid."""
    return parse_stored(known_part(document))


def known_part(document: Document) -> dict[str, Any]:
    """The document without fields that this version's models do not have."""
    model = KINDS.get(str(document.get("kind")))
    if model is None:
        raise InvalidRequest("This version does not know the kind of the resource", kind=document.get("kind"))
    return dict(_known(model, document))


def carry_unknown(standing: Document, wanted: Document) -> dict[str, Any]:
    """The wanted document, with fields of the standing one that this version's models do not have."""
    model = KINDS.get(str(wanted.get("kind")))
    return dict(wanted) if model is None else dict(_merge(model, standing, wanted))


@cache
def _models(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """The fields of a model as they are written, and the model behind each; None where anything may stand inside."""
    return {name: model_of(field.annotation) for name, field in fields_of(model).items()}


def _known(model: type[BaseModel] | None, value: Any) -> Any:
    if model is not None and isinstance(value, Mapping):
        models = _models(model)
        return {key: _known(models[key], inner) for key, inner in value.items() if key in models}
    return [_known(model, item) for item in value] if model is not None and isinstance(value, list) else value


def _merge(model: type[BaseModel] | None, standing: Any, wanted: Any) -> Any:
    """Items of a list are the same when they have the same name, as for the API server."""
    if model is not None and isinstance(standing, Mapping) and isinstance(wanted, Mapping):
        models = _models(model)
        merged = dict(wanted)
        for key, value in standing.items():
            if key not in models:
                merged.setdefault(key, value)
            elif key in wanted:
                merged[key] = _merge(models[key], value, wanted[key])
        return merged
    if model is not None and isinstance(standing, list) and isinstance(wanted, list):
        named = {item["name"]: item for item in standing if isinstance(item, Mapping) and "name" in item}
        return [
            _merge(model, named.get(item.get("name")), item) if isinstance(item, Mapping) else item for item in wanted
        ]
    return wanted
