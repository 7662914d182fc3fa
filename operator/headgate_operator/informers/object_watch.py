"""Watches of our own, for resources and their children: listed, followed, listed again when the server has forgotten.

Namespaces and CRDs come in by kopf (kopf_watch.py). kopf starts a worker for each object, one after the other, and a
change waits behind all earlier ones (docs/decisions/0016-resources-by-our-own-watches.md). The simulation runs these
watches. It decides nothing: it passes each event to its listener.

Survives: a version that is compacted (410), a connection that ends or hangs (a bookmark or a change has to come
within `QUIET_S_MAX`), an unavailable server, or one that ends each watch at once (a pause that doubles).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from random import Random
from typing import Final, Protocol

from headgate_operator.cluster.port import Denial, Denied, ListPage, WatchEvent
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.model.kinds import Document, ResourceKind

log = logging.getLogger("headgate.operator")

WATCH_S: Final = 240.0
QUIET_S_MAX: Final = 150.0
"""Bookmarks come each minute; two that do not come mean that the connection hangs."""
SHORT_S: Final = 1.0
"""A watch that ends this soon without an error would be requested a hundred times per second."""
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
PAGE: Final = 500


class Listener(Protocol):
    """The listener, which is `EventIngest`."""

    def listed(self, kind: ResourceKind, documents: Collection[Document]) -> None:
        """All objects of a kind that there are now."""

    def changed(self, document: Document) -> None:
        """One object was made or changed."""

    def deleted(self, document: Document) -> None:
        """One object is gone, or has lost our label."""


class ObjectWatch:
    def __init__(
        self, port: ClusterPort, kind: ResourceKind, listener: Listener, *, rng: Random, labels: str = ""
    ) -> None:
        self.kind = kind
        self.has_listed = asyncio.Event()
        self._port = port
        self._listener = listener
        self._labels = labels
        self._rng = rng
        self._pause_s = PAUSE_S

    async def run(self) -> None:
        """List and follow, for ever."""
        while True:
            version = await self._list()
            while version is not None:
                version = await self._follow(version)
            await self._pause()

    async def list_once(self) -> None:
        """List all objects once, without a watch: another component follows the kind."""
        while True:
            await self._list()
            if self.has_listed.is_set():
                return
            await asyncio.sleep(self._pause_s)

    async def _list(self) -> str | None:
        documents: list[Document] = []
        more: str | None = None
        while True:
            page = await self._port.list(self.kind, labels=self._labels, limit=PAGE, more=more)
            if isinstance(page, Denied):
                if page.denial is Denial.NOT_FOUND:  # the kind is not installed
                    self._listener.listed(self.kind, ())
                    self.has_listed.set()
                    self._pause_s = PAUSE_S_MAX
                else:
                    log.warning("listing failed", extra={"resource": self.kind.resource, "error": str(page)})
                return None
            documents += page.items
            more = page.more
            if more is None:
                return self._take(page, documents)

    def _take(self, page: ListPage, documents: list[Document]) -> str:
        self._listener.listed(self.kind, documents)
        self.has_listed.set()
        return page.version

    async def _follow(self, version: str) -> str | None:
        """Watch from a version on; the version to continue from, or None to list again."""
        changes = self._port.watch(self.kind, version=version, labels=self._labels, within_s=WATCH_S)
        close = getattr(changes, "aclose", None)
        began_s = asyncio.get_running_loop().time()
        try:
            while True:
                change = await _within(changes, QUIET_S_MAX)
                if change is None:
                    return await self._ended(version, asyncio.get_running_loop().time() - began_s)
                if isinstance(change, Denied):
                    return None if change.denial is Denial.GONE else await self._again(version, change)
                version = change.version
                if change.type == "DELETED":
                    self._listener.deleted(change.document)
                elif change.type != "BOOKMARK":
                    self._listener.changed(change.document)
        except GeneratorExit:  # the loop is gone, and with it all that could wait for an end
            close = None
            raise
        finally:
            if close is not None:
                await close()

    async def _ended(self, version: str, lasted_s: float) -> str:
        """The normal end; a watch that a server or a proxy ends at once is not restarted at once."""
        if lasted_s < SHORT_S:
            await self._pause()
        else:
            self._pause_s = PAUSE_S
        return version

    async def _again(self, version: str, denied: Denied) -> str | None:
        """The same version once more after a pause; a list after several."""
        log.info("watch ended", extra={"resource": self.kind.resource, "error": str(denied)})
        await self._pause()
        return version if self._pause_s <= 4 * PAUSE_S else None

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_s * self._rng.uniform(0.8, 1.2))
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


async def _within(changes: AsyncIterator[WatchEvent | Denied], seconds: float) -> WatchEvent | Denied | None:
    """The next change; None when the watch ended as it should, or was quiet for too long."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(changes)
    except (StopAsyncIteration, TimeoutError):
        return None
