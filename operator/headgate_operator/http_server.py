"""One small HTTP port: /livez, /readyz and /metrics. The process's own event loop serves it, so a loop that hangs
does not answer, and the probe fails. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from headgate.errors import EnvironmentProblem
from headgate.telemetry.metrics import Registry

WhyNot = Callable[[], str | None]


@dataclass(frozen=True)
class ProbeAnswers:
    """The answer on each path."""

    registry: Registry
    why_not_alive: WhyNot
    why_not_ready: WhyNot


class OperatorHttpServer:
    """The HTTP port."""

    def __init__(self, answers: ProbeAnswers) -> None:
        self._answers = answers
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes one that is free."""
        app = web.Application()
        app.router.add_get("/livez", self._probe(self._answers.why_not_alive))
        app.router.add_get("/readyz", self._probe(self._answers.why_not_ready))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=16).start()
        except OSError as error:
            await self.close()
            raise EnvironmentProblem(
                "The port for probes and metrics cannot be opened",
                host=host,
                port=port,
                answer=error.strerror,
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
        from headgate.telemetry.prometheus import CONTENT_TYPE, exposition

        return web.Response(body=exposition(self._answers.registry), headers={"Content-Type": CONTENT_TYPE})
