"""The record of a bulk job: its driver, and its current batch (docs/internals/protocols/spark.md, "Jobs").

One row per job, changed by LWT alone, each time on the condition that the caller still drives the job. So if two
drivers run, one of which believes the other dead, only one takes a batch from `planned` to `committed`. A killed run
is resumed from this record. This module knows neither queues nor the content of a plan.

    idle --plan--> planned --commit--> committed --settle--> idle
                      |                                        ^
                      +----------------drop--------------------+
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from uuid import UUID

from headgate.errors import Conflict
from headgate.store.catalogue.tables import BULK
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Decision, InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.store import Store

TRIES = 5

JobMemo = Mapping[str, Any]
"""The facts that the job keeps for its next run: numbers and strings by name, as JSON stores them."""


class JobTakenOver(Conflict):
    """Another run of this bulk job continues it."""


class Stage(Enum):
    IDLE = "idle"
    PLANNED = "planned"
    """Its contents are fixed; whether it was processed is unknown."""
    COMMITTED = "committed"
    """It is done for good; its settles may still be missing."""


@dataclass(frozen=True)
class BulkRow:
    """The row of one job, as its driver knows it."""

    job: UUID
    driver: UUID
    stage: Stage
    number: int
    """Of the batch in work, or of the last one."""
    plan: bytes
    memo: JobMemo


class BulkLog:
    """The row of one job, for one driver. Each method gives the row as it is afterwards."""

    def __init__(self, store: Store, job: UUID, new_uuid: Callable[[], UUID]) -> None:
        self._store = store
        self._job = job
        self._new_uuid = new_uuid
        self._driver = new_uuid()

    async def read(self) -> BulkRow | None:
        rows = await self._store.read(Select(BULK, {"job": self._job}, consistency=Consistency.SERIAL))
        return None if not rows or rows[0].driver is None else _row(self._job, rows[0])

    async def take(self) -> BulkRow:
        """Drive the job from now on. The previous driver can change nothing any more."""
        for _ in range(TRIES):
            known = await self.read()
            if known is None:
                mine = BulkRow(self._job, self._driver, Stage.IDLE, 0, b"", {})
                row = {"job": self._job, **_cells(mine)}
                statement: Decision = InsertIfAbsent(BULK, row, attempt=self._new_uuid())
            else:
                mine = replace(known, driver=self._driver)
                statement = self._update({"driver": self._driver}, known)
            if (await self._store.decide(statement)).applied:
                return mine
        raise JobTakenOver("Other runs of this bulk job started at the same time", job=self._job)

    async def plan(self, row: BulkRow, plan: bytes) -> BulkRow:
        return await self._move(row, replace(row, stage=Stage.PLANNED, number=row.number + 1, plan=plan))

    async def commit(self, row: BulkRow, plan: bytes) -> BulkRow:
        """The batch is done; this is the part still to be settled."""
        return await self._move(row, replace(row, stage=Stage.COMMITTED, plan=plan))

    async def finish(self, row: BulkRow, memo: JobMemo) -> BulkRow:
        """No batch is open any more; the next run receives this."""
        return await self._move(row, replace(row, stage=Stage.IDLE, plan=b"", memo=memo))

    async def _move(self, row: BulkRow, to: BulkRow) -> BulkRow:
        if not (await self._store.decide(self._update(_cells(to), row))).applied:
            raise JobTakenOver(job=self._job)
        return to

    def _update(self, to: Mapping[str, Any], known: BulkRow) -> UpdateIf:
        conditions = (is_("driver", known.driver), is_("state", known.stage.value), is_("number", known.number))
        return UpdateIf(BULK, {"job": self._job}, to, *conditions, attempt=self._new_uuid())


def _cells(row: BulkRow) -> dict[str, Any]:
    return {
        "driver": row.driver,
        "state": row.stage.value,
        "number": row.number,
        "plan": row.plan,
        "told": json.dumps(row.memo, separators=(",", ":"), sort_keys=True),
    }


def _row(job: UUID, row: Any) -> BulkRow:
    return BulkRow(job, row.driver, Stage(row.state), row.number, row.plan or b"", json.loads(row.told or "{}"))
