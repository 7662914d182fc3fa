"""Results of repair and of the collector, of all resources: what their passes wrote down, read for all at once, and
failed runs, from the Jobs that the watches tell of.

What was not read yet is UNKNOWN. It knows no table: who reads the rows of a session is handed in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from penstock.errors import PenstockError
from penstock_operator.asking import read_time_us
from penstock_operator.kinds import JOB
from penstock_operator.names import GROUP
from penstock_operator.seen import Seen
from penstock_operator.sessions import Reached, Sessions
from penstock_operator.world import UNKNOWN, Passes, Unread

log = logging.getLogger("penstock.operator")

READ_EVERY_S: Final = 60.0

ReadResults = Callable[[Reached], Awaitable[Mapping[UUID, Passes]]]


async def no_results(_reached: Reached) -> Mapping[UUID, Passes]:
    """Where nobody writes any down."""
    return {}


class PassBoard:
    """What was read last."""

    def __init__(self, sessions: Sessions, seen: Seen, read: ReadResults, tell: Callable[[UUID], None]) -> None:
        self._sessions = sessions
        self._seen = seen
        self._read = read
        self._tell = tell
        self._known: dict[UUID, Passes] = {}
        self._has_read = False

    def of(self, id_: UUID, failed_runs: int) -> Passes | Unread:
        """Of one resource."""
        if not self._has_read:
            return UNKNOWN
        return replace(self._known.get(id_, Passes()), failed_runs=failed_runs)

    def done_by(self, id_: UUID) -> tuple[int | None, int | None]:
        """What a bulk job settled, and what it gave back."""
        known = self._known.get(id_)
        return (None, None) if known is None else (known.keys, known.problems)

    def failed_runs(self, namespace: str, task: str) -> int:
        """Jobs of this sort that failed there since the last that succeeded."""
        ended = [
            _ended(job)
            for job in self._seen.in_namespace(JOB.kind, namespace)
            if (job["metadata"].get("labels") or {}).get(f"{GROUP}/task") == task
        ]
        moments = sorted(one for one in ended if one is not None)
        return next((number for number, (_, failed) in enumerate(reversed(moments)) if not failed), len(moments))

    async def run(self) -> None:
        """Read, for ever."""
        while True:
            await self.turn()
            await asyncio.sleep(READ_EVERY_S)

    async def turn(self) -> None:
        """Once; who is concerned by something new is told."""
        found: dict[UUID, Passes] = {}
        for reached in self._sessions.all():
            try:
                found |= await self._read(reached)
            except PenstockError as error:
                log.info("results of passes can not be read: %s", error)
                return
        before, self._known = self._known, found
        had_read, self._has_read = self._has_read, True
        for id_ in _changed(before, found) if had_read else found:
            self._tell(id_)


def _changed(before: Mapping[UUID, Passes], found: Mapping[UUID, Passes]) -> Iterable[UUID]:
    return [id_ for id_, passes in found.items() if before.get(id_) != passes]


def _ended(job: Mapping[str, Any]) -> tuple[int, bool] | None:
    """When it ended, and whether it failed; None while it runs."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return read_time_us(condition.get("lastTransitionTime")), condition["type"] == "Failed"
    return None
