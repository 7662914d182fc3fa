"""The part of a resource's metadata that is read here; the rest is Kubernetes' own and passes by."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from headgate.api.model import Model
from headgate.api.names import NamespaceName, ResourceName


class Metadata(Model):
    """Name and namespace; other metadata of Kubernetes is ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: ResourceName = Field(description="The resource's name, at most 63 characters.")
    namespace: NamespaceName = Field("default", description="The namespace. Default: `default`.")
    generation: int | None = Field(None, description="Counts the changes of the spec; set by the API server.")
    uid: str | None = Field(None, description="Names this creation; set by the API server.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")
