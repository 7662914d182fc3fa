"""Answers of a Kubernetes cluster to the operator's requests (`requests.py`), as frozen values.

No request raises for a fault of a server or a network: each returns a value, and for a request that was not fulfilled
a `Denied`. Documents are plain JSON as Kubernetes writes them.

Every caller has to handle `UNKNOWN`: the request may have landed, or may still land later. So every request of the
operator may be repeated: server-side apply of whole documents with uids, deletes with uids, replacements with a
resourceVersion.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from headgate_operator.model.kinds import Document, ObjectAddress

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
    """The resourceVersion of the list."""
    more: str | None = None
    """The token that continues it, if it was cut."""


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


@dataclass(frozen=True)
class Access:
    """The address of the API server, and the identity of requests."""

    server: str
    authority: str | None = None
    """A file with the certificates that are trusted."""
    certificate: str | None = None
    private_key: str | None = None
    token: str | None = None
    is_insecure: bool = False
    proxy: str | None = None
    """By which it is reached, if not straight."""
