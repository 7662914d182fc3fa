"""Reports of bulk jobs, in their rows of `standing`: read whenever a queue with runs is reconciled, so that the end
of a run and its result are reported together. docs/internals/protocols/operator.md, "SparkApplication".

A row that cannot be read keeps its last value; another condition reports that Cassandra is unavailable. It knows no
runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from headgate.engines.summary.standing import read_standing_of
from headgate.errors import HeadgateError
from headgate_operator.names import Key
from headgate_operator.observe_runs import JobTold
from headgate_operator.store_side import StoreSide
from headgate_operator.world import Connection

log = logging.getLogger("headgate.operator")

READ_WITHIN_S: Final = 2.0
"""A Cassandra that does not answer holds a queue up for no longer."""


class BulkRows:
    """The rows of all jobs that have runs."""

    def __init__(self, store: StoreSide) -> None:
        self._store = store
        self._known: dict[Key, dict[UUID, JobTold]] = {}
        self._whose: dict[UUID, Key] = {}

    async def of(self, key: Key, connection: Connection, jobs: Collection[UUID]) -> Mapping[UUID, JobTold]:
        """The last reports of these jobs of a queue."""
        reached = self._store.reached(connection)
        if not jobs:
            self.forget(key)
            return {}
        known = self._known.setdefault(key, {})
        self._whose |= dict.fromkeys(jobs, key)
        try:
            for id_ in jobs if reached is not None else ():
                assert reached is not None  # noqa: S101 - else there is no turn
                store = reached.ground.store_in(reached.ground.keyspace)
                async with asyncio.timeout(READ_WITHIN_S):
                    row = await read_standing_of(store, id_)
                if row is not None:
                    known[id_] = JobTold(row.ended_us, row.keys, row.problems, row.says)
        except (HeadgateError, TimeoutError) as error:
            log.info("reading the reports of bulk jobs failed", extra={"key": key.path, "error": str(error)})
        return known

    def keys_of(self, id_: UUID) -> list[Key]:
        """The queue whose job has this id."""
        return [self._whose[id_]] if id_ in self._whose else []

    def forget(self, key: Key) -> None:
        """It has no runs."""
        if self._known.pop(key, None) is not None:
            self._whose = {id_: whose for id_, whose in self._whose.items() if whose != key}
