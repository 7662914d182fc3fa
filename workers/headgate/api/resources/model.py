"""The base of all resource models, and the parts that both kinds have.

camelCase outside, snake_case inside, frozen, unknown fields refused. Numbers and flags are strict, as the API server
is: `shards: "4"` is a mistake there, so it is one here. Defaults and descriptions are written in the models alone.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The sentences below a field describe it. They are read where a schema is made: pydantic's own reading of
        them at each import would cost 30 ms."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made)["properties"]
        body = ast.parse(inspect.getsource(cls)).body[0]
        for pair in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentences))):
                    properties[cls.model_fields[name].alias or name]["description"] = " ".join(sentences.split())
        return made


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

    name: ResourceName
    """The resource's name, at most 63 characters."""
    namespace: NamespaceName = "default"
    """The namespace. Default: `default`."""
    generation: int | None = None
    """Counts the changes of the spec; set by the API server."""
    uid: str | None = None
    """Names this creation; set by the API server."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""


class Storage(Model):
    """The location of the tables in Cassandra, and the Secret of the connection."""

    keyspace: Keyspace | None = None
    """The keyspace of the tables, created if it is missing. Default: the connection's KEYSPACE (`headgate` by
    default). Fixed when the resource is created."""
    data_center: DataCenter | None = None
    """The home data centre. Leases, puts and reads use its replicas only, and a process in another data centre is
    refused. Default: the connection's DATA_CENTER. Fixed when the resource is created."""
    replication: Count | None = Field(None, ge=1, le=9)
    """The number of replicas in the home data centre, for a keyspace that the operator creates. Default: 3, or the
    number of nodes if there are fewer. Below 3, the loss of one node stops the queue."""
    connection_secret: SecretName | None = None
    """A Secret of this namespace with the connection to Cassandra (CONTACT_POINTS, DATA_CENTER, USERNAME, PASSWORD,
    USE_SSL, KEYSPACE, CLUSTER_NAME, ca.crt, tls.crt, tls.key). Default: the chart's, which the operator copies into
    the namespace. May change to another Secret of the same cluster."""
    tables: Literal["dedicated", "shared"] = "dedicated"
    """`dedicated`: tables of its own, dropped as a whole when it is deleted. `shared`: tables that all resources of
    the keyspace share. Choose shared for many resources, since Cassandra slows down past a few hundred tables. Fixed
    when the resource is created."""
