"""One small HTTP port: /livez, /readyz, /metrics, /why and /plan. It is served by the process's own event loop, so a
loop that hangs does not answer, and the probe fails. It changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web

from penstock.errors import PenstockError, SpecError, Surroundings
from penstock.telemetry.metrics import Registry
from penstock_operator.names import Key, KeyKind

KINDS: Final[Mapping[str, KeyKind]] = {"queue": "Queue", "counter": "Counter", "namespace": "Namespace"}
BODY_MAX: Final = 1_500_000

WhyNot = Callable[[], str | None]


@dataclass(frozen=True)
class Answers:
    """What is told on each path."""

    registry: Registry
    why_not_alive: WhyNot
    why_not_ready: WhyNot
    why: Callable[[Key], list[dict[str, Any]]]
    plan: Callable[[Key, Mapping[str, Any] | None], Awaitable[Mapping[str, Any]]]
    leader: Callable[[], str]


class Doors:
    """The HTTP port."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes one that is free."""
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_get("/livez", self._probe(self._answers.why_not_alive))
        app.router.add_get("/readyz", self._probe(self._answers.why_not_ready))
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/why/{kind}/{namespace}/{name}", self._why)
        app.router.add_get("/plan/{kind}/{namespace}/{name}", self._plan)
        app.router.add_post("/plan", self._plan_of_document)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=16).start()
        except OSError as error:
            await self.close()
            raise Surroundings(
                "the port for probes and metrics can not be opened",
                host=host,
                port=port,
                said=error.strerror,
                remedy="choose another with --health host:port",
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _probe(self, ask: WhyNot) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            why_not = ask()
            return web.Response(text="ok\n") if why_not is None else web.Response(status=503, text=why_not + "\n")

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        from penstock.telemetry.prometheus import CONTENT_TYPE, exposition

        return web.Response(body=exposition(self._answers.registry), headers={"Content-Type": CONTENT_TYPE})

    async def _why(self, request: web.Request) -> web.Response:
        try:
            key = key_of(request.match_info)
        except SpecError as error:
            return _told(404, {"error": str(error)})
        return _told(200, {"key": key.path, "leader": self._answers.leader(), "decisions": self._answers.why(key)})

    async def _plan(self, request: web.Request) -> web.Response:
        try:
            return _told(200, await self._answers.plan(key_of(request.match_info), None))
        except SpecError as error:
            return _told(404, {"error": str(error)})
        except PenstockError as error:
            return _told(503, {"error": str(error)})

    async def _plan_of_document(self, request: web.Request) -> web.Response:
        """Of a resource as it would be, if this document were applied."""
        try:
            document = json.loads(await request.text())
            key = key_of_document(document)
            return _told(200, await self._answers.plan(key, document))
        except (ValueError, SpecError) as error:
            return _told(400, {"error": str(error)})
        except PenstockError as error:
            return _told(503, {"error": str(error)})


def key_of(told: Mapping[str, str]) -> Key:
    """Of the steps of a path."""
    kind = KINDS.get(told["kind"].lower())
    if kind is None:
        raise SpecError("a kind is queue, counter or namespace", given=told["kind"])
    return Key(kind, told["namespace"], told["name"])


def key_of_document(document: Any) -> Key:
    """Of a resource that somebody wrote."""
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    if (
        not isinstance(metadata, Mapping)
        or document.get("kind") not in ("Queue", "Counter")
        or "name" not in metadata
    ):
        raise SpecError("this is no Queue and no Counter", remedy="send one as JSON")
    return Key(cast(KeyKind, document["kind"]), str(metadata.get("namespace") or "default"), str(metadata["name"]))


def _told(status: int, body: Mapping[str, Any]) -> web.Response:
    return web.json_response(body, status=status, dumps=lambda value: json.dumps(value, default=str))
