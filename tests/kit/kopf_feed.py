"""What kopf brings to its handlers, from the simulated API server: `KopfWatch` in a process of the simulated world.

kopf itself needs sockets, so it does not run on virtual time. This keeps what its handlers can observe of kopf 1.45
(`tests/unit/operator/test_kopf_watch.py` holds both to it):

- a watch that ends, breaks or is silent for 70 s is continued from its last version;
- after a 410 the kind is listed again. Deletions since then are never reported;
- a list that is refused is asked for again;
- a kind that is not installed is watched once it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

from headgate.process.background_tasks import run_together
from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.watched_kinds import WATCHED, WatchedKind
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_cluster.watching import WatchEvent, WatchRequest, read_events

PAGE: Final = 100
RECONNECT_S: Final = 0.1
RETRY_S: Final = 1.0
"""After a refusal, or while a kind is not installed."""
SERVER_S: Final = 300.0
"""How long a server lets a watch last."""


class KopfFeed:
    """The watches of one process."""

    def __init__(
        self, port: SimulatedCluster, intake: EventIngest, *, watched: Collection[WatchedKind] = WATCHED
    ) -> None:
        self._port = port
        self._intake = intake
        self._watched = watched

    async def run(self) -> None:
        """For ever."""
        await run_together({f"watch {one.kind.plural}": self._watch(one) for one in self._watched})

    async def _watch(self, watched: WatchedKind) -> None:
        while True:
            version = await self._list(watched)
            while version is not None:
                version = await self._follow(watched, version)
                await asyncio.sleep(RECONNECT_S)
            await asyncio.sleep(RETRY_S)

    async def _list(self, watched: WatchedKind) -> str | None:
        more: str | None = None
        while True:
            page = await self._port.list(
                watched.kind, labels=watched.labels, fields=watched.fields, limit=PAGE, more=more
            )
            if isinstance(page, Denied):
                return None
            for document in page.items:
                self._intake.changed(document, listed=True)
            more = page.more
            if more is None:
                return page.version

    async def _follow(self, watched: WatchedKind, version: str) -> str | None:
        """The version to continue from; None: list again."""
        request = WatchRequest(
            watched.kind, version=version, labels=watched.labels, fields=watched.fields, within_s=SERVER_S
        )
        events: AsyncIterator[WatchEvent | Denied] = read_events(self._port.follow(request))
        async for event in events:
            if isinstance(event, Denied):
                return version if event.denial is Denial.UNKNOWN else None
            version = event.version
            if event.type == "DELETED":
                self._intake.deleted(event.document)
            elif event.type != "BOOKMARK":
                self._intake.changed(event.document)
        return version
