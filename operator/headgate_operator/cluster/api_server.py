"""A real API server behind `ClusterPort`: the only file that names the Kubernetes client.

Of the client it uses what is worth having: how to find a cluster and get in (kubeconfig, a pod's account and its
rotated token, client certificates), and its one pool of connections. Documents go over the wire as plain JSON.

Every call ends in time. A call without an answer is a `Denied` with UNKNOWN, whether the connection was refused,
ended, or hung; nothing is sent again here. Calls keep a pace, except those about Leases: the leader must be able to
renew under any load.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.config.config_exception import ConfigException
from yarl import URL

from headgate.errors import EnvironmentProblem
from headgate.process.pacing import RateLimit
from headgate_operator.cluster.json_stream import parse
from headgate_operator.cluster.port import Access, Denied
from headgate_operator.cluster.requests import ApiRequest, ApiResponse, ClusterPort, as_denied, no_answer
from headgate_operator.model.kinds import LEASE, Document

CONNECTIONS_MAX: Final = 64
QPS: Final = 100.0
BURST: Final = 200
QUIET_MAX_S: Final = 90.0
"""A watch with bookmarks that is silent for this long hangs: API servers send one every minute."""
USER_AGENT: Final = "headgate-operator"


class NoCluster(EnvironmentProblem):
    """No Kubernetes cluster is known here."""


class HttpApiClient(ClusterPort):
    """A cluster, over one ApiClient."""

    def __init__(self, api: client.ApiClient, *, qps: float = QPS, burst: int = BURST) -> None:
        self._api = api
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
                response = await self._open(request, aiohttp.ClientTimeout(total=within_s))
                body = await response.read()
                return ApiResponse(response.status, await _parsed(body), _retry_after_s(response))
        except TimeoutError:
            return no_answer(f"{request.method} {request.path}: no answer in {within_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as failed:
            return no_answer(f"{request.method} {request.path}: {type(failed).__name__}: {failed}")

    async def follow(self, request: ApiRequest, within_s: float) -> AsyncIterator[Document | Denied]:
        response: aiohttp.ClientResponse | None = None
        limits = aiohttp.ClientTimeout(total=within_s + QUIET_MAX_S, sock_read=QUIET_MAX_S)
        try:
            response = await self._open(request, limits)
            if response.status >= 300:
                yield as_denied(
                    ApiResponse(response.status, await _parsed(await response.read()), _retry_after_s(response))
                )
                return
            while line := await response.content.readline():
                if not line.endswith(b"\n"):
                    break  # the connection ended within an event
                event: Document = json.loads(line)
                yield event
        except TimeoutError:
            yield no_answer(f"watch {request.path}: nothing for {QUIET_MAX_S:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as failed:
            yield no_answer(f"watch {request.path}: {type(failed).__name__}: {failed}")
        finally:
            if response is not None:
                response.close()

    async def _open(self, request: ApiRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        method, url, headers, _, _ = await self._api.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            header_params=request.headers,
            auth_settings=["BearerToken"],
        )
        answered = await self._api.call_api(
            method,
            URL(url, encoded=True),  # it is escaped, and is sent as it stands
            headers,
            None if request.body is None else dict(request.body),
            _request_timeout=limits,
        )
        response: aiohttp.ClientResponse = answered.response
        return response

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


async def _parsed(body: bytes) -> dict[str, Any]:
    """The JSON of an answer; what is not JSON (a proxy's page, a plain refusal under load) is its message."""
    try:
        document = await parse(body) if body else {}
    except ValueError:
        return {"message": body[:500].decode(errors="replace").strip()}
    return document if isinstance(document, dict) else {"message": str(document)[:500]}


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdigit() else None
