"""The controllers of CronJobs and Jobs, as far as operators see them.

A Job is created at each due time of its schedule unless one runs (Forbid) or it is suspended; due times that were
missed by more than the deadline are left out. `JobPrograms` decides the result of a Job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Protocol

from headgate.api.values.cron import due_after
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import CRON_JOB, JOB
from tests.kit.simulated_cluster.controllers import MANAGER, REACT_S, Later
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_cluster.writing import format_time

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """The result of one Job."""

    takes_s: float = 2.0
    succeeds: bool = True


class JobPrograms(Protocol):
    """The programs of Jobs."""

    def run(self, job: Object) -> Run:
        """A Job has started."""


class IdlePrograms:
    """Jobs that do nothing, well."""

    def __init__(self, run: Run | None = None) -> None:
        self.outcome = run or Run()

    def run(self, job: Object) -> Run:
        """As for all."""
        return self.outcome


class Schedules:
    """The controllers of CronJobs and Jobs of one server."""

    def __init__(self, server: ApiServer, later: Later, rng: Random, programs: JobPrograms) -> None:
        self._server = server
        self._later = later
        self._rng = rng
        self.programs = programs
        server.when_written(self._written)

    def _written(self, entry: WriteEntry) -> None:
        metadata = entry.document["metadata"]
        at = (metadata.get("namespace", ""), metadata["name"], metadata["uid"])
        if entry.kind is CRON_JOB and entry.type != "DELETED":
            was = (entry.old or {}).get("spec", {}).get("schedule")
            if was != entry.document["spec"]["schedule"]:
                self._await_next(*at)
        elif entry.kind is JOB and entry.type == "ADDED":
            self._later(self._rng.uniform(*REACT_S), lambda: self._start(*at))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._server.now_us() / 1_000_000, UTC)

    def _await_next(self, namespace: str, name: str, uid: str) -> None:
        cron_job = self._server.find(CRON_JOB, namespace, name)
        if cron_job is None or cron_job["metadata"]["uid"] != uid:
            return
        schedule, now = cron_job["spec"]["schedule"], self._now()
        due = due_after(schedule, now)
        if due is not None:
            wait_s = (due - now).total_seconds()
            self._later(wait_s, lambda: self._fire(namespace, name, uid, schedule, due))

    def _fire(self, namespace: str, name: str, uid: str, schedule: str, due: datetime) -> None:
        cron_job = self._server.find(CRON_JOB, namespace, name)
        if cron_job is None or cron_job["metadata"]["uid"] != uid or cron_job["spec"]["schedule"] != schedule:
            return
        running = [job for job in self._jobs_of(uid) if _result(job) is None]
        forbidden = running and cron_job["spec"]["concurrencyPolicy"] == "Forbid"
        if (
            not cron_job["spec"].get("suspend")
            and not cron_job["metadata"].get("deletionTimestamp")
            and not forbidden
        ):
            self._make_job(cron_job, due)
        self._await_next(namespace, name, uid)

    def _jobs_of(self, uid: str) -> list[Object]:
        return [
            job
            for _, job in self._server.all(JOB)
            if any(owner["uid"] == uid for owner in job["metadata"].get("ownerReferences") or ())
        ]

    def _make_job(self, cron: Object, due: datetime) -> None:
        metadata, template = cron["metadata"], cron["spec"]["jobTemplate"]
        owner = {
            "apiVersion": CRON_JOB.api_version,
            "kind": CRON_JOB.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        job = {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {
                "namespace": metadata["namespace"],
                "name": f"{metadata['name']}-{int(due.timestamp()) // 60}",
                "labels": template["metadata"].get("labels") or {},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        self._server.answer(ApiRequest("create", JOB, metadata["namespace"], query=MANAGER, body=job))
        self._write_status(CRON_JOB, cron, {"lastScheduleTime": format_time(int(due.timestamp()) * 1_000_000)})

    def _start(self, namespace: str, name: str, uid: str) -> None:
        job = self._server.find(JOB, namespace, name)
        if job is None or job["metadata"]["uid"] != uid:
            return
        run = self.programs.run(job)
        self._write_status(JOB, job, {"active": 1, "startTime": format_time(self._server.now_us())})
        self._later(run.takes_s, lambda: self._finish(namespace, name, uid, run))

    def _finish(self, namespace: str, name: str, uid: str, run: Run) -> None:
        job = self._server.find(JOB, namespace, name)
        if job is None or job["metadata"]["uid"] != uid:
            return
        now = format_time(self._server.now_us())
        type_ = "Complete" if run.succeeds else "Failed"
        status: dict[str, Any] = {
            "active": None,
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": now}],
            **({"succeeded": 1, "completionTime": now} if run.succeeds else {"failed": 1}),
        }
        self._write_status(JOB, job, status)
        for owner in job["metadata"].get("ownerReferences") or ():
            self._keep_history(namespace, owner["name"], owner["uid"])

    def _keep_history(self, namespace: str, name: str, uid: str) -> None:
        cron = self._server.find(CRON_JOB, namespace, name)
        if cron is None or cron["metadata"]["uid"] != uid:
            return
        for result, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            ended = [job for job in self._jobs_of(uid) if _result(job) == result]
            ended.sort(key=lambda job: str(job["metadata"]["name"]))
            for job in ended[: max(0, len(ended) - cron["spec"][field])]:
                self._server.answer(ApiRequest("delete", JOB, namespace, job["metadata"]["name"]))

    def _write_status(self, kind: Any, document: Object, status: Object) -> None:
        metadata = document["metadata"]
        at = (metadata["namespace"], metadata["name"], "status")
        self._server.answer(ApiRequest("patch", kind, *at, query=MANAGER, body={"status": status}))


def _result(job: Object) -> str | None:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((str(one["type"]) for one in conditions if one["status"] == "True"), None)
