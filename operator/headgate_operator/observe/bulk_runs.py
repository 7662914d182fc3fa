"""SparkApplications of a queue as values: which run, of which minute, and how it stands; with the last reports of
bulk jobs. docs/internals/protocols/operator.md, "SparkApplication".

The reports are rows of `standing`, read whenever a queue with runs is reconciled, so that the end of a run and its
result are reported together. A row that cannot be read keeps its last value; another condition reports that Cassandra
is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID, uuid5

from headgate.engines.summary.pass_results import BULK_DONE, BULK_RUNS, read_pass_status
from headgate.errors import HeadgateError
from headgate_operator.cluster.requests import read_time_us
from headgate_operator.model.kinds import SPARK_APPLICATION, Document
from headgate_operator.model.names import GROUP, Key
from headgate_operator.model.world import BulkRun, StoreConnection
from headgate_operator.store.catalogue import StoreSide

log = logging.getLogger("headgate.operator")

RunState = Literal["Pending", "Running", "Succeeded", "Failed"]

_STATES: Final[Mapping[str, RunState]] = {
    "COMPLETED": "Succeeded",
    "FAILED": "Failed",
    "SUBMISSION_FAILED": "Failed",
    "FAILING": "Running",
    "RUNNING": "Running",
    "SUCCEEDING": "Running",
    "PENDING_RERUN": "Running",
    "INVALIDATING": "Running",
}


CLOCK_SKEW_MAX_US: Final = 5_000_000
"""By so much the clock of a driver may be behind that of the API server."""
READ_WITHIN_S: Final = 2.0
"""A Cassandra that does not answer holds a queue up for no longer."""


@dataclass(frozen=True)
class JobReport:
    """The last report of a job's latest run, in the row that all runs of the job share."""

    reported_us: int
    done: int | None
    left: int
    message: str


def job_id(queue_uid: str, bulk: str) -> UUID:
    """The name under which a bulk job reports its figures."""
    return uuid5(UUID(queue_uid), bulk)


def job_ids_of(children: Iterable[Document]) -> frozenset[UUID]:
    ids = (_job_of(each) for each in children if _is_run(each))
    return frozenset(id_ for id_ in ids if id_ is not None)


def runs_of(children: Iterable[Document], reports: Mapping[UUID, JobReport]) -> tuple[BulkRun, ...]:
    """The runs among a queue's children, oldest first. The last of each job has the figures that the job reported
    since its creation, and none of an earlier run."""
    documents = sorted(filter(_is_run, children), key=lambda each: (_minute(each), each["metadata"]["name"]))
    last_of = {_bulk(each): each["metadata"]["uid"] for each in documents}
    runs: list[BulkRun] = []
    for each in documents:
        id_ = _job_of(each)
        row = reports.get(id_) if id_ is not None and last_of[_bulk(each)] == each["metadata"]["uid"] else None
        created_us = read_time_us(each["metadata"].get("creationTimestamp"))
        runs.append(_run(each, row if row is not None and row.reported_us > created_us - CLOCK_SKEW_MAX_US else None))
    return tuple(runs)


def _is_run(document: Document) -> bool:
    return document["kind"] == SPARK_APPLICATION.kind and bool(_bulk(document)) and _tail(document).isalnum()


def _bulk(document: Document) -> str:
    return (document["metadata"].get("labels") or {}).get(f"{GROUP}/bulk") or ""


def _tail(document: Document) -> str:
    return str(document["metadata"]["name"]).rpartition("-")[2]


def _minute(document: Document) -> int:
    return int(_tail(document), 36)


def _job_of(document: Document) -> UUID | None:
    owner = next((each["uid"] for each in document["metadata"].get("ownerReferences") or ()), None)
    return None if owner is None else job_id(owner, _bulk(document))


def _run(document: Document, report: JobReport | None) -> BulkRun:
    metadata, status = document["metadata"], document.get("status") or {}
    application = status.get("applicationState") or {}
    state: RunState = _STATES.get(application.get("state") or "", "Pending")
    # The job's own line has the error or the obstacle; the Spark operator knows the driver's exit code.
    why = report.message if report is not None and report.message not in (BULK_RUNS, BULK_DONE) else ""
    return BulkRun(
        bulk=_bulk(document),
        name=metadata["name"],
        uid=metadata["uid"],
        minute=_minute(document),
        state=state,
        started_us=read_time_us(status.get("lastSubmissionAttemptTime") or metadata.get("creationTimestamp")) or None,
        ended_us=read_time_us(status.get("terminationTime")) or None,
        done=None if report is None else report.done,
        failed=None if report is None else report.left,
        message=why or application.get("errorMessage") or "",
    )


class BulkRows:
    def __init__(self, store: StoreSide) -> None:
        self._store = store
        self._known: dict[Key, dict[UUID, JobReport]] = {}
        self._keys_by_job: dict[UUID, Key] = {}

    async def of(self, key: Key, connection: StoreConnection, jobs: Collection[UUID]) -> Mapping[UUID, JobReport]:
        reached = self._store.reached(connection)
        if not jobs:
            self.forget(key)
            return {}
        known = self._known.setdefault(key, {})
        self._keys_by_job |= dict.fromkeys(jobs, key)
        if reached is None:
            return known
        try:
            for id_ in jobs:
                async with asyncio.timeout(READ_WITHIN_S):
                    row = await read_pass_status(reached.store, id_)
                if row is not None:
                    known[id_] = JobReport(row.ended_us, row.keys, row.problems, row.message)
        except (HeadgateError, TimeoutError) as error:
            log.info("reading the reports of bulk jobs failed", extra={"key": key.path, "error": str(error)})
        return known

    def keys_of(self, id_: UUID) -> list[Key]:
        return [self._keys_by_job[id_]] if id_ in self._keys_by_job else []

    def forget(self, key: Key) -> None:
        if self._known.pop(key, None) is not None:
            self._keys_by_job = {id_: owner for id_, owner in self._keys_by_job.items() if owner != key}
