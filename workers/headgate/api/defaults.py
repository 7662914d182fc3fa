"""The default of a field by its dotted path, read from the models: the one place where defaults are written."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headgate.api.written import UnitValue


def field_at(model: type[BaseModel], path: str) -> FieldInfo:
    """The field at a dotted path of names as people write them (camelCase)."""
    step, _, rest = path.partition(".")
    for name, field in model.model_fields.items():
        if step == (field.alias or name):
            inner = model_of(field.annotation)
            return field_at(inner, rest) if rest and inner else field
    raise KeyError(f"{model.__name__} has no field {step}")


def default_of(model: type[BaseModel], path: str) -> str | int | bool | None:
    """The value of an absent field, as it would be written; None where absence has a meaning of its own."""
    default = field_at(model, path).get_default(call_default_factory=False)
    return default.text if isinstance(default, UnitValue) else default


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model behind an annotation such as `Lease`, `Timeline | None` or `tuple[Consumer, ...] | None`."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple, dict):
        return next((model for model in map(model_of, get_args(annotation)) if model), None)
    return None
