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

from headgate.api.resources.bulk import Bulk
from headgate.api.resources.reasons import Reason
from headgate.api.values.cron import due_after, due_before
from headgate.expiry import SECOND_US
from headgate_operator.decide.child import decide_child
from headgate_operator.decide.maintenance import format_time
from headgate_operator.decide.scaling import known_figures
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.manifests.spark_application import build_application, image_of
from headgate_operator.manifests.strategic_merge import PatchInvalid
from headgate_operator.model.names import application_name
from headgate_operator.model.plan import ConditionUpdate, DeleteObject, PartialPlan
from headgate_operator.model.world import (
    BulkRun,
    ChildName,
    DecisionMemory,
    ResourceFailure,
    ResourceWorld,
    StoreConnection,
)

TYPE: Final = "BulkReady"
KIND: Final = "SparkApplication"
MINUTE_US: Final = 60 * SECOND_US
MISSED_US: Final = 60 * MINUTE_US
REST_US: Final = 10 * MINUTE_US
ENDED: Final = ("Succeeded", "Failed")


def decide_bulk(
    world: ResourceWorld, connection: StoreConnection, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    """Runs to start and to clean up, and what is so."""
    verdict = PartialPlan(memory)
    jobs = jobs_of(world)
    failure: ResourceFailure | None = None
    for job in jobs if world.spark_operator else ():
        part = _of(world, connection, job, verdict.memory, now_us)
        failure = failure or part.blocked_by
        verdict = verdict.then(replace(part, blocked_by=None))
    return add_bulk_status(world, verdict.then(_cleaned(world, verdict.memory)), failure)


def add_bulk_status(
    world: ResourceWorld, verdict: PartialPlan, failure: ResourceFailure | None = None
) -> PartialPlan:
    jobs = jobs_of(world)
    figures: dict[str, object] = {"bulk": {job.name: _status(world, job) for job in jobs}} if jobs else {}
    return replace(verdict.with_condition(_finding(world, jobs, failure)), figures=verdict.figures | figures)


def jobs_of(world: ResourceWorld) -> tuple[Bulk, ...]:
    return tuple(world.queue.spec.bulk or ()) if world.queue else ()


def _of(
    world: ResourceWorld, connection: StoreConnection, job: Bulk, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    runs = _runs(world, job.name)
    following = _following(job, now_us)
    if any(run.state not in ENDED for run in runs):
        return PartialPlan(memory, again_at_us=following)
    minute, why = _due(world, job, runs, now_us)
    if minute is None:
        return PartialPlan(memory, again_at_us=following)
    child = ChildName(KIND, application_name(world.key.name, job.name, minute))
    if child in world.live:
        return PartialPlan(memory, again_at_us=following)
    if image_of(world.settings, job) is None:
        message = f"bulk job {job.name}: neither spark.image nor the chart names an image with Spark"
        return PartialPlan(memory, blocked_by=ResourceFailure(Reason.BULK_FAILING, message), trail=(message,))
    try:
        document = build_application(ChildOwner(world.key, world.uid), world.settings, connection, job, minute)
    except PatchInvalid as error:
        message = f"bulk job {job.name}: {error}"
        return PartialPlan(memory, blocked_by=ResourceFailure(Reason.APPLY_REFUSED, message), trail=(message,))
    due = PartialPlan(memory, trail=(f"bulk job {job.name} is due: {why}",), again_at_us=following)
    return due.then(decide_child(world, document, memory, now_us))


def _due(world: ResourceWorld, job: Bulk, runs: Sequence[BulkRun], now_us: int) -> tuple[int | None, str]:
    """The minute that calls for a run, and why."""
    last = runs[-1].minute if runs else -1
    by_schedule = _by_schedule(world, job, last, now_us)
    if by_schedule is not None:
        return by_schedule, f"schedule {job.schedule}"
    figures = known_figures(world, now_us)
    behind = None if figures is None else figures.behind
    if job.backlog_above is None or behind is None or behind <= job.backlog_above:
        return None, ""
    if any(now_us - (run.ended_us or now_us) <= REST_US for run in runs):
        return None, ""
    return now_us // MINUTE_US, f"{behind} behind, more than {job.backlog_above}"


def _by_schedule(world: ResourceWorld, job: Bulk, last: int, now_us: int) -> int | None:
    if job.schedule is None or world.resource is None:
        return None
    due = due_before(job.schedule, _time_of(now_us))
    following = None if due is None else due_after(job.schedule, due)
    if due is None:
        return None
    due_us = int(due.timestamp()) * SECOND_US
    period_us = MISSED_US * 2 if following is None else int((following - due).total_seconds()) * SECOND_US
    minute = due_us // MINUTE_US
    is_new = minute > last and due_us > world.resource.meta.created_us
    if not is_new or _reported_application(world, job.name) == application_name(world.key.name, job.name, minute):
        return None
    return minute if now_us - due_us < min(MISSED_US, period_us // 2) else None


def _following(job: Bulk, now_us: int) -> int | None:
    following = None if job.schedule is None else due_after(job.schedule, _time_of(now_us))
    return None if following is None else int(following.timestamp()) * SECOND_US


def _cleaned(world: ResourceWorld, memory: DecisionMemory) -> PartialPlan:
    """Of each job the last run of each result stays, for inspection; of former jobs none."""
    verdict = PartialPlan(memory)
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
                    PartialPlan(memory, effects=(effect,), trail=(f"delete {run.name}, which has ended",))
                )
        kept.add((run.bulk, run.state))
    return verdict


def _finding(world: ResourceWorld, jobs: Sequence[Bulk], failure: ResourceFailure | None) -> ConditionUpdate:
    if not jobs:
        return ConditionUpdate(TYPE, "True", Reason.NO_BULK)
    if not world.spark_operator:
        return ConditionUpdate(TYPE, "False", Reason.SPARK_OPERATOR_MISSING)
    if failure is not None:
        return ConditionUpdate(TYPE, "False", failure.reason, failure.message)
    lasts = [runs[-1] for job in jobs if (runs := _runs(world, job.name))]
    failed = next((run for run in lasts if run.state == "Failed"), None)
    if failed is not None:
        message = f"bulk job {failed.bulk}: {failed.name} failed{f': {failed.message}' if failed.message else ''}"
        return ConditionUpdate(TYPE, "False", Reason.BULK_FAILING, message)
    running = [run.bulk for run in lasts if run.state not in ENDED]
    if running:
        return ConditionUpdate(TYPE, "True", Reason.BULK_RUNNING, f"{', '.join(running)} runs")
    return ConditionUpdate(TYPE, "True", Reason.BULK_IDLE)


def _status(world: ResourceWorld, job: Bulk) -> dict[str, Any]:
    runs = _runs(world, job.name)
    if not runs:
        reported = _reported_application(world, job.name)
        return {"state": "Idle", **({"application": reported} if reported else {})}
    run = runs[-1]
    fields: dict[str, Any] = {
        "state": run.state,
        "application": run.name,
        "started": None if run.started_us is None else format_time(run.started_us),
        "finished": None if run.ended_us is None else format_time(run.ended_us),
        "done": run.done,
        "failed": run.failed,
        "message": run.message or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _reported_application(world: ResourceWorld, job: str) -> str:
    """The last run in the status, also one that was deleted since."""
    return str(((world.status.get("bulk") or {}).get(job) or {}).get("application") or "")


def _runs(world: ResourceWorld, job: str) -> list[BulkRun]:
    """Those of one job, the oldest first."""
    return sorted((run for run in world.runs if run.bulk == job), key=lambda run: (run.minute, run.name))


def _time_of(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // SECOND_US, UTC)
