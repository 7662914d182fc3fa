"""The status: every condition as kstatus reads it, the figures, when it is written, and which events go with it.

A condition that was not checked keeps its value. A status is written at most once in 5 seconds, and only if it
differs in more than the fields that wait for other changes (such as the time of the last repair): a thousand idle
queues are not written every five minutes. It is held back for up to 2 seconds while there is still something to do,
and while a generation is young and not Ready yet, so that a new queue is written once: Ready. Events are written with
their status, and never about a creation.

Pure. It knows the findings of the parts and the present status; it knows no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from headgate.api.resources.reasons import AWAITED, COUNTER_CONDITIONS, IN_READY, QUEUE_CONDITIONS, STALLING, Reason
from headgate.expiry import SECOND_US
from headgate_operator.decide.maintenance import format_time
from headgate_operator.model.plan import (
    ConditionUpdate,
    Effect,
    Emit,
    PartialPlan,
    PatchStatus,
    ReconcilePlan,
    StopLane,
    earliest,
)
from headgate_operator.model.world import DecisionMemory, PresentResource, ResourceWorld

WRITE_EVERY_US: Final = 5 * SECOND_US
HELD_BACK_US: Final = 2 * SECOND_US
FIRST_INSPECTION_WAITS_US: Final = 600 * SECOND_US
"""How long the result of a first check of lanes waits for another change to be written with."""
LANES_BAD_US: Final = 60 * SECOND_US
MESSAGE_MAX: Final = 32_768
TRANSIENT: Final = ("Reconciling", "Stalled")
"""There only while they are True."""
NOT_YET: Final = AWAITED | {Reason.REPAIR_PENDING, Reason.COLLECTION_PENDING}
PASSENGERS: Final = ("lastCollection", "repair")
LOAD: Final = ("backlog", "inFlight", "rate")
"""Values that are equal to an absent one."""

Status = Mapping[str, Any]


def decide_status(world: ResourceWorld, present: PresentResource, verdict: PartialPlan, now_us: int) -> ReconcilePlan:
    """The plan: the effects of the parts, then the status that reports them, if it is due to be written."""
    before = status_of(present)
    verdict = replace(verdict, memory=_busy(verdict, now_us))
    status, again_us = _status(present, before, verdict, now_us)
    memory, effects = verdict.memory, verdict.effects
    write_at_us = _write_at_us(present, before, status, verdict, now_us)
    if write_at_us is not None and write_at_us <= now_us:
        reports = (
            PatchStatus(world.key, present.meta.uid, status),
            *_events(world, present, before, status, verdict),
        )
        # A failure is reported before its retry: effects after one that fails are not performed.
        effects = (*reports, *effects) if verdict.blocked_by is not None else (*effects, *reports)
        memory = replace(memory, status_at_us=now_us)
        write_at_us = None
    return ReconcilePlan(
        effects=effects,
        memory=memory,
        again_at_us=earliest(verdict.again_at_us, again_us, write_at_us),
        ask=verdict.ask,
        trail=verdict.trail,
    )


def _busy(verdict: PartialPlan, now_us: int) -> DecisionMemory:
    since_us = verdict.memory.busy_since_us
    since_us = (now_us if since_us is None else since_us) if _has_more(verdict) else None
    return replace(verdict.memory, busy_since_us=since_us)


def status_of(present: PresentResource) -> dict[str, Any]:
    status = present.document.get("status")
    return dict(status) if isinstance(status, Mapping) else {}


def condition_of(status: Status, type_: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one.get("type") == type_), None)


# ---- what is so


def _status(
    present: PresentResource, before: Status, verdict: PartialPlan, now_us: int
) -> tuple[dict[str, Any], int | None]:
    parts = QUEUE_CONDITIONS if present.document["kind"] == "Queue" else COUNTER_CONDITIONS
    conditions: dict[str, dict[str, Any]] = {}
    for type_ in parts:
        if type_ != "Ready" and type_ not in TRANSIENT:
            finding = verdict.finding(type_)
            conditions[type_] = _kept(before, type_, verdict) if finding is None else _condition(present, finding)
            _date(conditions[type_], before, now_us)
    ready, again_us = _ready(present, before, verdict, conditions, now_us)
    for finding in (ready, *_around(ready)):
        conditions[finding.type] = _condition(present, finding)
        _date(conditions[finding.type], before, now_us)
    kept = {name: value for name, value in before.items() if name not in ("observedGeneration", "conditions")}
    figures = {name: value for name, value in {**kept, **verdict.figures}.items() if value is not None}
    ordered = [conditions[type_] for type_ in parts if type_ in conditions]
    return {"observedGeneration": present.meta.generation, "conditions": ordered, **figures}, again_us


def _ready(
    present: PresentResource,
    before: Status,
    verdict: PartialPlan,
    parts: Mapping[str, Mapping[str, Any]],
    now_us: int,
) -> tuple[ConditionUpdate, int | None]:
    """Ready is what follows from all others; and when it may be otherwise, if nothing changes."""
    if verdict.blocked_by is not None:
        return _not_ready(verdict.blocked_by.reason, verdict.blocked_by.message), None
    if verdict.missing_input:
        return _blind(present, before, verdict), None
    again_us = None
    for type_ in IN_READY:
        part = parts.get(type_)
        if part is None or part["status"] == "True":
            continue
        if type_ == "LanesHealthy":
            if part["status"] != "False":
                continue
            bad_us = _read_time_us(part["lastTransitionTime"]) + LANES_BAD_US
            if now_us < bad_us:
                again_us = bad_us
                continue
        return _not_ready(_reason(part["reason"]), part["message"]), again_us
    if verdict.waiting_for is not None:
        return _not_ready(verdict.waiting_for.reason, verdict.waiting_for.message), again_us
    if _is_under_way(present, before, verdict):
        return _not_ready(Reason.RECONCILING, verdict.trail[0] if verdict.trail else ""), again_us
    return ConditionUpdate("Ready", "True", Reason.RECONCILED), again_us


def _not_ready(reason: Reason, message: str) -> ConditionUpdate:
    return ConditionUpdate("Ready", "False", reason, message)


def _blind(present: PresentResource, before: Status, verdict: PartialPlan) -> ConditionUpdate:
    """Something was not read: the conditions of this generation stay."""
    kept = condition_of(before, "Ready")
    if kept is None or kept.get("observedGeneration") != present.meta.generation:
        return _not_ready(Reason.PROGRESSING, f"waiting for: {verdict.missing_input}")
    return ConditionUpdate("Ready", kept["status"], _reason(kept["reason"]), kept["message"])


def _around(ready: ConditionUpdate) -> tuple[ConditionUpdate, ...]:
    """The conditions that kstatus needs next to a Ready that is not True."""
    if ready.status == "True":
        return ()
    if ready.reason in STALLING:
        return (ConditionUpdate("Stalled", "True", ready.reason, ready.message),)
    if ready.reason in AWAITED:
        return (ConditionUpdate("Reconciling", "True", ready.reason, ready.message),)
    return ()


def _is_under_way(present: PresentResource, before: Status, verdict: PartialPlan) -> bool:
    """Whether this generation is being applied for the first time: there is more to do, and it was never Ready."""
    ready = condition_of(before, "Ready") or {}
    was_ready = ready.get("status") == "True" and ready.get("observedGeneration") == present.meta.generation
    return _has_more(verdict) and not was_ready


def _has_more(verdict: PartialPlan) -> bool:
    return bool(verdict.ask) or any(not isinstance(effect, StopLane | Emit) for effect in verdict.effects)


def _condition(present: PresentResource, finding: ConditionUpdate) -> dict[str, Any]:
    return {
        "type": finding.type,
        "status": finding.status,
        "observedGeneration": present.meta.generation,
        "reason": finding.reason.value,
        "message": finding.text[:MESSAGE_MAX],
    }


def _kept(before: Status, type_: str, verdict: PartialPlan) -> dict[str, Any]:
    """The previous condition; else one of nothing checked yet."""
    kept = condition_of(before, type_)
    if kept is not None:
        return dict(kept)
    reason = _UNSEEN.get(type_, Reason.PROGRESSING)
    why = verdict.blocked_by.reason.value if verdict.blocked_by is not None else verdict.missing_input
    return {
        "type": type_,
        "status": "Unknown",
        "reason": reason.value,
        "message": f"not checked yet{f': {why}' if why else ''}",
    }


_UNSEEN: Final = {"RepairHealthy": Reason.REPAIR_PENDING, "CollectionHealthy": Reason.COLLECTION_PENDING}


def _date(condition: dict[str, Any], before: Status, now_us: int) -> None:
    """Since when it is so: since its status changed last."""
    kept = condition_of(before, condition["type"])
    same = kept is not None and kept.get("status") == condition["status"] and kept.get("lastTransitionTime")
    condition["lastTransitionTime"] = kept["lastTransitionTime"] if kept is not None and same else format_time(now_us)


def _read_time_us(text: str) -> int:
    """A time in a status; another client may have written it."""
    try:
        return int(datetime.fromisoformat(text).timestamp()) * SECOND_US
    except ValueError:
        return 0


def _reason(text: str) -> Reason:
    """A reason in a status; a later release may have more of them."""
    return _REASONS.get(text, Reason.PROGRESSING)


_REASONS: Final = {reason.value: reason for reason in Reason}


# ---- when it is written


def _write_at_us(
    present: PresentResource, before: Status, status: Status, verdict: PartialPlan, now_us: int
) -> int | None:
    """The time from which on it is to be written; None if there is nothing to write."""
    if _comparable(before) == _comparable(status, before, now_us):
        return None
    memory = verdict.memory
    write_at_us = memory.status_at_us + WRITE_EVERY_US if memory.status_at_us else now_us
    if memory.busy_since_us is not None and not verdict.is_refused:
        write_at_us = max(write_at_us, memory.busy_since_us + HELD_BACK_US)
    if _is_birth(present, before, status, verdict):
        write_at_us = max(write_at_us, memory.began_us + HELD_BACK_US)
    return max(now_us, write_at_us)


def _is_birth(present: PresentResource, before: Status, status: Status, verdict: PartialPlan) -> bool:
    """Whether this would be the first word on this generation, and another follows soon."""
    ready = condition_of(status, "Ready")
    if ready is None:
        return False
    settled = ready["status"] == "True" or ready["reason"] not in AWAITED or ready["reason"] == Reason.DELETING
    return before.get("observedGeneration") != present.meta.generation and (
        not settled or bool(verdict.missing_input)
    )


def _comparable(status: Status, before: Status | None = None, now_us: int = 0) -> dict[str, Any]:
    """Without fields that are only written with another change, such as a first check that found all healthy."""
    fields = {name: value for name, value in status.items() if name not in PASSENGERS and (value or name not in LOAD)}
    jobs = fields.get("bulk")
    if isinstance(jobs, Mapping):
        fields["bulk"] = {name: _still(job) for name, job in jobs.items()}
    conditions = (_undated(_hold_first_inspection(one, before, now_us)) for one in fields.get("conditions") or ())
    fields["conditions"] = sorted(conditions, key=lambda one: str(one["type"]))
    return fields


def _undated(condition: Mapping[str, Any]) -> dict[str, Any]:
    """That a part was found as it was for a later generation, too, travels; of Ready it is news."""
    if condition["type"] == "Ready":
        return dict(condition)
    return {name: value for name, value in condition.items() if name != "observedGeneration"}


def _hold_first_inspection(condition: Mapping[str, Any], before: Status | None, now_us: int) -> dict[str, Any]:
    """A condition; the previous one, for a while, if it only reports that a first check found all healthy."""
    kept = None if before is None else condition_of(before, str(condition["type"]))
    if kept is None or kept.get("status") != "Unknown" or condition["reason"] != Reason.LANES_SERVED.value:
        return dict(condition)
    is_late = now_us - _read_time_us(kept["lastTransitionTime"]) > FIRST_INSPECTION_WAITS_US
    return dict(condition if is_late else kept)


def _still(job: Mapping[str, Any]) -> dict[str, Any]:
    running = job.get("state") == "Running"
    return {name: value for name, value in job.items() if not (running and name in ("done", "failed"))}


# ---- events


def _events(
    world: ResourceWorld, present: PresentResource, before: Status, status: Status, verdict: PartialPlan
) -> tuple[Effect, ...]:
    """Events of conditions that have changed, of shards, and of stops that were ordered."""
    events: list[Effect] = []

    def emit(reason: str, note: str, *, warning: bool) -> None:
        events.append(Emit(world.key, present.meta.uid, reason, note[:1024], "Warning" if warning else "Normal"))

    for condition in status["conditions"]:
        kept = condition_of(before, condition["type"])
        if condition["type"] in TRANSIENT or kept is None or kept["status"] == condition["status"]:
            continue
        is_birth = kept["reason"] in NOT_YET and condition["status"] == "True"
        if not is_birth and condition["reason"] not in NOT_YET:
            note = f"{condition['type']} is {condition['status']}: {condition['message']}"
            emit(condition["reason"], note, warning=condition["status"] != "True")
    shards = before.get("replicas"), status.get("replicas")
    if None not in shards and shards[0] != shards[1]:
        emit("ShardsChanged", f"from {shards[0]} to {shards[1]} shards", warning=False)
    return tuple(events)
