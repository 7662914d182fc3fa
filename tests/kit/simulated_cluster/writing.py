"""One write of one object: its result, or its refusal. Pure: the time and a new uid are passed in.

Rules, each checked by the contract suite: a subresource writes its part and nothing else; the main resource never
writes the status; the generation grows with the spec and not with the status; metadata that the server keeps cannot
be written; an object that is being deleted gets no new finalizer, and is gone with its last; a write without a change
makes no new version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from headgate_operator.cluster.port import Cause, Propagation
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import (
    COUNTER,
    CRON_JOB,
    DEPLOYMENT,
    EVENT,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    REPLICA_SET,
    SPARK_APPLICATION,
    ResourceKind,
)
from tests.kit.simulated_cluster import managing, refusals
from tests.kit.simulated_cluster.admission import MODELS, faults_of, unknown_field, with_defaults
from tests.kit.simulated_cluster.fields import emptied, without_nulls
from tests.kit.simulated_cluster.fields import shown as shown_path
from tests.kit.simulated_cluster.managing import Manager
from tests.kit.simulated_cluster.shapes import shape_of

Object = Mapping[str, Any]

WITH_STATUS: Final = frozenset({
    QUEUE, COUNTER, DEPLOYMENT, CRON_JOB, JOB, POD, POD_DISRUPTION_BUDGET, REPLICA_SET, NAMESPACE,
})  # fmt: skip
WITH_GENERATION: Final = (WITH_STATUS | {SPARK_APPLICATION}) - {NAMESPACE}
SCALED: Final = {QUEUE: "shards", DEPLOYMENT: "replicas", REPLICA_SET: "replicas"}
"""Which field of the spec the scale subresource writes."""
MADE_BY_PUT: Final = frozenset({LEASE, EVENT})
"""Kinds that a PUT makes where there is none."""
NEED_VERSION: Final = frozenset({QUEUE, COUNTER, LEASE, SPARK_APPLICATION})
"""Kinds that a PUT must name the resourceVersion of."""
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

_SERVERS: Final = (
    "uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
    "namespace", "name",
)  # fmt: skip
"""Metadata that the server keeps."""


@dataclass(frozen=True)
class Write:
    """The request, and its object."""

    request: ApiRequest
    kind: ResourceKind
    namespace: str | None
    name: str
    body: Object
    now: str

    @property
    def manager(self) -> Manager:
        """The writer."""
        operation = "Apply" if self.request.verb == "apply" else "Update"
        name = self.request.query.get("fieldManager", "unknown")
        return Manager(
            name, "Apply" if operation == "Apply" else "Update", self.request.subresource, self.api_version
        )

    @property
    def api_version(self) -> str:
        """Of the kind."""
        return self.kind.api_version

    @property
    def force(self) -> bool:
        """Whether fields of others are taken."""
        return self.request.query.get("force") == "true"


def format_time(now_us: int) -> str:
    """A time as metadata writes it: in whole seconds."""
    return datetime.fromtimestamp(now_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_is_missing() -> Cause:
    """The fault of an object without a name."""
    return Cause("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")


# ---- an object that is not there


def make(write: Write, uid: str) -> Object:
    """The new object."""
    kind, body, verb = write.kind, write.body, write.request.verb
    wanted_uid = body.get("metadata", {}).get("uid")
    if write.request.subresource or verb == "patch" or (verb == "replace" and kind not in MADE_BY_PUT):
        raise refusals.not_found(kind, write.name)
    if verb == "apply" and wanted_uid:
        raise refusals.uid_but_absent(kind, write.name, wanted_uid)
    if verb in ("replace", "apply") and body["metadata"].get("resourceVersion"):
        raise refusals.modified(kind, write.name)
    _check_fields(write)
    metadata = {
        name: value for name, value in body.get("metadata", {}).items() if name not in (*_SERVERS, "managedFields")
    }
    metadata |= {"name": write.name, "uid": uid, "creationTimestamp": write.now}
    if kind.namespaced:
        metadata["namespace"] = write.namespace
    if kind in WITH_GENERATION:
        metadata["generation"] = 1
    wanted = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind in WITH_STATUS:
        wanted.pop("status", None)
    if kind is NAMESPACE:
        wanted["status"] = {"phase": "Active"}
    return _managed_as_new(write, _admitted(write, wanted, None))


def _managed_as_new(write: Write, made: Object) -> Object:
    shape = shape_of(write.kind)
    bare = {"metadata": {"name": write.name}}
    if write.request.verb == "apply":
        return with_managed(
            made, managing.apply_as_first(shape, _part(write, write.body), write.manager, now=write.now)
        )
    return with_managed(made, managing.update(shape, bare, without_status(made), write.manager, now=write.now))


# ---- an object that is there


def change(write: Write, live: Object) -> Object:
    """The object after the write; the very same one if nothing is other."""
    verb, kind = write.request.verb, write.kind
    if verb == "create":
        raise refusals.already_exists(kind, write.name)
    if write.request.subresource == "scale":
        write = _as_scaled(write, live)
    _check_fields(write)
    _check_version(write, live)
    if verb == "apply":
        made, managed = _applied(write, live)
    else:
        wanted = write.body if verb == "replace" else merge_patch(live, write.body)
        made, managed = _confined(write, live, wanted), None
    _check_uid(write, live)
    made = _admitted(write, _kept_by_server(made, live), live)
    if managed is None:
        managed = managing.update(shape_of(kind), live, made, write.manager, now=write.now)
    made = with_managed(made, managed)
    if _is_same(made, live):
        return live
    return _with_generation(kind, made, live)


def _applied(write: Write, live: Object) -> tuple[Object, Sequence[managing.Managed]]:
    body = _part(write, write.body)
    outcome = managing.apply(shape_of(write.kind), live, body, write.manager, now=write.now, force=write.force)
    if not isinstance(outcome, managing.Merged):
        raise _clashed(outcome)
    nulls = list(emptied(outcome.document, live))
    if nulls and write.kind in MODELS:
        message = 'Invalid value: "null": {0} in body must be of type array: "null"'
        causes = [Cause("FieldValueTypeInvalid", path, message.format(path)) for path in nulls]
        raise refusals.invalid(write.kind, write.name, causes)
    made = without_nulls(outcome.document) if nulls else outcome.document
    return _confined(write, live, made), outcome.managed


def _clashed(clashes: Sequence[managing.Clash]) -> refusals.Refusal:
    causes = [Cause("FieldManagerConflict", shown_path(clash.path), clash.text) for clash in clashes]
    return refusals.refusal(409, "Conflict", managing.clash_message(clashes), causes=causes)


def _part(write: Write, body: Object) -> Object:
    """The part of an applied document that belongs to the subresource, or to the main resource."""
    if write.request.subresource == "status":
        return {name: value for name, value in body.items() if name == "status"}
    return without_status(body) if write.kind in WITH_STATUS else body


def _confined(write: Write, live: Object, wanted: Object) -> Object:
    """The part that this way may change: the status by the subresource alone, and nothing else by it."""
    if write.request.subresource == "status":
        made = {name: value for name, value in live.items() if name != "status"}
        return made | ({"status": wanted["status"]} if wanted.get("status") is not None else {})
    if write.kind not in WITH_STATUS:
        return wanted
    return without_status(wanted) | ({"status": live["status"]} if "status" in live else {})


def _kept_by_server(made: Object, live: Object) -> Object:
    old = live["metadata"]
    given = {name: value for name, value in made.get("metadata", {}).items() if name not in _SERVERS}
    kept = {name: old[name] for name in _SERVERS if name in old}
    if "managedFields" in old:
        kept["managedFields"] = old["managedFields"]
    metadata = {name: value for name, value in given.items() if value not in (None, [], {})}
    return {**made, "apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {**metadata, **kept}}


def _admitted(write: Write, made: Object, live: Object | None) -> Object:
    """With defaults, and valid."""
    filled = with_defaults(write.kind, made)
    causes = _finalizer_faults(filled, live) if live is not None else []
    causes += faults_of(write.kind, filled, live)
    if causes:
        raise refusals.invalid(write.kind, write.name, causes)
    return filled


def _finalizer_faults(made: Object, live: Object) -> list[Cause]:
    if not live["metadata"].get("deletionTimestamp"):
        return []
    old = live["metadata"].get("finalizers") or ()
    new = [one for one in made["metadata"].get("finalizers") or () if one not in old]
    if not new:
        return []
    listed = ", ".join(f'"{one}"' for one in new)
    message = (
        f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    )
    return [Cause("FieldValueForbidden", "metadata.finalizers", f"Forbidden: {message}")]


def _check_fields(write: Write) -> None:
    if write.request.verb == "apply" and (unknown := unknown_field(write.kind, write.body)):
        raise refusals.untyped(write.request, f"{unknown}: field not declared in schema")


def _check_version(write: Write, live: Object) -> None:
    wanted = write.body.get("metadata", {}).get("resourceVersion")
    if wanted and wanted != live["metadata"]["resourceVersion"]:
        raise refusals.modified(write.kind, write.name)
    if not wanted and write.request.verb == "replace" and write.kind in NEED_VERSION:
        message = "Invalid value: 0: must be specified for an update"
        raise refusals.invalid(
            write.kind, write.name, [Cause("FieldValueInvalid", "metadata.resourceVersion", message)]
        )


def _check_uid(write: Write, live: Object) -> None:
    """A status is written without a check of the uid: only a resourceVersion distinguishes objects of one name."""
    wanted = write.body.get("metadata", {}).get("uid")
    if not wanted or wanted == live["metadata"]["uid"] or write.request.subresource:
        return
    if write.request.verb == "replace":
        uid = live["metadata"]["uid"]
        raise refusals.precondition(write.kind, write.name, "UID", wanted, uid)
    message = f'Invalid value: "{wanted}": field is immutable'
    raise refusals.invalid(write.kind, write.name, [Cause("FieldValueInvalid", "metadata.uid", message)])


def _as_scaled(write: Write, live: Object) -> Write:
    field = SCALED.get(write.kind)
    replicas = write.body.get("spec", {}).get("replicas")
    if field is None or replicas is None:
        raise refusals.not_found(write.kind, write.name)
    return replace(write, body={"metadata": write.body.get("metadata", {}), "spec": {field: replicas}})


def _with_generation(kind: ResourceKind, made: Object, live: Object) -> Object:
    if kind not in WITH_GENERATION or _wanted(made) == _wanted(live):
        return made
    return {**made, "metadata": {**made["metadata"], "generation": live["metadata"].get("generation", 0) + 1}}


def _wanted(document: Object) -> Object:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _is_same(made: Object, live: Object) -> bool:
    return made == live or _timeless(made) == _timeless(live)


def _timeless(document: Object) -> Object:
    managed = [{**one, "time": ""} for one in document["metadata"].get("managedFields") or ()]
    ordered = sorted(managed, key=lambda one: (one["manager"], one["operation"], one.get("subresource", "")))
    return {**document, "metadata": {**document["metadata"], "managedFields": ordered}}


def with_managed(document: Object, managed: Sequence[managing.Managed]) -> Object:
    """The document with its managers written into it."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    written = managing.write_managed(managed)
    return {**document, "metadata": metadata | ({"managedFields": written} if written else {})}


def without_status(document: Object) -> dict[str, Any]:
    """The document without its status."""
    return {name: value for name, value in document.items() if name != "status"}


def merge_patch(live: Any, change: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(change, Mapping):
        return change
    made = dict(live) if isinstance(live, Mapping) else {}
    for name, value in change.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge_patch(made.get(name), value)
    return made


def shown(write: Write, document: Object) -> Object:
    """The answer: the object, or its scale."""
    if write.request.subresource != "scale":
        return document
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: document["metadata"][name] for name in kept if name in document["metadata"]}
    status = document.get("status", {})
    scale = {"replicas": status.get("replicas", 0)} | (
        {"selector": status["selector"]} if "selector" in status else {}
    )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if (replicas := document["spec"][SCALED[write.kind]]) else {},
        "status": scale,
    }


# ---- deletion


def check_preconditions(kind: ResourceKind, live: Object, wanted: Object) -> None:
    """A delete is for this very object."""
    metadata = live["metadata"]
    for name, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(name) is not None and wanted[name] != metadata[name]:
            raise refusals.precondition(kind, metadata["name"], what, wanted[name], metadata[name])


def mark_deleted(kind: ResourceKind, live: Object, *, propagation: Propagation, now: str, grace_s: int = 0) -> Object:
    """The object on its way out: gone where nothing holds it (`is_over`)."""
    metadata = dict(live["metadata"])
    finalizers = [one for one in metadata.get("finalizers", []) if one not in (FOREGROUND, ORPHAN)]
    if metadata.get("deletionTimestamp"):
        finalizers = metadata.get("finalizers", [])
    elif propagation == "Foreground":
        finalizers = [*finalizers, FOREGROUND]
    elif propagation == "Orphan":
        finalizers = [*finalizers, ORPHAN]
    if "deletionTimestamp" not in metadata:
        metadata |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": grace_s}
        if metadata.get("generation"):
            metadata["generation"] += 1
    elif grace_s < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionGracePeriodSeconds"] = grace_s
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    marked = {**live, "metadata": metadata}
    if kind is NAMESPACE:
        marked["status"] = {**live.get("status", {}), "phase": "Terminating"}
    return marked


def grace_s(kind: ResourceKind, live: Object, options: Object) -> int:
    """How long a pod that runs may take to end; everything else is gone at once."""
    if kind is not POD or (live.get("status") or {}).get("phase") != "Running":
        return 0
    return int(options.get("gracePeriodSeconds", live["spec"].get("terminationGracePeriodSeconds", 30)))


def is_over(document: Object) -> bool:
    """Whether nothing holds an object that is being deleted."""
    metadata = document["metadata"]
    held = metadata.get("finalizers") or (document.get("kind") == "Namespace" and document["spec"].get("finalizers"))
    graceful = document.get("kind") == "Pod" and metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not held and not graceful
