"""Refusals of the simulated API server, in the words of a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate_operator.asking import Answer, Request
from headgate_operator.kinds import Kind
from headgate_operator.port import Cause


class Refusal(Exception):
    """A request is not fulfilled; the answer has the reason."""

    def __init__(self, answer: Answer) -> None:
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
    return Refusal(Answer(status, body, retry_after_s))


def _named(kind: Kind, name: str | None) -> str:
    return f'{kind.resource} "{name}"'


def unknown_kind() -> Refusal:
    """No such kind here: its CRD is not installed."""
    return refusal(404, "NotFound", "the server could not find the requested resource")


def not_found(kind: Kind, name: str | None) -> Refusal:
    """No such object."""
    return refusal(404, "NotFound", f"{_named(kind, name)} not found")


def already_exists(kind: Kind, name: str) -> Refusal:
    """The name is taken."""
    return refusal(409, "AlreadyExists", f"{_named(kind, name)} already exists")


def modified(kind: Kind, name: str) -> Refusal:
    """It is at another resourceVersion."""
    says = "the object has been modified; please apply your changes to the latest version and try again"
    return refusal(409, "Conflict", f"Operation cannot be fulfilled on {_named(kind, name)}: {says}")


def uid_but_absent(kind: Kind, name: str, uid: str) -> Refusal:
    """An apply with a uid never makes an object."""
    says = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    return refusal(409, "Conflict", f"Operation cannot be fulfilled on {_named(kind, name)}: {says}")


def precondition(kind: Kind, name: str, what: str, wanted: str, found: str) -> Refusal:
    """A delete is for another object than the one that is there, or for another state of it."""
    then = {
        "UID": "The object might have been deleted and then recreated",
        "ResourceVersion": "The object might have been modified",
    }[what]
    says = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {then}"
    return refusal(409, "Conflict", f'Operation cannot be fulfilled on {kind.kind}.{kind.group} "{name}": {says}')


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Refusal:
    """A schema or a rule refuses it."""
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    says = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    group = f".{kind.group}" if kind.group else ""
    return refusal(422, "Invalid", f'{kind.kind}{group} "{name}" is invalid: {says}', causes=causes)


def terminating(kind: Kind, name: str, namespace: str) -> Refusal:
    """Its namespace is being deleted."""
    cause = Cause("NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated")
    says = f"unable to create new content in namespace {namespace} because it is being terminated"
    return refusal(403, "Forbidden", f"{_named(kind, name)} is forbidden: {says}", causes=[cause])


def too_old(wanted: str, oldest: int) -> Refusal:
    """The history that was asked for is compacted."""
    return refusal(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def throttled(retry_after_s: float) -> Refusal:
    """Too much at once."""
    says = "Too many requests, please try again later."
    return refusal(429, "TooManyRequests", says, retry_after_s=retry_after_s)


def broken(says: str = "etcdserver: request timed out") -> Refusal:
    """The server could not do it, or does not know whether it has."""
    return refusal(500, "InternalError", f"Internal error occurred: {says}")


def malformed(says: str) -> Refusal:
    """Not understood."""
    return refusal(400, "BadRequest", says)


def untyped(request: Request, says: str) -> Refusal:
    """A document that server-side apply cannot read by its kind's schema: a real server calls that its own error."""
    kind = request.kind
    where = f"{request.namespace}/{request.name}; {kind.api_version}, Kind={kind.kind}"
    return refusal(500, "", f"failed to create typed patch object ({where}): {says}")


def success(body: Mapping[str, Any], status: int = 200) -> Answer:
    """It was done."""
    return Answer(status, body)
