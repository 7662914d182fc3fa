"""The operator's requests to a Kubernetes cluster: each method of `ClusterPort` is one, and reads its answer.

Requests and answers are values, so that a real API server and the simulated one are asked by the same code and differ
only in `send`. It knows the words of the Kubernetes API, and neither HTTP clients nor clocks. Nothing is watched by
it: kopf watches (informers/kopf_watch.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote

from headgate.errors import InvalidRequest
from headgate_operator.cluster.port import (
    CALL_WITHIN_S,
    ApiObject,
    Cause,
    Deleted,
    Denial,
    Denied,
    LeaderLease,
    ListPage,
    Note,
    Propagation,
)
from headgate_operator.model.kinds import EVENT, LEASE, Document, ObjectAddress, ResourceKind, address_of

Verb = Literal["get", "list", "create", "apply", "replace", "patch", "delete"]
_METADATA: Final[Mapping[Verb, str]] = {"get": "PartialObjectMetadata", "list": "PartialObjectMetadataList"}

NAME_MAX: Final = 40
"""Letters of a resource's name that an event's own name keeps."""


@dataclass(frozen=True)
class ApiRequest:
    verb: Verb
    kind: ResourceKind
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Document | None = None
    metadata_only: bool = False

    @property
    def accept(self) -> str:
        """The content type of its answer."""
        if self.metadata_only:
            return f"application/json;as={_METADATA[self.verb]};g=meta.k8s.io;v=v1"
        return "application/json"

    def __str__(self) -> str:
        at = "/".join(step for step in (self.namespace, self.name, self.subresource) if step)
        return f"{self.verb} {self.kind.resource} {at}".strip()


def escape_step(step: str) -> str:
    """One step of a path, so that no name leads elsewhere. InvalidRequest where a server would go up by it."""
    if step in (".", ".."):
        raise InvalidRequest("The object has an invalid name", given=step)
    return quote(step, safe="")


@dataclass(frozen=True)
class ApiResponse:
    status: int
    body: Document
    retry_after_s: float | None = None


class ClusterPort(ABC):
    """A Kubernetes cluster: each method is one request."""

    @abstractmethod
    async def send(self, request: ApiRequest, within_s: float) -> ApiResponse | Denied:
        """The answer to it, or a Denied with UNKNOWN where none came in time."""

    @abstractmethod
    async def close(self) -> None:
        """End it: calls under way end as UNKNOWN."""

    async def get(
        self, at: ObjectAddress, *, metadata_only: bool = False, within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        asked = ApiRequest("get", at.kind, at.namespace, at.name, metadata_only=metadata_only)
        return read_object(await self.send(asked, within_s))

    async def list(
        self,
        kind: ResourceKind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int | None = None,
        more: str | None = None,
        metadata_only: bool = False,
        within_s: float = CALL_WITHIN_S,
    ) -> ListPage | Denied:
        """Objects of a kind, of all namespaces unless one is named. `labels` and `fields` are selectors.

        It is as current as a quorum read: what was written before it began is in it.
        """
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": str(limit) if limit else "",
            "continue": more or "",
        }
        given = {name: value for name, value in query.items() if value}
        asked = ApiRequest("list", kind, namespace, query=given, metadata_only=metadata_only)
        return read_page(await self.send(asked, within_s), kind)

    async def apply(
        self,
        document: Document,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        within_s: float = CALL_WITHIN_S,
    ) -> ApiObject | Denied:
        """Server-side apply: sets the fields of the document, and removes fields that this manager applied before.

        With `metadata.uid` it never makes an object, and never changes another of its name: `Denied.is_of_another`.
        On `status` the server heeds no uid, only a `metadata.resourceVersion`.
        """
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._write("apply", address_of(document), document, query, subresource, within_s)

    async def create(
        self, document: Document, *, manager: str, within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        """Make the object; CONFLICT (AlreadyExists) if one is there."""
        at = address_of(document)
        asked = ApiRequest("create", at.kind, at.namespace, query={"fieldManager": manager}, body=document)
        return read_object(await self.send(asked, within_s))

    async def replace(
        self, document: Document, *, manager: str, subresource: str = "", within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        """Write the whole object (PUT). With `metadata.resourceVersion`: CONFLICT if it is another by now."""
        query = {"fieldManager": manager}
        return await self._write("replace", address_of(document), document, query, subresource, within_s)

    async def patch(
        self,
        at: ObjectAddress,
        change: Document,
        *,
        manager: str,
        subresource: str = "",
        within_s: float = CALL_WITHIN_S,
    ) -> ApiObject | Denied:
        """JSON merge patch. For finalizers it carries uid and resourceVersion: lists are replaced as a whole."""
        return await self._write("patch", at, change, {"fieldManager": manager}, subresource, within_s)

    async def _write(
        self,
        verb: Verb,
        at: ObjectAddress,
        body: Document,
        query: Mapping[str, str],
        subresource: str,
        within_s: float,
    ) -> ApiObject | Denied:
        asked = ApiRequest(verb, at.kind, at.namespace, at.name, subresource, query, body)
        return read_object(await self.send(asked, within_s))

    async def delete(
        self,
        at: ObjectAddress,
        *,
        uid: str | None = None,
        version: str | None = None,
        propagation: Propagation = "Background",
        within_s: float = CALL_WITHIN_S,
    ) -> Deleted | Denied:
        """Delete that object: of this uid, at this resourceVersion, where they are given, else CONFLICT."""
        given = {"uid": uid, "resourceVersion": version}
        preconditions = {name: value for name, value in given.items() if value is not None}
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if preconditions:
            options["preconditions"] = preconditions
        answer = await self.send(ApiRequest("delete", at.kind, at.namespace, at.name, body=options), within_s)
        if isinstance(answer, Denied) or answer.status >= 300:
            return as_denied(answer)
        return Deleted(gone="deletionTimestamp" not in answer.body.get("metadata", {}))

    async def emit(self, note: Note, *, within_s: float = CALL_WITHIN_S) -> Denied | None:
        answer = await self.create(event_of(note), manager=note.reporter, within_s=within_s)
        return answer if isinstance(answer, Denied) else None

    async def read_lease(self, namespace: str, name: str, *, within_s: float = CALL_WITHIN_S) -> LeaderLease | Denied:
        answer = await self.get(ObjectAddress(LEASE, namespace, name), within_s=within_s)
        return answer if isinstance(answer, Denied) else lease_of(answer.document)

    async def write_lease(self, lease: LeaderLease, *, within_s: float = CALL_WITHIN_S) -> LeaderLease | Denied:
        """Make it (version None), or write it if it is still at its version; the answer has the new version."""
        document = lease_document(lease)
        if lease.version is None:
            written = await self.create(document, manager=lease.holder or "headgate-operator", within_s=within_s)
        else:
            written = await self.replace(document, manager=lease.holder or "headgate-operator", within_s=within_s)
        return written if isinstance(written, Denied) else lease_of(written.document)


# ---- reading answers


def read_object(answer: ApiResponse | Denied) -> ApiObject | Denied:
    if isinstance(answer, Denied) or answer.status >= 300:
        return as_denied(answer)
    return ApiObject(answer.body)


def read_page(answer: ApiResponse | Denied, kind: ResourceKind) -> ListPage | Denied:
    """The objects of a list, each with its kind: items leave it out, or have PartialObjectMetadata."""
    if isinstance(answer, Denied) or answer.status >= 300:
        return as_denied(answer)
    words = {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = answer.body.get("metadata", {})
    items = tuple({**item, **words} for item in answer.body.get("items") or ())
    return ListPage(items, metadata.get("resourceVersion", ""), metadata.get("continue") or None)


_DENIALS: Final[Mapping[int, Denial]] = {
    400: Denial.MALFORMED,
    401: Denial.UNAUTHORIZED,
    403: Denial.FORBIDDEN,
    404: Denial.NOT_FOUND,
    409: Denial.CONFLICT,
    410: Denial.GONE,
    422: Denial.INVALID,
    429: Denial.THROTTLED,
}


def as_denied(answer: ApiResponse | Denied) -> Denied:
    """The answer of a server to a request that it has not fulfilled."""
    if isinstance(answer, Denied):
        return answer
    status = answer.body if answer.body.get("kind") == "Status" else {}
    details = status.get("details") or {}
    wait_s = answer.retry_after_s
    return Denied(
        _DENIALS.get(answer.status, Denial.BROKEN),
        answer.status,
        str(status.get("reason") or ""),
        str(status.get("message") or answer.body.get("message") or ""),
        tuple(_cause(cause) for cause in details.get("causes") or ()),
        float(details["retryAfterSeconds"]) if wait_s is None and details.get("retryAfterSeconds") else wait_s,
    )


def _cause(cause: Mapping[str, Any]) -> Cause:
    return Cause(str(cause.get("reason", "")), str(cause.get("field", "")), str(cause.get("message", "")))


def no_answer(message: str) -> Denied:
    """Nobody knows whether it was done."""
    return Denied(Denial.UNKNOWN, 0, "NoAnswer", message)


# ---- documents


def micro_time(at_us: int) -> str:
    return (
        datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{at_us % 1_000_000:06d}Z"
    )


def read_time_us(written: str | None) -> int:
    """Microseconds since 1970 of a time as Kubernetes writes it, with or without a fraction; 0 for none."""
    if not written:
        return 0
    time = datetime.fromisoformat(written)
    return int(time.replace(microsecond=0).timestamp()) * 1_000_000 + time.microsecond


def lease_document(lease: LeaderLease) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": lease.namespace, "name": lease.name}
    if lease.version is not None:
        metadata["resourceVersion"] = lease.version
    spec = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.ttl_s,
        "acquireTime": micro_time(lease.acquired_us),
        "renewTime": micro_time(lease.renewed_us),
        "leaseTransitions": lease.transitions,
    }
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


def lease_of(document: Document) -> LeaderLease:
    """The Lease that a document holds; somebody else may have left fields out."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    return LeaderLease(
        namespace=metadata["namespace"],
        name=metadata["name"],
        holder=spec.get("holderIdentity") or "",
        ttl_s=spec.get("leaseDurationSeconds") or 0,
        acquired_us=read_time_us(spec.get("acquireTime")),
        renewed_us=read_time_us(spec.get("renewTime")),
        transitions=spec.get("leaseTransitions") or 0,
        version=metadata["resourceVersion"],
    )


def event_of(note: Note) -> dict[str, Any]:
    """The event as a document; its name contains its time, so that one sent twice is one."""
    at = note.regarding
    namespace = at.namespace or "default"
    regarding = {"apiVersion": at.kind.api_version, "kind": at.kind.kind, "name": at.name, "uid": note.uid}
    if at.namespace:
        regarding["namespace"] = at.namespace
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"namespace": namespace, "name": f"{at.name[:NAME_MAX]}.{note.at_us:x}"},
        "eventTime": micro_time(note.at_us),
        "reportingController": f"headgate.io/{note.reporter}",
        "reportingInstance": note.instance,
        "action": note.reason,
        "reason": note.reason,
        "note": note.message[:1024],
        "type": note.type,
        "regarding": regarding,
    }
