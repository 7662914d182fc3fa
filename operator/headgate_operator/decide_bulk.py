"""Starts runs of bulk jobs, cleans up after them, and reports their condition.

A run is named by the minute in which it was due, so a crash after its creation makes no second. Each job has one run
at a time. A run is due at the last time of its schedule since the last run, if that is recent, or when the backlog is
above the job's bound and the last run ended ten minutes ago.

Pure. An existing run is never changed: it continues as it was started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from headgate.api.bulk import Bulk
from headgate.api.cron_times import due_after, due_before
from headgate.api.queues import Queue
from headgate.api.status import Reason
from headgate.expiry import SECOND_US
from headgate_operator.build_pod import Owner
from headgate_operator.build_spark import application, image_of
from headgate_operator.decide_drift import tend
from headgate_operator.decide_passes import moment
from headgate_operator.decide_scaling import known_figures
from headgate_operator.effects import DeleteObject
from headgate_operator.merging import PatchInvalid
from headgate_operator.names import application_name
from headgate_operator.verdict import Finding, Verdict, earliest
from headgate_operator.world import BulkRun, ChildName, Connection, Memory, Trouble, World

TYPE: Final = "BulkReady"
KIND: Final = "SparkApplication"
MINUTE_US: Final = 60 * SECOND_US
MISSED_US: Final = 60 * MINUTE_US
REST_US: Final = 10 * MINUTE_US
ENDED: Final = ("Succeeded", "Failed")


def bulk(world: World, connection: Connection, memory: Memory, now_us: int) -> Verdict:
    """Runs to start and to clean up, and what is so."""
    verdict = Verdict(memory)
    jobs = jobs_of(world)
    trouble: Trouble | None = None
    for job in jobs if world.spark_operator else ():
        found = _of(world, connection, job, verdict.memory, now_us)
        trouble = trouble or found.stop
        verdict = verdict.then(replace(found, stop=None))
    return said(world, verdict.then(_cleaned(world, verdict.memory)), trouble)


def said(world: World, verdict: Verdict, trouble: Trouble | None = None) -> Verdict:
    """The verdict, with what is so of the bulk jobs."""
    jobs = jobs_of(world)
    figures: dict[str, object] = {"bulk": {job.name: _status(world, job) for job in jobs}} if jobs else {}
    return replace(verdict.found(_finding(world, jobs, trouble)), figures=verdict.figures | figures)


def jobs_of(world: World) -> tuple[Bulk, ...]:
    """The bulk jobs of the resource."""
    queue = world.resource.parsed if world.resource else ()
    return tuple(queue.spec.bulk or ()) if isinstance(queue, Queue) else ()


def _of(world: World, connection: Connection, job: Bulk, memory: Memory, now_us: int) -> Verdict:
    runs = _runs(world, job.name)
    following = _following(job, now_us)
    if any(run.state not in ENDED for run in runs):
        return Verdict(memory, again_at_us=following)
    minute, why = _due(world, job, runs, now_us)
    if minute is None:
        return Verdict(memory, again_at_us=following)
    child = ChildName(KIND, application_name(world.key.name, job.name, minute))
    if child in world.live:
        return Verdict(memory, again_at_us=following)
    if image_of(world.settings, job) is None:
        says = f"bulk job {job.name}: neither spark.image nor the chart names an image with Spark"
        return Verdict(memory, stop=Trouble(Reason.BULK_FAILING, says), trail=(says,))
    try:
        document = application(Owner(world.key, world.uid), world.settings, connection, job, minute)
    except PatchInvalid as error:
        says = f"bulk job {job.name}: {error}"
        return Verdict(memory, stop=Trouble(Reason.APPLY_REFUSED, says), trail=(says,))
    tended = tend(world, document, memory, now_us)
    return Verdict(
        tended.memory,
        effects=tended.effects,
        ask=tended.ask,
        trail=(f"bulk job {job.name} is due: {why}", *tended.trail),
        again_at_us=earliest(tended.again_at_us, following),
        stop=tended.trouble,
    )


def _due(world: World, job: Bulk, runs: Sequence[BulkRun], now_us: int) -> tuple[int | None, str]:
    """The minute that calls for a run, and why."""
    last = runs[-1].minute if runs else -1
    by_schedule = _by_schedule(world, job, last, now_us)
    if by_schedule is not None:
        return by_schedule, f"schedule {job.schedule}"
    figures = known_figures(world, now_us)
    behind = None if figures is None else figures.counted if figures.backlog is None else figures.backlog
    if job.backlog_above is None or behind is None or behind <= job.backlog_above:
        return None, ""
    if any(now_us - (run.ended_us or now_us) <= REST_US for run in runs):
        return None, ""
    return now_us // MINUTE_US, f"{behind} behind, more than {job.backlog_above}"


def _by_schedule(world: World, job: Bulk, last: int, now_us: int) -> int | None:
    if job.schedule is None or world.resource is None:
        return None
    due = due_before(job.schedule, _moment(now_us))
    following = None if due is None else due_after(job.schedule, due)
    if due is None:
        return None
    due_us = int(due.timestamp()) * SECOND_US
    period_us = MISSED_US * 2 if following is None else int((following - due).total_seconds()) * SECOND_US
    minute = due_us // MINUTE_US
    is_new = minute > last and due_us > world.resource.meta.created_us
    if not is_new or _told(world, job.name) == application_name(world.key.name, job.name, minute):
        return None
    return minute if now_us - due_us < min(MISSED_US, period_us // 2) else None


def _following(job: Bulk, now_us: int) -> int | None:
    following = None if job.schedule is None else due_after(job.schedule, _moment(now_us))
    return None if following is None else int(following.timestamp()) * SECOND_US


def _cleaned(world: World, memory: Memory) -> Verdict:
    """Of each job the last run of each result stays, for inspection; of former jobs none."""
    verdict = Verdict(memory)
    named = {job.name for job in jobs_of(world)}
    kept = {(run.bulk, run.state) for run in world.runs if run.bulk not in named}
    for run in sorted(world.runs, key=lambda run: (run.minute, run.name), reverse=True):
        if run.state not in ENDED:
            continue
        if (run.bulk, run.state) in kept:
            live = world.live.get(ChildName(KIND, run.name))
            if live is None or not live["metadata"].get("deletionTimestamp"):
                effect = DeleteObject(KIND, world.key.namespace, run.name, run.uid)
                verdict = verdict.then(
                    Verdict(memory, effects=(effect,), trail=(f"delete {run.name}, which has ended",))
                )
        kept.add((run.bulk, run.state))
    return verdict


def _finding(world: World, jobs: Sequence[Bulk], trouble: Trouble | None) -> Finding:
    if not jobs:
        return Finding(TYPE, "True", Reason.NO_BULK)
    if not world.spark_operator:
        return Finding(TYPE, "False", Reason.SPARK_OPERATOR_MISSING)
    if trouble is not None:
        return Finding(TYPE, "False", trouble.reason, trouble.says)
    lasts = [runs[-1] for job in jobs if (runs := _runs(world, job.name))]
    failed = next((run for run in lasts if run.state == "Failed"), None)
    if failed is not None:
        says = f"bulk job {failed.bulk}: {failed.name} failed{f': {failed.message}' if failed.message else ''}"
        return Finding(TYPE, "False", Reason.BULK_FAILING, says)
    running = [run.bulk for run in lasts if run.state not in ENDED]
    if running:
        return Finding(TYPE, "True", Reason.BULK_RUNNING, f"{', '.join(running)} runs")
    return Finding(TYPE, "True", Reason.BULK_IDLE)


def _status(world: World, job: Bulk) -> dict[str, Any]:
    runs = _runs(world, job.name)
    if not runs:
        told = _told(world, job.name)
        return {"state": "Idle", **({"application": told} if told else {})}
    run = runs[-1]
    fields: dict[str, Any] = {
        "state": run.state,
        "application": run.name,
        "started": None if run.started_us is None else moment(run.started_us),
        "finished": None if run.ended_us is None else moment(run.ended_us),
        "done": run.done,
        "failed": run.failed,
        "message": run.message or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _told(world: World, job: str) -> str:
    """The last run in the status, also one that was deleted since."""
    status = (world.resource.document.get("status") if world.resource else None) or {}
    return str(((status.get("bulk") or {}).get(job) or {}).get("application") or "")


def _runs(world: World, job: str) -> list[BulkRun]:
    """Those of one job, the oldest first."""
    return sorted((run for run in world.runs if run.bulk == job), key=lambda run: (run.minute, run.name))


def _moment(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // SECOND_US, UTC)
