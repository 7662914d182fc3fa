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

from headgate.engines.summary.standing import read_pass_status
from headgate.errors import HeadgateError
from headgate_operator.model.names import Key
from headgate_operator.model.world import StoreConnection
from headgate_operator.observe.bulk_runs import JobReport
from headgate_operator.store.catalogue import StoreSide

log = logging.getLogger("headgate.operator")

READ_WITHIN_S: Final = 2.0
"""A Cassandra that does not answer holds a queue up for no longer."""


class BulkRows:
    """The rows of all jobs that have runs."""

    def __init__(self, store: StoreSide) -> None:
        self._store = store
        self._known: dict[Key, dict[UUID, JobReport]] = {}
        self._keys_by_job: dict[UUID, Key] = {}

    async def of(self, key: Key, connection: StoreConnection, jobs: Collection[UUID]) -> Mapping[UUID, JobReport]:
        """The last reports of these jobs of a queue."""
        reached = self._store.reached(connection)
        if not jobs:
            self.forget(key)
            return {}
        known = self._known.setdefault(key, {})
        self._keys_by_job |= dict.fromkeys(jobs, key)
        try:
            for id_ in jobs if reached is not None else ():
                assert reached is not None  # noqa: S101 - else there is no turn
                store = reached.process_context.store_in(reached.process_context.keyspace)
                async with asyncio.timeout(READ_WITHIN_S):
                    row = await read_pass_status(store, id_)
                if row is not None:
                    known[id_] = JobReport(row.ended_us, row.keys, row.problems, row.message)
        except (HeadgateError, TimeoutError) as error:
            log.info("reading the reports of bulk jobs failed", extra={"key": key.path, "error": str(error)})
        return known

    def keys_of(self, id_: UUID) -> list[Key]:
        """The queue whose job has this id."""
        return [self._keys_by_job[id_]] if id_ in self._keys_by_job else []

    def forget(self, key: Key) -> None:
        """It has no runs."""
        if self._known.pop(key, None) is not None:
            self._keys_by_job = {id_: owner for id_, owner in self._keys_by_job.items() if owner != key}
