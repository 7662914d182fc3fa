"""A server's work on a document before it keeps it: fills in defaults, and refuses invalid ones. Pure.

Our own kinds by their CRDs: defaults of the structural schema, rules by the very conditions whose CEL a real server
evaluates (`headgate.api`). Of the others, the defaults that a document of the operator meets, and the few checks that
it could fail. The contract suite compares both with a real server.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from headgate.api.generate.schemas import build_structural_schema
from headgate.api.read.parse import check_resource
from headgate.api.resources.counters import CounterResource
from headgate.api.resources.queues import QueueResource
from headgate.api.rules.rules import rules_of
from headgate_operator.cluster.port import Cause
from headgate_operator.model.kinds import COUNTER, DEPLOYMENT, QUEUE, SPARK_APPLICATION, ResourceKind
from tests.kit.simulated_cluster.fields import without_empty
from tests.kit.simulated_cluster.quantity import canonical
from tests.kit.simulated_cluster.shapes import shape_of

Json = Any
Object = Mapping[str, Any]

MODELS: Final = {QUEUE: QueueResource, COUNTER: CounterResource}


def with_defaults(kind: ResourceKind, document: Object) -> Object:
    """The document with what a server fills in."""
    if kind in MODELS:
        filled = _fill(_schema(kind), document)
        return filled if isinstance(filled, Mapping) else document
    fill = _FILLERS.get(kind.kind)
    filled = fill(document) if fill else document
    return filled if kind is SPARK_APPLICATION else without_empty(shape_of(kind), filled)


def faults_of(kind: ResourceKind, document: Object, old: Object | None) -> list[Cause]:
    """The faults of a document, or of the change to it."""
    if kind in MODELS:
        return _faults_of_ours(kind, document, old)
    causes = []
    for path, message in _IMMUTABLE.get(kind.kind, ()):
        if old is not None and _at(document, path) != _at(old, path):
            causes.append(Cause("FieldValueInvalid", path, message))
    strategy = _at(document, "spec.strategy") if kind is DEPLOYMENT else None
    if strategy and strategy["type"] == "Recreate" and strategy.get("rollingUpdate") is not None:
        message = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        causes.append(Cause("FieldValueForbidden", "spec.strategy.rollingUpdate", message))
    for path in _REQUIRED.get(kind.kind, ()):
        if not _at(document, path):
            causes.append(Cause("FieldValueRequired", path, "Required value"))
    return causes


def unknown_field(kind: ResourceKind, document: Object) -> str | None:
    """The first field of one of ours that its CRD does not declare."""
    return _unknown(_schema(kind), document, "") if kind in MODELS else None


# ---- our own kinds


@cache
def _schema(kind: ResourceKind) -> Mapping[str, Any]:
    schema = build_structural_schema(MODELS[kind])
    metadata = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**schema, "properties": {**schema["properties"], "metadata": metadata}}


@cache
def _on_change(kind: ResourceKind) -> frozenset[str]:
    return frozenset(rule.name for rule in rules_of(MODELS[kind]) if rule.on_change)


def _fill(schema: Mapping[str, Any], value: Json) -> Json:
    if isinstance(value, list) and "items" in schema:
        return [_fill(schema["items"], item) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties: Mapping[str, Any] = schema.get("properties", {})
    filled = {}
    for name, child in value.items():
        shape = properties.get(name) or schema.get("additionalProperties")
        if child is None and name in properties and not properties[name].get("nullable"):
            continue
        filled[name] = _fill(shape, child) if isinstance(shape, Mapping) else child
    for name, shape in properties.items():
        if name not in filled and "default" in shape:
            filled[name] = _fill(shape, shape["default"])
    return filled


def _unknown(schema: Mapping[str, Any], value: Json, at: str) -> str | None:
    if isinstance(value, list) and "items" in schema:
        return next((unknown for item in value if (unknown := _unknown(schema["items"], item, at))), None)
    if not isinstance(value, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties")
    for name, child in value.items():
        shape = properties.get(name) or more
        if shape is None:
            return f"{at}.{name}"
        if isinstance(shape, Mapping) and (unknown := _unknown(shape, child, f"{at}.{name}")):
            return unknown
    return None


def _faults_of_ours(kind: ResourceKind, document: Object, old: Object | None) -> list[Cause]:
    faults = check_resource(document, old)
    if not isinstance(faults, list):
        return []
    changes = _on_change(kind)
    return [
        Cause(
            "FieldValueForbidden" if fault.rule in changes else "FieldValueInvalid",
            fault.path,
            f"{'Forbidden' if fault.rule in changes else _blamed(document, fault.path)}: {fault.message}",
        )
        for fault in faults
    ]


def _blamed(document: Object, path: str) -> str:
    value = _at(document, path)
    word = {str: '"string"', bool: '"boolean"', list: '"array"'}.get(type(value), '"object"')
    return f"Invalid value: {value if isinstance(value, int) and not isinstance(value, bool) else word}"


def _at(document: Json, path: str) -> Json:
    value = document
    for step in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


# ---- kinds of Kubernetes

_IMMUTABLE: Final = {
    "Deployment": (("spec.selector", "Invalid value: field is immutable"),),
    "ReplicaSet": (("spec.selector", "Invalid value: field is immutable"),),
    "RoleBinding": (("roleRef", "Invalid value: cannot change roleRef"),),
    "Job": (("spec.template", "Invalid value: field is immutable"),),
}
_REQUIRED: Final = {
    "Deployment": ("spec.selector", "spec.template.spec.containers"),
    "ReplicaSet": ("spec.selector",),
    "CronJob": ("spec.schedule", "spec.jobTemplate.spec.template.spec.containers"),
    "Job": ("spec.template.spec.containers",),
    "Pod": ("spec.containers",),
    "RoleBinding": ("roleRef.name",),
}


def _under(document: Object, path: str, fill: Callable[[Object], Object]) -> Object:
    name, _, rest = path.partition(".")
    if name not in document or not isinstance(document[name], Mapping):
        return document
    inner = _under(document[name], rest, fill) if rest else fill(document[name])
    return {**document, name: inner}


def _each(document: Object, name: str, fill: Callable[[Object], Object]) -> Object:
    if not isinstance(document.get(name), list):
        return document
    return {**document, name: [fill(item) for item in document[name]]}


def _quantities(amounts: Object) -> Object:
    return {name: canonical(str(amount)) for name, amount in amounts.items()}


def _probe(probe: Object) -> Object:
    filled = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, **probe}
    return _under(filled, "httpGet", lambda get: {"path": "/", "scheme": "HTTP", **get})


def _pull_policy(image: str) -> str:
    last = image.rsplit("/", 1)[-1]
    return "Always" if "@" not in last and (":" not in last or last.endswith(":latest")) else "IfNotPresent"


def _env(variable: Object) -> Object:
    filled = _under(variable, "valueFrom.fieldRef", lambda ref: {"apiVersion": "v1", **ref})
    return {name: value for name, value in filled.items() if not (name == "value" and value == "")}


def _container(container: Object) -> Object:
    filled: Object = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": _pull_policy(str(container.get("image", ""))),
        "resources": {},
        **container,
    }
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        filled = _under(filled, name, _probe)
    for name in ("resources.limits", "resources.requests"):
        filled = _under(filled, name, _quantities)
    filled = _under(filled, "lifecycle.preStop.httpGet", lambda get: {"path": "/", "scheme": "HTTP", **get})
    filled = _each(filled, "ports", lambda port: {"protocol": "TCP", **port})
    return _each(filled, "env", _env)


_MODE: Final = 0o644


def _empty_dir(source: Object) -> Object:
    return {**source, "sizeLimit": canonical(str(source["sizeLimit"]))} if "sizeLimit" in source else source


def _volume(volume: Object) -> Object:
    if volume.keys() == {"name"}:
        return {**volume, "emptyDir": {}}
    filled = volume
    for name in ("secret", "configMap", "projected", "downwardAPI"):
        filled = _under(filled, name, lambda source: {"defaultMode": _MODE, **source})
    return _under(filled, "emptyDir", _empty_dir)


def _pod_spec(spec: Object) -> Object:
    filled: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        **spec,
    }
    account = filled.get("serviceAccountName") or filled.get("serviceAccount")
    if account:
        filled = {**filled, "serviceAccountName": account, "serviceAccount": account}
    for name in ("containers", "initContainers"):
        filled = _each(filled, name, _container)
    return _each(filled, "volumes", _volume)


def _template(template: Object) -> Object:
    filled = {"metadata": {}, **template}
    return _under(filled, "spec", _pod_spec)


def _deployment_spec(spec: Object) -> Object:
    filled: Object = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, **spec}
    strategy = {"type": "RollingUpdate", **(spec.get("strategy") or {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {
            "maxUnavailable": "25%",
            "maxSurge": "25%",
            **(strategy.get("rollingUpdate") or {}),
        }
    return _under({**filled, "strategy": strategy}, "template", _template)


def _job_spec(spec: Object) -> Object:
    filled = {"backoffLimit": 6, "completions": 1, "parallelism": 1, **spec}
    return _under(filled, "template", _template)


def _cron_spec(spec: Object) -> Object:
    filled: Object = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        **spec,
    }
    filled = _under(filled, "jobTemplate", lambda job: {"metadata": {}, **job})
    return _under(filled, "jobTemplate.spec.template", _template)


def _secret(secret: Object) -> Object:
    filled: dict[str, Any] = {"type": "Opaque", **secret}
    written = filled.pop("stringData", None) or {}
    if written:
        coded = {name: b64encode(str(text).encode()).decode() for name, text in written.items()}
        filled["data"] = {**(filled.get("data") or {}), **coded}
    return filled


def _namespace(namespace: Object) -> Object:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"], **(namespace.get("spec") or {})},
    }


def _binding(binding: Object) -> Object:
    return _each(
        binding,
        "subjects",
        lambda one: one if one.get("kind") == "ServiceAccount" else {"apiGroup": "rbac.authorization.k8s.io", **one},
    )


_FILLERS: Final[Mapping[str, Callable[[Object], Object]]] = {
    "Deployment": lambda document: _under(document, "spec", _deployment_spec),
    "CronJob": lambda document: _under(document, "spec", _cron_spec),
    "Job": lambda document: _under(document, "spec", _job_spec),
    "Pod": lambda document: _under(document, "spec", _pod_spec),
    "Secret": _secret,
    "Namespace": _namespace,
    "RoleBinding": _binding,
}
