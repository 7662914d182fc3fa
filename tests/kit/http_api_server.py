"""The simulated API server behind a socket of this machine, for clients that need one: kopf.

It serves what a watching client asks for: discovery, lists and watches. It can refuse requests of a kind, end its
watches, and forget its history, so that a test sees how such a client continues.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import ResourceKind
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_cluster.watching import Event, Watcher, WatchRequest


class HttpFront:
    """One API server, and what it was asked for."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self.server = ApiServer(now_us=lambda: time.time_ns() // 1000, new_uid=lambda: f"uid-{next(numbers)}")
        self.server.when_written(self._note)
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Plural and query of each list and watch."""
        self.refused: dict[str, int] = {}
        """Lists and watches of these kinds get this status."""
        self.url = ""
        self._watchers: dict[Watcher, asyncio.Queue[Event | None]] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[HttpFront]:
        """On a free port of the loopback device."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.end_watches()
            await runner.cleanup()

    def end_watches(self) -> None:
        """As a server does after some minutes."""
        for queue in self._watchers.values():
            queue.put_nowait(None)

    def fail_watches(self, status: int) -> None:
        """An error within them."""
        body = {"kind": "Status", "code": status, "message": "broken"}
        for queue in self._watchers.values():
            queue.put_nowait({"type": "ERROR", "object": body})

    def watched(self) -> set[str]:
        """The kinds that are being watched."""
        return {watcher.request.kind.plural for watcher in self._watchers}

    def _note(self, entry: WriteEntry) -> None:
        for watcher in list(self._watchers):
            watcher.note(entry)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        root, *steps = request.path.strip("/").split("/")
        group, version, plural = [*([""] if root == "api" else []), *steps, "", "", ""][:3]
        if not plural:
            return web.json_response(self._discovery(root, group, version))
        kind = next((one for one in self.server.kinds if (one.group, one.plural) == (group, plural)), None)
        query = dict(request.query)
        self.asked.append((plural, query))
        if kind is None or plural in self.refused:
            return web.json_response({"kind": "Status", "code": 404}, status=self.refused.get(plural, 404))
        if query.get("watch") == "true":
            return await self._watch(request, kind, query)
        answer = self.server.answer(ApiRequest("list", kind, query=query))
        return web.json_response(
            {**answer.body, "kind": f"{kind.kind}List", "apiVersion": kind.api_version}, status=answer.status
        )

    async def _watch(self, request: web.Request, kind: ResourceKind, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        asked = WatchRequest(
            kind,
            version=query.get("resourceVersion", ""),
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        watcher = Watcher(self.server, asked, lambda _, event: queue.put_nowait(event))
        self._watchers[watcher] = queue
        watcher.begin()
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            del self._watchers[watcher]
        return response

    def _discovery(self, root: str, group: str, version: str) -> dict[str, Any]:
        if version:
            of = [one for one in self.server.kinds if (one.group, one.version) == (group, version)]
            return {"kind": "APIResourceList", "resources": [_resource(one) for one in of]}
        if root == "api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        return {"kind": "APIGroupList", "groups": _groups(self.server.kinds)}


def _resource(kind: ResourceKind) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    return {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "kind": kind.kind,
        "namespaced": kind.namespaced,
        "verbs": verbs,
    }


def _groups(kinds: Iterable[ResourceKind]) -> list[dict[str, Any]]:
    versions = {one.group: one.version for one in kinds if one.group}
    return [
        {
            "name": group,
            "versions": [{"version": version, "groupVersion": f"{group}/{version}"}],
            "preferredVersion": {"version": version},
        }
        for group, version in sorted(versions.items())
    ]
