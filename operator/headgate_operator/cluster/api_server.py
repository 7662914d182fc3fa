"""A real API server behind `ClusterPort`: the only file that names the Kubernetes client.

`kubernetes.aio` finds the cluster and gets in (kubeconfig, a pod's account and its rotated token, client
certificates), and its dynamic client sends the requests over one pool of connections. The operator knows its kinds,
so the client discovers none. Documents stay plain: what its `ResourceInstance` would wrap is parsed here.

Every call ends in time. A call without an answer is a `Denied` with UNKNOWN, whether the connection was refused,
ended, or hung; nothing is sent again here. Calls keep a pace, except those about Leases: the leader must be able to
renew under any load.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.dynamic import DynamicClient, Resource, Subresource
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from headgate.errors import EnvironmentProblem
from headgate.process.pacing import RateLimit
from headgate_operator.cluster.port import Access, Denied
from headgate_operator.cluster.requests import ApiRequest, ApiResponse, ClusterPort, Verb, escape_step, no_answer
from headgate_operator.model.kinds import LEASE

CONNECTIONS_MAX: Final = 64
QPS: Final = 100.0
BURST: Final = 200
USER_AGENT: Final = "headgate-operator"


class NoCluster(EnvironmentProblem):
    """No Kubernetes cluster is known here."""


class HttpApiClient(ClusterPort):
    """A cluster, over one ApiClient."""

    def __init__(self, api: client.ApiClient, *, qps: float = QPS, burst: int = BURST) -> None:
        self._api = api
        # It is not awaited: that would discover all kinds of the cluster.
        self._dynamic = DynamicClient(api)  # type: ignore[no-untyped-call]
        self._pace = RateLimit(qps, burst)

    @classmethod
    async def connect(
        cls, *, kubeconfig: str | None = None, context: str | None = None, qps: float = QPS, burst: int = BURST
    ) -> HttpApiClient:
        """The cluster of a kubeconfig, if one is named; else that of this pod; else the default kubeconfig's."""
        settings = client.Configuration(connection_pool_maxsize=CONNECTIONS_MAX)
        settings.client_session_kwargs = {"trust_env": False}
        # As every other client of Kubernetes: many clusters' own authorities lack what strict checking asks for.
        settings.disable_strict_ssl_verification = True
        try:
            if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=kubeconfig, context=context, client_configuration=settings, persist_config=False
                )
        except (ConfigException, OSError, ValueError, TypeError) as wrong:
            where = kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config"))
            raise NoCluster(
                None, cause=str(wrong), kubeconfig=where, remedy="name one by --kubeconfig and --context"
            ) from None
        settings.proxy = settings.proxy or proxy_to(settings.host)
        api = client.ApiClient(settings)
        api.user_agent = USER_AGENT
        return cls(api, qps=qps, burst=burst)

    async def send(self, request: ApiRequest, within_s: float) -> ApiResponse | Denied:
        try:
            async with asyncio.timeout(within_s):
                if request.kind is not LEASE:
                    await self._pace.turn()
                response = await self._call(request, aiohttp.ClientTimeout(total=within_s))
                return ApiResponse(response.status, _parsed(await response.read()), _retry_after_s(response.headers))
        except DynamicApiError as refused:
            return ApiResponse(refused.status, _parsed(refused.body or ""), _retry_after_s(refused.headers or {}))
        except TimeoutError:
            return no_answer(f"{request}: no answer in {within_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as failed:
            return no_answer(f"{request}: {type(failed).__name__}: {failed}")

    async def _call(self, request: ApiRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The answer, still to be read; DynamicApiError where the server refuses."""
        calls: Mapping[Verb, Callable[..., Awaitable[aiohttp.ClientResponse]]] = {
            "get": self._dynamic.get,
            "list": self._dynamic.get,
            "create": self._dynamic.create,
            "apply": self._dynamic.server_side_apply,
            "replace": self._dynamic.replace,
            "patch": partial(self._dynamic.patch, content_type="application/merge-patch+json"),
            "delete": self._dynamic.delete,
        }
        given: dict[str, Any] = {
            "name": None if request.name is None else escape_step(request.name),
            "namespace": None if request.namespace is None else escape_step(request.namespace),
            "body": None if request.body is None else dict(request.body),
        }
        return await calls[request.verb](
            _resource_of(request),
            **{name: value for name, value in given.items() if value is not None},
            query_params=list(request.query.items()),
            header_params={"Accept": request.accept},
            serialize=False,
            _request_timeout=limits,
        )

    async def access(self) -> Access:
        """The way in, for other clients of this server."""
        settings = self._api.configuration
        token = await settings.get_api_key_with_prefix("BearerToken") or ""  # reads a rotated one again
        return Access(
            server=settings.host,
            authority=settings.ssl_ca_cert,
            certificate=settings.cert_file,
            private_key=settings.key_file,
            token=bare_token(token),
            is_insecure=not settings.verify_ssl,
            proxy=settings.proxy,
        )

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]


def proxy_to(server: str) -> str | None:
    """The proxy of the environment (HTTPS_PROXY, NO_PROXY and the like)."""
    to = urlsplit(server)
    if not to.hostname or proxy_bypass(to.hostname):
        return None
    return getproxies().get(to.scheme)


def bare_token(header: str) -> str | None:
    """Without the scheme before it, which is written in a pod otherwise than where a kubeconfig is read."""
    return header.strip().rpartition(" ")[2] or None


def _resource_of(request: ApiRequest) -> Resource:
    kind = request.kind
    resource = Resource(  # type: ignore[no-untyped-call]
        prefix="apis" if kind.group else "api",
        group=kind.group or None,
        api_version=kind.version,
        kind=kind.kind,
        namespaced=kind.namespaced,
        name=kind.plural,
    )
    if not request.subresource:
        return resource
    name = f"{kind.plural}/{request.subresource}"
    return Subresource(resource, kind=kind.kind, name=name, namespaced=kind.namespaced)  # type: ignore[no-untyped-call]


def _parsed(body: bytes | str) -> dict[str, Any]:
    """The JSON of an answer; what is not JSON (a proxy's page, a plain refusal under load) is its message."""
    try:
        document = json.loads(body) if body else {}
    except ValueError:
        text = body if isinstance(body, str) else body.decode(errors="replace")
        return {"message": text[:500].strip()}
    return document if isinstance(document, dict) else {"message": str(document)[:500]}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    seconds = headers.get("Retry-After", "")
    return float(seconds) if seconds.isdigit() else None
