"""The login of /why and /plan where they are reached without `kubectl port-forward`: a token of the cluster, and the
caller's own rights.

The API server judges both: by a TokenReview whose token it is, and by a SubjectAccessReview each right that the
answer needs. Nothing is kept of a token, and no answer of one caller serves another. A caller with many tokens costs
the operator little: reviews keep a pace of their own, and only a few callers may wait for theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import OperationRefused, Unavailable
from headgate.process.pacing import RateLimit
from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ApiRequest, ClusterPort
from headgate_operator.model.kinds import (
    ACCESS_REVIEW,
    COUNTER,
    QUEUE,
    SECRET,
    TOKEN_REVIEW,
    Document,
    ResourceKind,
)
from headgate_operator.model.names import Key

WITHIN_S: Final = 5.0
PER_S: Final = 5.0
BURST: Final = 10
"""Callers; each costs two requests or three."""
WAITING_MAX: Final = 20


class NotLoggedIn(OperationRefused):
    """The request has no token that the cluster knows."""


class AccessDenied(OperationRefused):
    """The caller lacks a right in this cluster."""


class TooManyCallers(Unavailable):
    """Too many callers wait for their login."""


@dataclass(frozen=True, order=True)
class Permission:
    """A right of RBAC; without a name, on all objects of the namespace."""

    verb: str
    kind: ResourceKind
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.kind.resource}{'/' * bool(self.name)}{self.name} in namespace {self.namespace}"


def permissions_to_read(key: Key) -> tuple[Permission, ...]:
    """To see what the operator knows of a key; of a namespace it knows something of all queues."""
    if key.kind == "Namespace":
        return (Permission("list", QUEUE, key.namespace), Permission("list", COUNTER, key.namespace))
    return (Permission("get", QUEUE if key.kind == "Queue" else COUNTER, key.namespace, key.name),)


def permissions_to_plan(key: Key, document: Mapping[str, Any]) -> tuple[Permission, ...]:
    """To have a document planned: the rights to apply it, and to read the Secret that it names."""
    kind = QUEUE if key.kind == "Queue" else COUNTER
    spec = document.get("spec")
    storage = spec.get("storage") if isinstance(spec, Mapping) else None
    secret = storage.get("connectionSecret") if isinstance(storage, Mapping) else None
    named = (Permission("get", SECRET, key.namespace, str(secret)),) if secret else ()
    return (*permissions_to_read(key), Permission("create", kind, key.namespace), *named)


class Login:
    def __init__(self, port: ClusterPort) -> None:
        self._port = port
        self._pace = RateLimit(PER_S, BURST)
        self._waiting = 0

    async def require(self, authorization: str, permissions: Iterable[Permission]) -> None:
        """Return if the bearer of this header's token has all of these rights; else raise the reason."""
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotLoggedIn(remedy="send a token of this cluster as Authorization: Bearer TOKEN")
        if self._waiting >= WAITING_MAX:
            raise TooManyCallers(remedy="retry later")
        self._waiting += 1
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._pace.turn()
                user = await self._user_of(token.strip())
                for permission in permissions:
                    await self._require_one(user, permission)
        except TimeoutError:
            raise Unavailable("The login takes too long", within_s=WITHIN_S, remedy="retry later") from None
        finally:
            self._waiting -= 1

    async def _user_of(self, token: str) -> Mapping[str, Any]:
        status = await self._review(TOKEN_REVIEW, {"token": token})
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, Mapping) or not user.get("username"):
            raise NotLoggedIn(remedy="send a token that this cluster accepts; it may have expired")
        return user

    async def _require_one(self, user: Mapping[str, Any], permission: Permission) -> None:
        asked = {
            "user": user["username"],
            "groups": list(user.get("groups") or ()),
            "uid": str(user.get("uid") or ""),
            "extra": dict(user.get("extra") or {}),
            "resourceAttributes": {
                "group": permission.kind.group,
                "version": permission.kind.version,
                "resource": permission.kind.plural,
                "namespace": permission.namespace,
                "name": permission.name,
                "verb": permission.verb,
            },
        }
        status = await self._review(ACCESS_REVIEW, asked)
        if status.get("allowed") is not True or status.get("denied") is True:
            raise AccessDenied(remedy=f"ask for the right to {permission}")

    async def _review(self, kind: ResourceKind, spec: Document) -> Mapping[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        answer = await self._port.send(ApiRequest("create", kind, body=body), WITHIN_S)
        if isinstance(answer, Denied) or answer.status >= 300:
            status = "no answer" if isinstance(answer, Denied) else answer.status
            raise Unavailable("The API server does not review the login", answer=status, remedy="retry later")
        review = answer.body.get("status")
        return review if isinstance(review, Mapping) else {}
