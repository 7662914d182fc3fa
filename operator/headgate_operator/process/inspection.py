"""The operator's explanations: /why, its last decisions about a key, and /plan, its next changes.

It is served twice. On 127.0.0.1 of the pod it asks for no login: only `kubectl port-forward` leads there, and RBAC
guards it. At any other address it is served over TLS, and each request needs a token of the cluster and the rights
that its answer reveals (inspection_login.py).

Nothing can be changed by it. Bodies are small, and names are checked before anything is read by them.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from headgate.api.rules.bounds import SPEC_BYTES_MAX
from headgate.api.values.names import NamespaceName, QueueName
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.process.http_server import HttpServer
from headgate_operator.model.names import Key, KeyKind
from headgate_operator.process.inspection_login import (
    AccessDenied,
    Login,
    NotLoggedIn,
    Permission,
    permissions_to_plan,
    permissions_to_read,
)

KINDS: Final[Mapping[str, KeyKind]] = {"queue": "Queue", "counter": "Counter", "namespace": "Namespace"}
BODY_MAX: Final = SPEC_BYTES_MAX + 16 * 1024
"""The largest resource, with its metadata and every default written out."""
Handler = Callable[[web.Request], Awaitable[web.Response]]
_NAME: Final[TypeAdapter[str]] = TypeAdapter(QueueName)
_NAMESPACE: Final[TypeAdapter[str]] = TypeAdapter(NamespaceName)


class StandsBy(Unavailable):
    """This operator stands by, and only the leading one decides."""


@dataclass(frozen=True)
class InspectionAccess:
    """What a port needs that more can reach than `kubectl port-forward`."""

    login: Login
    tls: ssl.SSLContext
    is_leading: Callable[[], bool]


def inspection_server(
    why_of: Callable[[Key], list[dict[str, Any]]],
    plan_of: Callable[[Key, Mapping[str, Any] | None], Awaitable[Mapping[str, Any]]],
    leader: Callable[[], str],
    *,
    access: InspectionAccess | None = None,
) -> HttpServer:
    """`access`: how callers log in; None for loopback, where they have."""

    async def require(request: web.Request, permissions: Sequence[Permission]) -> None:
        if access is None:
            return
        await access.login.require(request.headers.get("Authorization", ""), permissions)
        if not access.is_leading():
            raise StandsBy(leader=leader(), remedy="retry, and reach the other one")

    async def why(request: web.Request) -> web.Response:
        key = key_of(request.match_info)
        await require(request, permissions_to_read(key))
        return _json(200, {"key": key.path, "leader": leader(), "decisions": why_of(key)})

    async def plan(request: web.Request) -> web.Response:
        key = key_of(request.match_info)
        await require(request, permissions_to_read(key))
        return _json(200, await plan_of(key, None))

    async def plan_of_document(request: web.Request) -> web.Response:
        """Of a resource as it would be, if this document were applied."""
        await require(request, ())  # before the body of a stranger is read
        try:
            document = json.loads(await request.text())
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        key = key_of_document(document)
        await require(request, permissions_to_plan(key, document))
        return _json(200, await plan_of(key, document))

    def answering(handler: Handler, *, invalid: int) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            try:
                return await handler(request)
            except web.HTTPRequestEntityTooLarge:
                message = f"the document is larger than {BODY_MAX // 1024} KiB, and so than any valid resource"
                return _json(413, {"error": message})
            except RecursionError:
                return _json(400, {"error": "the document is nested too deep for a resource"})
            except InvalidRequest as error:
                return _json(invalid, {"error": str(error)})
            except NotLoggedIn as error:
                return _json(401, {"error": str(error)}, {"WWW-Authenticate": "Bearer"})
            except AccessDenied as error:
                return _json(403, {"error": str(error)})
            except StandsBy as error:
                return _json(503, {"error": str(error), "standby": True})
            except HeadgateError as error:
                return _json(503, {"error": str(error)})

        return answer

    routes = [
        web.get("/why/{kind}/{namespace}/{name}", answering(why, invalid=404)),
        web.get("/plan/{kind}/{namespace}/{name}", answering(plan, invalid=404)),
        web.post("/plan", answering(plan_of_document, invalid=400)),
    ]
    option = "--inspection" if access is None else "--inspection-login"
    tls = None if access is None else access.tls
    return HttpServer(routes, purpose="/why and /plan", option=option, body_max=BODY_MAX, tls=tls)


def key_of(steps: Mapping[str, str]) -> Key:
    """Of the steps of a path. InvalidRequest where one of them is not a valid name of a resource."""
    kind = KINDS.get(steps["kind"].lower())
    if kind is None:
        raise InvalidRequest("The kind has to be queue, counter or namespace", given=steps["kind"])
    namespace = _checked(_NAMESPACE, "namespace", steps["namespace"])
    return Key(kind, namespace, _checked(_NAMESPACE if kind == "Namespace" else _NAME, "name", steps["name"]))


def key_of_document(document: Any) -> Key:
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    if (
        not isinstance(metadata, Mapping)
        or document.get("kind") not in ("Queue", "Counter")
        or "name" not in metadata
    ):
        raise InvalidRequest("The document is not a Queue and not a Counter", remedy="send one as JSON")
    namespace = _checked(_NAMESPACE, "metadata.namespace", metadata.get("namespace") or "default")
    return Key(cast(KeyKind, document["kind"]), namespace, _checked(_NAME, "metadata.name", metadata["name"]))


def _checked(shape: TypeAdapter[str], field: str, value: object) -> str:
    """By the API's own patterns."""
    try:
        return shape.validate_python(value, strict=True)
    except ValidationError:
        raise InvalidRequest(f"{field} is not a valid name of a resource", given=str(value)[:100]) from None


def _json(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> web.Response:
    text = json.dumps(body, default=str)
    return web.Response(text=text, status=status, content_type="application/json", headers=headers)
