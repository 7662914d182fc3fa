"""How the fields of each kind merge: which lists are maps by a key, which are sets, what is one piece. Values.

Server-side apply knows this from the API server's OpenAPI. For our own kinds it is in their CRDs, for the others in
this module, as far as the operator writes them. Other fields merge as most do: a map field by field, a list as one
piece. The contract suite compares these tables with the OpenAPI of a real server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from headgate.api.generate.schemas import build_structural_schema
from headgate.api.resources.counters import CounterResource
from headgate.api.resources.queues import QueueResource
from headgate_operator.model.kinds import COUNTER, QUEUE, ResourceKind


@dataclass(frozen=True)
class FieldShape:
    """How one field merges."""

    form: Literal["piece", "struct", "map", "list", "set", "guess"]
    """piece: a scalar, or a value that is replaced as a whole. struct: named fields. map: any keys, each a member of
    its own. list: a map by `keys`. set: by value. guess: unknown; maps are maps, lists are pieces."""
    fields: Mapping[str, FieldShape] = field(default_factory=dict)
    item: FieldShape | None = None
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)

    def of_field(self, name: str) -> FieldShape:
        """The shape of what stands under a name."""
        if self.form == "struct":
            return self.fields.get(name, FOLLOWS)
        if self.form == "guess":
            return self
        return self.item or PIECE

    @property
    def has_named_fields(self) -> bool:
        """Whether what is below it are fields of a struct: a set of fields does not hold those as such."""
        return self.form == "struct"


PIECE: Final = FieldShape("piece")
GUESS: Final = FieldShape("guess")
SET: Final = FieldShape("set")
STRINGS: Final = FieldShape("map", item=PIECE)
FOLLOWS: Final = FieldShape("struct")
"""A field that is not named in a table: its value decides whether it is a struct or a piece."""


def struct(**fields: FieldShape) -> FieldShape:
    """Named fields; `_` at the end of a name is cut, for words of Python."""
    return FieldShape("struct", {name.rstrip("_"): shape for name, shape in fields.items()})


def by(keys: str, item: FieldShape = FOLLOWS, **defaults: Any) -> FieldShape:
    """A list whose items are identified by these fields."""
    return FieldShape("list", item=item, keys=tuple(keys.split()), key_defaults=defaults)


METADATA: Final = struct(
    labels=STRINGS,
    annotations=STRINGS,
    finalizers=SET,
    ownerReferences=by("uid", PIECE),
)

_ENV: Final = by(
    "name",
    struct(valueFrom=struct(secretKeyRef=PIECE, configMapKeyRef=PIECE, fieldRef=PIECE, resourceFieldRef=PIECE)),
)
_PROBE: Final = struct(exec_=struct(command=PIECE), httpGet=struct(httpHeaders=PIECE))
_RESOURCES: Final = struct(limits=STRINGS, requests=STRINGS, claims=by("name"))
_CONTAINER: Final = struct(
    args=PIECE,
    command=PIECE,
    env=_ENV,
    envFrom=PIECE,
    lifecycle=struct(preStop=_PROBE, postStart=_PROBE),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    ports=by("containerPort protocol", protocol="TCP"),
    resources=_RESOURCES,
    securityContext=struct(capabilities=struct(add=PIECE, drop=PIECE)),
    volumeDevices=by("devicePath"),
    volumeMounts=by("mountPath"),
)
_VOLUME: Final = struct(
    secret=struct(items=PIECE),
    configMap=struct(items=PIECE),
    projected=struct(sources=PIECE),
    downwardAPI=struct(items=PIECE),
    csi=struct(volumeAttributes=STRINGS),
    flexVolume=struct(options=STRINGS),
    ephemeral=struct(
        volumeClaimTemplate=struct(metadata=METADATA, spec=struct(resources=struct(limits=STRINGS, requests=STRINGS)))
    ),
)
_SPREAD: Final = struct(labelSelector=PIECE, matchLabelKeys=PIECE)
_POD_SPEC: Final = struct(
    containers=by("name", _CONTAINER),
    initContainers=by("name", _CONTAINER),
    ephemeralContainers=by("name", _CONTAINER),
    resources=_RESOURCES,
    overhead=STRINGS,
    volumes=by("name", _VOLUME),
    imagePullSecrets=by("name", PIECE),
    hostAliases=by("ip", struct(hostnames=PIECE)),
    nodeSelector=PIECE,
    tolerations=PIECE,
    topologySpreadConstraints=by("topologyKey whenUnsatisfiable", _SPREAD),
    schedulingGates=by("name"),
    resourceClaims=by("name"),
    securityContext=struct(supplementalGroups=PIECE, sysctls=PIECE),
)
_POD_TEMPLATE: Final = struct(metadata=METADATA, spec=_POD_SPEC)
_POD_STATUS: Final = struct(conditions=by("type"), podIPs=by("ip"), hostIPs=PIECE, resourceClaimStatuses=by("name"))
_STATUS: Final = struct(conditions=by("type"))
_JOB_SPEC: Final = struct(selector=PIECE, template=_POD_TEMPLATE)

_TABLES: Final[Mapping[str, FieldShape]] = {
    "Deployment": struct(
        metadata=METADATA, spec=struct(selector=PIECE, template=_POD_TEMPLATE, strategy=struct()), status=_STATUS
    ),
    "ReplicaSet": struct(metadata=METADATA, spec=struct(selector=PIECE, template=_POD_TEMPLATE), status=_STATUS),
    "CronJob": struct(
        metadata=METADATA,
        spec=struct(jobTemplate=struct(metadata=METADATA, spec=_JOB_SPEC)),
        status=struct(active=PIECE),
    ),
    "Job": struct(
        metadata=METADATA,
        spec=_JOB_SPEC,
        status=struct(conditions=PIECE, uncountedTerminatedPods=struct(failed=SET, succeeded=SET)),
    ),
    "Pod": struct(metadata=METADATA, spec=_POD_SPEC, status=_POD_STATUS),
    "PodDisruptionBudget": struct(
        metadata=METADATA, spec=struct(selector=PIECE), status=struct(conditions=by("type"), disruptedPods=STRINGS)
    ),
    "ServiceAccount": struct(metadata=METADATA, secrets=by("name", PIECE), imagePullSecrets=PIECE),
    "RoleBinding": struct(metadata=METADATA, roleRef=PIECE, subjects=PIECE),
    "Secret": struct(metadata=METADATA, data=STRINGS, stringData=STRINGS),
    "ConfigMap": struct(metadata=METADATA, data=STRINGS, binaryData=STRINGS),
    "Namespace": struct(metadata=METADATA, spec=struct(finalizers=PIECE), status=_STATUS),
    "Event": struct(metadata=METADATA, regarding=PIECE, related=PIECE),
    "Lease": struct(metadata=METADATA, spec=struct()),
}


@cache
def shape_of(kind: ResourceKind) -> FieldShape:
    """How an object of that kind merges."""
    model = {QUEUE: QueueResource, COUNTER: CounterResource}.get(kind)
    if model is not None:
        schema = build_structural_schema(model)
        fields = {name: from_schema(node) for name, node in schema["properties"].items()}
        return FieldShape("struct", {**fields, "metadata": METADATA})
    return _TABLES.get(kind.kind) or FieldShape("struct", {"metadata": METADATA, "spec": GUESS, "status": GUESS})


def from_schema(node: Mapping[str, Any]) -> FieldShape:
    """The shape that a structural schema describes."""
    if node.get("type") == "array":
        form = node.get("x-kubernetes-list-type", "atomic")
        if form == "map":
            keys = tuple(node["x-kubernetes-list-map-keys"])
            defaults = {
                key: node["items"]["properties"][key]["default"]
                for key in keys
                if "default" in node["items"]["properties"].get(key, {})
            }
            return FieldShape("list", item=from_schema(node["items"]), keys=keys, key_defaults=defaults)
        return SET if form == "set" else PIECE
    if node.get("x-kubernetes-map-type") == "atomic":
        return PIECE
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return GUESS  # the server publishes none of the fields that are declared beside it
    if node.get("properties"):
        return FieldShape("struct", {name: from_schema(child) for name, child in node["properties"].items()})
    if isinstance(node.get("additionalProperties"), Mapping):
        return FieldShape("map", item=from_schema(node["additionalProperties"]))
    return PIECE
