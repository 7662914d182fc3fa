"""SparkApplications of a queue as values: which run, of which minute, and how it stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol
from uuid import UUID, uuid5

from penstock_operator.asking import read_time_us
from penstock_operator.kinds import SPARK_APPLICATION
from penstock_operator.names import GROUP
from penstock_operator.world import BulkRun

Document = Mapping[str, Any]
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


class Done(Protocol):
    """Who knows what a job settled. `PassBoard` is it."""

    def done_by(self, id_: UUID) -> tuple[int | None, int | None]:
        """Done and failed, as its row says."""
        ...


def job_id(queue_uid: str, bulk: str) -> UUID:
    """Under which a bulk job tells its figures."""
    return uuid5(UUID(queue_uid), bulk)


def runs_of(children: Iterable[Document], done: Done) -> tuple[BulkRun, ...]:
    """Those among a queue's children, oldest first."""
    runs = [_run(each, done) for each in children if each["kind"] == SPARK_APPLICATION.kind]
    return tuple(sorted((run for run in runs if run is not None), key=lambda run: (run.minute, run.name)))


def _run(document: Document, done: Done) -> BulkRun | None:
    metadata, status = document["metadata"], document.get("status") or {}
    bulk = (metadata.get("labels") or {}).get(f"{GROUP}/bulk")
    minute = metadata["name"].rpartition("-")[2]
    if bulk is None or not minute.isalnum():
        return None
    told = status.get("applicationState") or {}
    state: RunState = _STATES.get(told.get("state") or "", "Pending")
    owner = next((each["uid"] for each in metadata.get("ownerReferences") or ()), None)
    settled, failed = (None, None) if owner is None else done.done_by(job_id(owner, bulk))
    return BulkRun(
        bulk=bulk,
        name=metadata["name"],
        uid=metadata["uid"],
        minute=int(minute, 36),
        state=state,
        started_us=read_time_us(status.get("lastSubmissionAttemptTime") or metadata.get("creationTimestamp")) or None,
        ended_us=read_time_us(status.get("terminationTime")) or None,
        done=settled,
        failed=failed,
        message=told.get("errorMessage") or "",
    )
