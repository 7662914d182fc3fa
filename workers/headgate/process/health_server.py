"""One small HTTP port of a worker: /livez, /readyz and /metrics.

It is served by the worker's own event loop, so a loop that hangs does not answer, and the probe fails.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web

from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate.telemetry.metrics import Registry

log = logging.getLogger("headgate.worker")

WhyNot = Callable[[], str | None]

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  probes come from outside of the pod
DEFAULT_ADDRESS: Final = f"{EVERY_ADDRESS}:9090"


def read_address(text: str, *, option: str = "--health", host: str = EVERY_ADDRESS) -> tuple[str, int] | None:
    """`host:port`, or `:port` or `port` at the `host` that is given, for probes at every address; `off` is none."""
    if text == "off":
        return None
    named, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidRequest(f"{option} must be host:port, or off", remedy=f"write {host}:9090", given=text)
    return named.strip("[]") or host, int(port)


class HealthServer:
    """The HTTP port."""

    def __init__(self, registry: Registry, *, why_not_alive: WhyNot, why_not_ready: WhyNot) -> None:
        self._registry = registry
        self._checks = {"/livez": why_not_alive, "/readyz": why_not_ready}
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int, *, may_move: bool = False) -> None:
        """Listen; port 0 takes one that is free, and so does a port that is taken where it may move."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        for path in self._checks:
            app.router.add_get(path, self._check)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            try:
                await web.TCPSite(self._runner, host, port, backlog=16).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not may_move:
                    raise
                await web.TCPSite(self._runner, host, 0, backlog=16).start()
        except OSError as error:
            await self.close()
            remedy = "choose another with --health host:port, or --health off"
            raise EnvironmentProblem(
                "The port for probes and metrics cannot be opened",
                host=host,
                port=port,
                cause=error.strerror,
                remedy=remedy,
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _check(self, request: web.Request) -> web.Response:
        why_not = self._checks[request.path]()
        return web.Response(text="ok\n") if why_not is None else web.Response(status=503, text=why_not + "\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        from headgate.telemetry.prometheus import CONTENT_TYPE, exposition

        return web.Response(body=exposition(self._registry), headers={"Content-Type": CONTENT_TYPE})
