"""`ClusterPort` on the simulated API server, for one process of the world: paused or killed with it.

Calls take virtual time and may be lost on either way; what comes after its time is not heard. It answers as
`cluster/api_server.py` does: UNKNOWN where no answer came. Its watches are those that kopf opens: one that is quiet
for too long ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ApiRequest, ApiResponse, ClusterPort, no_answer
from headgate_operator.model.kinds import Document
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.watching import Event, WatchRequest
from tests.kit.simulated_world import Process

QUIET_MAX_S: Final = 70.0
"""kopf's `settings.watching.inactivity_timeout`."""
GAP_MAX_S: Final = 20.0
"""How long a connection tries to carry what was lost on the way, before it breaks."""


class SimulatedCluster(ClusterPort):
    """The way of one process to the simulated API server."""

    def __init__(self, api: SimulatedApi, process: Process) -> None:
        self._api = api
        self._process = process

    async def send(self, request: ApiRequest, within_s: float) -> ApiResponse | Denied:
        """The answer to it, in time."""
        answered: asyncio.Future[ApiResponse] = self._api.world.loop.create_future()

        def reply(answer: ApiResponse) -> None:
            if not answered.done():
                answered.set_result(answer)

        network = self._api.world.network
        network.send("api request", self._process, self._api.process, self._api.serve, self._process, request, reply)
        try:
            async with asyncio.timeout(within_s):
                return await answered
        except TimeoutError:
            return no_answer(f"{request}: no answer in {within_s:g} s")

    async def follow(self, request: WatchRequest) -> AsyncIterator[Document | Denied]:
        """The events of a watch, in their order."""
        number = self._api.next_number()
        received: dict[int, Event | None] = {}
        arrived = asyncio.Event()

        def deliver(event_number: int, event: Event | None) -> None:
            received[event_number] = event
            arrived.set()

        network, api = self._api.world.network, self._api
        asked = (self._process, request, number, deliver)
        network.send("api request", self._process, api.process, api.open_watch, *asked)
        following, loop = 1, asyncio.get_running_loop()
        until_s = loop.time() + QUIET_MAX_S
        try:
            while True:
                while following in received:
                    event = received.pop(following)
                    following += 1
                    until_s = loop.time() + QUIET_MAX_S
                    if event is None:
                        return
                    yield event
                if received:  # an event is missing: one lost for this long does not arrive any more
                    until_s = min(until_s, loop.time() + GAP_MAX_S)
                arrived.clear()
                async with asyncio.timeout_at(until_s):
                    await arrived.wait()
        except TimeoutError:
            yield no_answer(f"{request}: broken, or nothing for {QUIET_MAX_S:g} s")
        finally:
            api.end_watch(number)

    async def close(self) -> None:
        """Nothing is kept open."""
