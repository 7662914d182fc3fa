"""One HTTP port of a process, and the routes of probes: /livez, /readyz and /metrics.

The process's own event loop serves it, so a loop that hangs does not answer, and the probe fails.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate.telemetry.metrics import Registry

WhyNot = Callable[[], str | None]

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  probes come from outside of the pod
DEFAULT_ADDRESS: Final = f"{EVERY_ADDRESS}:9090"
BODY_MAX: Final = 64 * 1024


def read_address(text: str, *, option: str = "--health", host: str = EVERY_ADDRESS) -> tuple[str, int] | None:
    """`host:port`, or `:port` or `port` at the `host` that is given, for probes at every address; `off` is none."""
    if text == "off":
        return None
    named, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidRequest(f"{option} must be host:port, or off", remedy=f"write {host}:9090", given=text)
    return named.strip("[]") or host, int(port)


def probe_routes(registry: Registry, *, why_not_alive: WhyNot, why_not_ready: WhyNot) -> list[web.RouteDef]:
    """Probes and metrics; nothing is changed by them."""

    def probe(path: str, why: WhyNot) -> web.RouteDef:
        async def answer(_: web.Request) -> web.Response:
            why_not = why()
            return web.Response(text="ok\n") if why_not is None else web.Response(status=503, text=why_not + "\n")

        return web.get(path, answer)

    async def metrics(_: web.Request) -> web.Response:
        from headgate.telemetry.prometheus import CONTENT_TYPE, exposition

        return web.Response(body=exposition(registry), headers={"Content-Type": CONTENT_TYPE})

    return [probe("/livez", why_not_alive), probe("/readyz", why_not_ready), web.get("/metrics", metrics)]


class HttpServer:
    def __init__(
        self,
        routes: Sequence[web.RouteDef],
        *,
        purpose: str = "probes and metrics",
        option: str = "--health",
        body_max: int = BODY_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._routes = routes
        self._purpose = purpose
        self._option = option
        self._body_max = body_max
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int, *, may_move: bool = False) -> None:
        """Listen; port 0 takes one that is free, and so does a port that is taken where it may move."""
        app = web.Application(client_max_size=self._body_max)
        app.add_routes(self._routes)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            try:
                await web.TCPSite(self._runner, host, port, backlog=16, ssl_context=self._tls).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not may_move:
                    raise
                await web.TCPSite(self._runner, host, 0, backlog=16, ssl_context=self._tls).start()
        except OSError as error:
            await self.close()
            raise EnvironmentProblem(
                f"The port for {self._purpose} cannot be opened",
                host=host,
                port=port,
                cause=error.strerror,
                remedy=f"choose another with {self._option} host:port, or {self._option} off",
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
