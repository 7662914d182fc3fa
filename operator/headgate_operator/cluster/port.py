"""The operator's requests to a Kubernetes cluster and their answers: protocols and frozen values.

It does not know the implementation: `api_server.py` (a real API server) or the simulated one of the tests. No method
raises for a fault of a server or a network: each returns a value, and for a request that was not fulfilled a
`Denied`. A method raises `Bug` for a document that no server could take. Documents are plain JSON as Kubernetes
writes them.

Every caller has to handle `UNKNOWN`: the request may have landed, or may still land later. So every request of the
operator may be repeated: server-side apply of whole documents with uids, deletes with uids, replacements with a
resourceVersion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol

from headgate_operator.model.kinds import Document, ObjectAddress, ResourceKind, address_of, kind_of

__all__ = [
    "CALL_WITHIN_S",
    "ApiObject",
    "Cause",
    "ClusterPort",
    "Deleted",
    "Denial",
    "Denied",
    "LeaderLease",
    "ListPage",
    "Note",
    "ObjectAddress",
    "Propagation",
    "ResourceKind",
    "WatchEvent",
    "address_of",
    "kind_of",
]  # fmt: skip


CALL_WITHIN_S: Final = 10.0
"""No call takes longer than this by default."""

Propagation = Literal["Background", "Foreground", "Orphan"]


class Denial(Enum):
    """Why it was not done, as far as that decides what to do next."""

    MALFORMED = "malformed"
    """400: not understood. A mistake of ours."""
    UNAUTHORIZED = "unauthorized"
    """401: it does not know us (any more)."""
    FORBIDDEN = "forbidden"
    """403: no right, a quota, an admission rule, or the namespace terminates."""
    NOT_FOUND = "not found"
    """404: no such object, kind or namespace."""
    CONFLICT = "conflict"
    """409: somebody was first: another uid or resourceVersion, another manager's field, the name is taken."""
    GONE = "gone"
    """410: the version or the continuation asked for is compacted: list again."""
    INVALID = "invalid"
    """422: a rule or a schema refuses it; `causes` name the fields."""
    THROTTLED = "throttled"
    """429: later, `retry_after_s`; it was not done."""
    BROKEN = "broken"
    """5xx, and whatever else is not in this list: it may or may not have been done."""
    UNKNOWN = "unknown"
    """No answer: a timeout, or a connection that ended. It may have been done, or be done later."""


@dataclass(frozen=True)
class Cause:
    """One field with the fault that a server reports."""

    reason: str
    """FieldValueInvalid, FieldManagerConflict, ..."""
    field: str
    message: str


@dataclass(frozen=True)
class Denied:
    """It was not done, or nobody knows."""

    denial: Denial
    status: int
    """Of HTTP; 0 where there was no answer."""
    reason: str
    """The server's word: AlreadyExists, Conflict, Invalid, NamespaceTerminating (of a cause), ..."""
    message: str
    causes: tuple[Cause, ...] = ()
    retry_after_s: float | None = None

    @property
    def may_have_landed(self) -> bool:
        """Whether the object may have been changed all the same, now or later."""
        return self.denial in (Denial.UNKNOWN, Denial.BROKEN)

    @property
    def is_permanent(self) -> bool:
        """Whether the same request will be refused again until somebody changes something."""
        return self.denial in (Denial.MALFORMED, Denial.FORBIDDEN, Denial.INVALID, Denial.UNAUTHORIZED)

    @property
    def is_of_another(self) -> bool:
        """Whether the named uid is not that of the object, or there is no object.

        An apply reports it in two ways: 409 without an object, 422 on `metadata.uid` with another one.
        """
        if self.denial is Denial.CONFLICT:
            return "uid mismatch" in self.message or "UID in" in self.message
        return self.denial is Denial.INVALID and any(cause.field == "metadata.uid" for cause in self.causes)

    @property
    def namespace_terminates(self) -> bool:
        """Whether it was refused since its namespace is being deleted."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    def __str__(self) -> str:
        return f"{self.status or 'no answer'} {self.reason}: {self.message}"


@dataclass(frozen=True)
class ApiObject:
    """An object as the server now holds it; also the answer to a question for it."""

    document: Document

    @property
    def uid(self) -> str:
        """The object's own, never given to another."""
        return str(self.document["metadata"]["uid"])

    @property
    def version(self) -> str:
        """Its resourceVersion: an echo of this write is known by it."""
        return str(self.document["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class Deleted:
    """The server took the order to delete."""

    gone: bool
    """Whether it is gone already; else finalizers, children or a grace period hold it."""


@dataclass(frozen=True)
class ListPage:
    """Objects of a kind, or the next of them."""

    items: tuple[Document, ...]
    version: str
    """The resourceVersion of the list: a watch from here misses nothing."""
    more: str | None = None
    """The token that continues it, if it was cut."""


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch. A bookmark has a document with only its kind and resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    document: Document

    @property
    def version(self) -> str:
        """The version from which the watch can be resumed."""
        return str(self.document["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class LeaderLease:
    """A Lease of coordination.k8s.io for leader election. `process/leader_election.py` interprets its times."""

    namespace: str
    name: str
    holder: str
    """Empty: given up."""
    ttl_s: int
    acquired_us: int
    renewed_us: int
    transitions: int = 0
    version: str | None = None
    """The resourceVersion that it was read or written at; None: not made yet."""


@dataclass(frozen=True)
class Note:
    """An event (events.k8s.io) about an object."""

    regarding: ObjectAddress
    uid: str
    reason: str
    message: str
    at_us: int
    type: Literal["Normal", "Warning"] = "Normal"
    reporter: str = "headgate-operator"
    instance: str = "headgate-operator"
    """The pod that reports it."""


class ClusterPort(Protocol):
    """A Kubernetes cluster."""

    async def get(
        self, at: ObjectAddress, *, metadata_only: bool = False, within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        """The object, as the server holds it now."""

    async def list(
        self,
        kind: ResourceKind,
        namespace: str | None = None,
        *,
        labels: str = "",
        limit: int | None = None,
        more: str | None = None,
        cached: bool = False,
        metadata_only: bool = False,
        within_s: float = CALL_WITHIN_S,
    ) -> ListPage | Denied:
        """Objects of a kind, of all namespaces unless one is named. `labels` is a selector.

        `cached`: from the server's cache (resourceVersion=0), which may be a little behind and never goes back.
        """

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

    async def create(
        self, document: Document, *, manager: str, within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        """Make the object; CONFLICT (AlreadyExists) if one is there."""

    async def replace(
        self, document: Document, *, manager: str, subresource: str = "", within_s: float = CALL_WITHIN_S
    ) -> ApiObject | Denied:
        """Write the whole object (PUT). With `metadata.resourceVersion`: CONFLICT if it is another by now."""

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

    def watch(
        self,
        kind: ResourceKind,
        namespace: str | None = None,
        *,
        version: str = "",
        labels: str = "",
        within_s: float = 300,
    ) -> AsyncIterator[WatchEvent | Denied]:
        """The changes after that resourceVersion, with bookmarks; ends with a Denied, or without one after a
        while."""

    async def emit(self, note: Note, *, within_s: float = CALL_WITHIN_S) -> Denied | None:
        """Write an event."""

    async def read_lease(self, namespace: str, name: str, *, within_s: float = CALL_WITHIN_S) -> LeaderLease | Denied:
        """The Lease as it stands."""

    async def write_lease(self, lease: LeaderLease, *, within_s: float = CALL_WITHIN_S) -> LeaderLease | Denied:
        """Make it (version None), or write it if it is still at its version; the answer has the new version."""

    async def close(self) -> None:
        """End it: calls under way end as UNKNOWN."""
