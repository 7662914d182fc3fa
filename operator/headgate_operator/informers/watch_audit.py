"""Holds the watches to lists of the server: what they did not report, they missed.

Each kind is listed at the start and from time to time, by metadata alone. At the start it shows when the watches have
brought everything, which kopf does not report. Later it finds what they missed. Such a list is as current as a quorum
read, so of an object that was known before it began there are two cases:

- It is not in the list: it is gone, or has lost our label. kopf lists again after a cut that outlasts the server's
  history (410). It reports the objects of that list, and not those that are missing (1.45).
- The list has a newer version, and a second list as well, with no event in between: the watch is dead, and /livez
  fails. kopf ends a watch that is silent for 70 s, so this is a fault that it does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache, is_newer
from headgate_operator.informers.watched_kinds import WATCHED, WatchedKind

EVERY_S: Final = 120.0
PAGE: Final = 100
POLL_S: Final = 0.1
LIST_AGAIN_S: Final = 10.0
"""What is still missing after this time may have been deleted meanwhile."""


class WatchAudit:
    def __init__(
        self,
        port: ClusterPort,
        cache: ObjectCache,
        intake: EventIngest,
        *,
        watched: Collection[WatchedKind] = WATCHED,
    ) -> None:
        self._port = port
        self._cache = cache
        self._intake = intake
        self._watched = watched
        self._behind: dict[str, str | None] = {}
        self._dead = ""

    def why_dead(self) -> str | None:
        return self._dead or None

    async def wait_until_listed(self) -> None:
        """Return once the watches have brought all that a list of each kind shows."""
        for watched in self._watched:
            while not await self._has_come(watched):
                pass

    async def _has_come(self, watched: WatchedKind) -> bool:
        listed = await self._list_versions(watched)
        for _ in range(round(LIST_AGAIN_S / POLL_S)):
            if listed is not None:
                listed = {uid: version for uid, version in listed.items() if self._is_behind(uid, version)}
                if not listed:
                    return True
            await asyncio.sleep(POLL_S)
        return False

    async def run(self) -> None:
        """Audit, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.audit()

    async def audit(self) -> None:
        behind: dict[str, str | None] = {}
        dead = ""
        for watched in self._watched:
            known = self._cache.uids_of(watched.kind.kind)
            listed = await self._list_versions(watched)
            if listed is None:
                continue
            for uid in known.keys() - listed.keys():
                self._intake.lost(uid)
            for uid, version in listed.items():
                if self._is_behind(uid, version):
                    cached = behind[uid] = self._cache.version_of(uid)
                    if uid in self._behind and self._behind[uid] == cached:
                        dead = f"the watch of {watched.kind.plural} is dead: it did not report version {version}"
        self._behind, self._dead = behind, dead

    def _is_behind(self, uid: str, version: str) -> bool:
        cached = self._cache.version_of(uid)
        return cached is None or is_newer(version, cached)

    async def _list_versions(self, watched: WatchedKind) -> dict[str, str] | None:
        """By uid. None: the server does not answer, so nothing is judged."""
        versions: dict[str, str] = {}
        more: str | None = None
        while True:
            page = await self._port.list(
                watched.kind,
                labels=watched.labels,
                fields=watched.fields,
                limit=PAGE,
                more=more,
                metadata_only=True,
            )
            if isinstance(page, Denied):
                return {} if page.denial is Denial.NOT_FOUND else None  # the kind is not installed
            for item in page.items:
                versions[str(item["metadata"]["uid"])] = str(item["metadata"]["resourceVersion"])
            more = page.more
            if more is None:
                return versions
