"""Entries that no resource of this cluster owns any more are marked as retained. The prose is
docs/internals/protocols/operator.md, "Deletion".

It is for deletions that no operator saw: it was down, or Cassandra was unavailable. It never drops anything. An
owner counts as gone only when two full lists, a minute apart, both lack its uid, and `ObjectCache` does too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headgate.applying.decide_steps import Retain
from headgate.errors import HeadgateError
from headgate.store.catalogue.entry import Entry, EntryState
from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.model.kinds import COUNTER, QUEUE
from headgate_operator.model.names import owner_parts
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.connections import Connections
from headgate_operator.store.sessions import OpenSession

log = logging.getLogger("headgate.operator")

FIRST_S: Final = 30.0
EVERY_S: Final = 600.0
CONFIRM_AFTER_S: Final = 60.0
PAGE: Final = 500


class OrphanSweep:
    def __init__(
        self,
        port: ClusterPort,
        cache: ObjectCache,
        store: StoreSide,
        connections: Connections,
        *,
        may_act: Callable[[], bool],
    ) -> None:
        self._port = port
        self._connections = connections
        self._cache = cache
        self._store = store
        self._may_act = may_act

    async def run(self) -> None:
        """Sweep, for ever; soon after the start, since what was deleted meanwhile nobody saw."""
        await asyncio.sleep(FIRST_S)
        while True:
            swept = await self.turn()
            await asyncio.sleep(EVERY_S if swept is not None else FIRST_S)

    async def turn(self) -> int | None:
        """List twice, and mark entries without an owner; their number, or None if it is unknown."""
        try:
            await self._connections.reach_default()  # where no resource is left, nobody else has
            orphans = await self._orphans()
            if not orphans:
                return None if orphans is None else 0
            await asyncio.sleep(CONFIRM_AFTER_S)
            later = await self._orphans()
            if later is None:
                return None
            again = {entry.id for _, entry in later}
            marked = 0
            for reached, entry in orphans:
                if entry.id in again and self._may_act():
                    await self._store.performer(reached).perform(Retain(entry))
                    log.info("entry without a resource retained", extra={"resource": str(entry.name)})
                    marked += 1
            return marked
        except HeadgateError as error:
            log.info("sweep not finished", extra={"error": str(error)})
            return None

    async def _orphans(self) -> list[tuple[OpenSession, Entry]] | None:
        """Of this cluster, in no list and not in `ObjectCache`; None if a list fails."""
        entries = await self._store.owned()
        there = await self._uids()
        if there is None:
            return None
        return [
            (reached, entry)
            for reached, entry in entries
            if entry.state in (EntryState.MAKING, EntryState.ACTIVE, EntryState.DELETING)
            and not self._lives(entry, there)
        ]

    def _lives(self, entry: Entry, there: set[str]) -> bool:
        parts = owner_parts(entry.owner)
        return parts is None or parts[1] in there or self._cache.is_there(parts[1])

    async def _uids(self) -> set[str] | None:
        """Of all resources, by a list of the server itself."""
        uids: set[str] = set()
        for kind in (QUEUE, COUNTER):
            more: str | None = None
            while True:
                page = await self._port.list(kind, limit=PAGE, more=more, metadata_only=True)
                if isinstance(page, Denied):
                    return None
                uids |= {str(item["metadata"]["uid"]) for item in page.items}
                more = page.more
                if more is None:
                    break
        return uids
