"""Whether this process lives and is ready, as its probes ask. The prose is docs/internals/protocols/operator.md,
"Leading and living".

/livez measures watching, end to end: an audit reads objects from the server's cache from time to time, and compares
them with what the watches reported. An object that differs in two audits without an event in between means that its
watch is dead: its key is queued, and the probe fails. An unavailable API server does not fail the probe, since a
restart would not help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate_operator.cluster.port import ApiObject, Denial, Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache, is_newer
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import ObjectAddress, ResourceKind

AUDIT_EVERY_S: Final = 120.0
FIRST_AUDITS_S: Final = (5.0, 10.0)
"""After all was listed: what was deleted between the lists of two watchers is found so."""
PAGE: Final = 500
WAITING_S_MAX: Final = 60.0
WORK_S_MAX: Final = 300.0
GONE: Final = ""
"""The version of what is not there."""


@dataclass(frozen=True)
class WatchedKind:
    kind: ResourceKind
    labels: str = ""


@dataclass(frozen=True)
class _Behind:
    """An object that `ObjectCache` has otherwise than the server."""

    cached: str | None
    listed: str
    namespace: str | None
    name: str


class LivenessCheck:
    def __init__(
        self,
        port: ClusterPort,
        cache: ObjectCache,
        intake: EventIngest,
        queue: WorkQueue,
        watched: Sequence[WatchedKind],
        *,
        reconcilers: int,
    ) -> None:
        self._port = port
        self._cache = cache
        self._intake = intake
        self._queue = queue
        self._watched = watched
        self._reconcilers = reconcilers
        self._behind: dict[str, _Behind] = {}
        self._dead: dict[str, str] = {}
        self.audits = 0

    def why_not_alive(self) -> str | None:
        for what, reason in self._dead.items():
            return f"the watch of {what} is dead: {reason}"
        worked = list(self._queue.work_s())
        waiting_s = self._queue.longest_waiting_s(Class.CHANGED)
        if waiting_s > WAITING_S_MAX and len(worked) < self._reconcilers:
            return f"a change waits for {waiting_s:.0f} s while reconcilers are free"
        if worked and max(worked) > WORK_S_MAX:
            return f"a reconcile takes {max(worked):.0f} s"
        return None

    async def run(self, listed: asyncio.Event) -> None:
        """Audit, for ever, once all was listed: before that nobody can have heard of anything."""
        await listed.wait()
        for pause_s in FIRST_AUDITS_S:
            await asyncio.sleep(pause_s)
            await self.audit()
        while True:
            await asyncio.sleep(AUDIT_EVERY_S)
            await self.audit()

    async def audit(self) -> None:
        behind: dict[str, _Behind] = {}
        for watched in self._watched:
            differing = await self._compare(watched)
            if differing is None:  # not judged: it counts as nothing found
                self._behind = {}
                return
            behind |= differing
        self.audits += 1
        dead: dict[str, str] = {}
        for uid, one in behind.items():
            before = self._behind.get(uid)
            if before is None or before.cached != one.cached or self._cache.version_of(uid) != one.cached:
                continue
            kind = await self._make_good(uid, one)
            if kind is not None:
                dead[kind.plural] = f"{one.name} was changed, but the watch did not report it"
        self._behind, self._dead = behind, dead

    async def _compare(self, watched: WatchedKind) -> dict[str, _Behind] | None:
        listed: dict[str, _Behind] = {}
        more: str | None = None
        while True:
            page = await self._port.list(
                watched.kind, labels=watched.labels, limit=PAGE, more=more, cached=more is None, metadata_only=True
            )
            if isinstance(page, Denied):
                return {} if page.denial is Denial.NOT_FOUND else None
            for item in page.items:
                metadata = item["metadata"]
                uid, version = str(metadata["uid"]), str(metadata["resourceVersion"])
                cached = self._cache.version_of(uid)
                listed[uid] = _Behind(cached, version, metadata.get("namespace"), metadata["name"])
            more = page.more
            if more is None:
                break
        differing = {
            uid: one for uid, one in listed.items() if one.cached is None or is_newer(one.listed, one.cached)
        }
        for uid, version in self._cache.uids_of(watched.kind.kind).items():
            place = self._cache.place_of(uid)
            if uid not in listed and place is not None:
                differing[uid] = _Behind(version, GONE, place.namespace or None, place.name)
        return differing

    async def _make_good(self, uid: str, one: _Behind) -> ResourceKind | None:
        """Read that object and take it in; returns its kind if its watch was indeed behind."""
        for watched in self._watched:
            place = self._cache.place_of(uid)
            if place is not None and place.kind != watched.kind.kind:
                continue
            answer = await self._port.get(ObjectAddress(watched.kind, one.namespace, one.name))
            if isinstance(answer, ApiObject) and answer.uid == uid:
                if one.listed == GONE:  # it is there, and has lost our label
                    self._intake.deleted(answer.document)
                else:
                    self._intake.changed(answer.document)
                return watched.kind
            if place is not None and (isinstance(answer, ApiObject) or answer.denial is Denial.NOT_FOUND):
                self._intake.lost(uid)
                return watched.kind
        return None
