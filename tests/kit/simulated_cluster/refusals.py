"""Refusals of the simulated API server, in the words of a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate_operator.cluster.port import Cause
from headgate_operator.cluster.requests import ApiRequest, ApiResponse
from headgate_operator.model.kinds import ResourceKind


class Refusal(Exception):
    """A request is not fulfilled; the answer has the reason."""

    def __init__(self, answer: ApiResponse) -> None:
        self.answer = answer
        super().__init__(str(answer.body.get("message")))


def refusal(
    status: int,
    reason: str,
    message: str,
    *,
    causes: Sequence[Cause] = (),
    retry_after_s: float | None = None,
) -> Refusal:
    """A refusal as a Status."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": status,
    }
    return Refusal(ApiResponse(status, body, retry_after_s))


def _named(kind: ResourceKind, name: str | None) -> str:
    return f'{kind.resource} "{name}"'


def unknown_kind() -> Refusal:
    """No such kind here: its CRD is not installed."""
    return refusal(404, "NotFound", "the server could not find the requested resource")


def not_found(kind: ResourceKind, name: str | None) -> Refusal:
    """No such object."""
    return refusal(404, "NotFound", f"{_named(kind, name)} not found")


def already_exists(kind: ResourceKind, name: str) -> Refusal:
    """The name is taken."""
    return refusal(409, "AlreadyExists", f"{_named(kind, name)} already exists")


def modified(kind: ResourceKind, name: str) -> Refusal:
    """It is at another resourceVersion."""
    message = "the object has been modified; please apply your changes to the latest version and try again"
    return refusal(409, "Conflict", f"Operation cannot be fulfilled on {_named(kind, name)}: {message}")


def uid_but_absent(kind: ResourceKind, name: str, uid: str) -> Refusal:
    """An apply with a uid never makes an object."""
    message = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    return refusal(409, "Conflict", f"Operation cannot be fulfilled on {_named(kind, name)}: {message}")


def precondition(kind: ResourceKind, name: str, what: str, wanted: str, actual: str) -> Refusal:
    """A delete is for another object than the one that is there, or for another state of it."""
    then = {
        "UID": "The object might have been deleted and then recreated",
        "ResourceVersion": "The object might have been modified",
    }[what]
    message = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). {then}"
    return refusal(409, "Conflict", f'Operation cannot be fulfilled on {kind.kind}.{kind.group} "{name}": {message}')


def invalid(kind: ResourceKind, name: str, causes: Sequence[Cause]) -> Refusal:
    """A schema or a rule refuses it."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    group = f".{kind.group}" if kind.group else ""
    return refusal(422, "Invalid", f'{kind.kind}{group} "{name}" is invalid: {message}', causes=causes)


def terminating(kind: ResourceKind, name: str, namespace: str) -> Refusal:
    """Its namespace is being deleted."""
    cause = Cause("NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated")
    message = f"unable to create new content in namespace {namespace} because it is being terminated"
    return refusal(403, "Forbidden", f"{_named(kind, name)} is forbidden: {message}", causes=[cause])


def too_old(wanted: str, oldest: int) -> Refusal:
    """The history that was asked for is compacted."""
    return refusal(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def throttled(retry_after_s: float) -> Refusal:
    """Too much at once."""
    message = "Too many requests, please try again later."
    return refusal(429, "TooManyRequests", message, retry_after_s=retry_after_s)


def broken(message: str = "etcdserver: request timed out") -> Refusal:
    """The server could not do it, or does not know whether it has."""
    return refusal(500, "InternalError", f"Internal error occurred: {message}")


def malformed(message: str) -> Refusal:
    """Not understood."""
    return refusal(400, "BadRequest", message)


def untyped(request: ApiRequest, message: str) -> Refusal:
    """A document that server-side apply cannot read by its kind's schema: a real server calls that its own error."""
    kind = request.kind
    where = f"{request.namespace}/{request.name}; {kind.api_version}, Kind={kind.kind}"
    return refusal(500, "", f"failed to create typed patch object ({where}): {message}")


def success(body: Mapping[str, Any], status: int = 200) -> ApiResponse:
    """It was done."""
    return ApiResponse(status, body)
