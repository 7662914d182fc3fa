"""Results of repair and of the collector, of all resources: the records of their passes, read for all at once, and
failed runs, from the Jobs of the watches.

Results that were not read yet are UNKNOWN. Slices are read one after the other over a minute, without bursts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from headgate.engines.summary.pass_results import PassStatus, read_result
from headgate.engines.summary.rows import SLICES
from headgate.errors import HeadgateError
from headgate.process.background_tasks import SharedWork
from headgate_operator.cluster.requests import read_time_us
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.model.kinds import JOB
from headgate_operator.model.names import GROUP
from headgate_operator.model.world import UNKNOWN, Passes, Unread
from headgate_operator.store.catalogue import StoreSide

log = logging.getLogger("headgate.operator")

READ_EVERY_S: Final = 60.0
AGAIN_S: Final = 5.0


class PassBoard:
    def __init__(self, store: StoreSide, cache: ObjectCache, notify: Callable[[UUID], None]) -> None:
        self._store = store
        self._cache = cache
        self._notify = notify
        self._known: dict[UUID, Passes] = {}
        self._has_read = False
        self._first = SharedWork[str, bool]("first read of results")

    def of(self, id_: UUID, failed_runs: int) -> Passes | Unread:
        if not self._has_read:
            return UNKNOWN
        return replace(self._known.get(id_, Passes()), failed_runs=failed_runs)

    def failed_runs(self, namespace: str, task: str) -> int:
        """Jobs of this sort that failed there since the last that succeeded."""
        ended = [
            _ended(job)
            for job in self._cache.in_namespace(JOB.kind, namespace)
            if (job["metadata"].get("labels") or {}).get(f"{GROUP}/task") == task
        ]
        runs = sorted(one for one in ended if one is not None)
        return next((number for number, (_, failed) in enumerate(reversed(runs)) if not failed), len(runs))

    async def until_read(self) -> None:
        """Return after the first read, or its failure; concurrent callers wait for the same reads."""
        if not self._has_read:
            await self._first.run("", self.turn)

    async def run(self) -> None:
        while True:
            if not self._has_read or not await self.turn(READ_EVERY_S / SLICES):
                await asyncio.sleep(AGAIN_S)

    async def turn(self, pause_s: float = 0.0) -> bool:
        """Read all slices once and queue the keys of new results. Whether there was anything to read."""
        results: dict[UUID, Passes] = {}
        sessions = self._store.with_catalogue()
        for slice_ in range(SLICES):
            for reached in sessions:
                try:
                    read = await read_result(reached.store, slice_)
                except HeadgateError as error:
                    log.info("reading the results of passes failed", extra={"error": str(error)})
                    return False
                results |= {id_: _passes(standing) for id_, standing in read.items()}
            await asyncio.sleep(pause_s)
        before, self._known = self._known, results
        had_read, self._has_read = self._has_read, self._has_read or bool(sessions)
        for id_ in _changed(before, results) if had_read else ():
            self._notify(id_)
        return bool(sessions)


def _changed(before: Mapping[UUID, Passes], results: Mapping[UUID, Passes]) -> Iterable[UUID]:
    return [id_ for id_, passes in results.items() if before.get(id_) != passes]


def _passes(standing: PassStatus) -> Passes:
    return Passes(
        ended_us=standing.ended_us,
        problems=standing.problems,
        message=standing.message,
        owed_us=standing.owed_us,
        waits_for_all_us=standing.waits_for_all_us,
        full_us=standing.full_us,
        keys=standing.keys,
        shards=standing.shards,
        expired=standing.expired,
        gc_after_too_short=standing.refused or None,
    )


def _ended(job: Mapping[str, Any]) -> tuple[int, bool] | None:
    """When it ended, and whether it failed; None while it runs."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return read_time_us(condition.get("lastTransitionTime")), condition["type"] == "Failed"
    return None
