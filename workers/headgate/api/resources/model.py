"""The base of all resource models, and the parts that both kinds have.

camelCase outside, snake_case inside, frozen, unknown fields refused. Numbers and flags are strict, as the API server
is: `shards: "4"` is a mistake there, so it is one here. Defaults are written in the models alone.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from headgate.api.values.names import DataCenter, Keyspace, NamespaceName, ResourceName, SecretName
from headgate.api.values.units import UnitValue

GROUP = "headgate.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

Count = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]


class Model(BaseModel):
    """A part of a resource."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
    )


def kind_of(model: type[BaseModel]) -> str:
    """The kind of a resource, by its model."""
    return str(model.model_fields["kind"].default)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by the names that people write (camelCase)."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def default_of(model: type[BaseModel], path: str) -> str | int | bool | None:
    """The value of an absent field at a dotted path, as it would be written; None where absence has a meaning."""
    step, _, rest = path.partition(".")
    field = fields_of(model)[step]
    inner = model_of(field.annotation)
    if rest and inner:
        return default_of(inner, rest)
    default = field.get_default(call_default_factory=False)
    return default.text if isinstance(default, UnitValue) else default


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model behind an annotation such as `Lease`, `Timeline | None` or `tuple[Consumer, ...] | None`."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) in (Union, UnionType, Annotated, tuple, dict):
        return next((model for model in map(model_of, get_args(annotation)) if model), None)
    return None


class Metadata(Model):
    """Name and namespace; other metadata of Kubernetes is ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: ResourceName = Field(description="The resource's name, at most 63 characters.")
    namespace: NamespaceName = Field("default", description="The namespace. Default: `default`.")
    generation: int | None = Field(None, description="Counts the changes of the spec; set by the API server.")
    uid: str | None = Field(None, description="Names this creation; set by the API server.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations.")


class Storage(Model):
    """The location of the tables in Cassandra, and the Secret of the connection."""

    keyspace: Keyspace | None = Field(
        None,
        description="The keyspace of the tables, created if it is missing. Default: the connection's "
        "KEYSPACE (`headgate` by default). Fixed when the resource is created.",
    )
    data_center: DataCenter | None = Field(
        None,
        description="The home data centre. Leases, puts and reads use its replicas only, and a process in "
        "another data centre is refused. Default: the connection's DATA_CENTER. Fixed when the "
        "resource is created.",
    )
    replication: Count | None = Field(
        None,
        ge=1,
        le=9,
        description="The number of replicas in the home data centre, for a keyspace that the operator "
        "creates. Default: 3, or the number of nodes if there are fewer. Below 3, the loss of "
        "one node stops the queue.",
    )
    connection_secret: SecretName | None = Field(
        None,
        description="A Secret of this namespace with the connection to Cassandra (CONTACT_POINTS, "
        "DATA_CENTER, USERNAME, PASSWORD, USE_SSL, KEYSPACE, CLUSTER_NAME, ca.crt, tls.crt, "
        "tls.key). Default: the chart's, which the operator copies into the namespace. May "
        "change to another Secret of the same cluster.",
    )
    tables: Literal["dedicated", "shared"] = Field(
        "dedicated",
        description="`dedicated`: tables of its own, dropped as a whole when it is deleted. `shared`: tables "
        "that all resources of the keyspace share. Choose shared for many resources, since "
        "Cassandra slows down past a few hundred tables. Fixed when the resource is created.",
    )
