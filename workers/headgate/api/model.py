"""The base of all resource models: camelCase outside, snake_case inside, frozen, unknown fields refused.

Numbers and flags are strict, as the API server is: `shards: "4"` is a mistake there, so it is one here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel

GROUP = "headgate.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

Count = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]

Pass = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A piece of somebody else's resource, handed on as it is."""


def kind_of(model: type[BaseModel]) -> str:
    """The kind of a resource, by its model."""
    return str(model.model_fields["kind"].default)


class Model(BaseModel):
    """A part of a resource."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
    )
