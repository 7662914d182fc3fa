"""The decision about lanes without an owner, or whose owner makes no progress, and their condition.

Members watch each other's lanes; the operator adds a worker where there is none, or too few. An owner without
progress is ordered to stop: by its epoch, once, and that never shortens a lease (attack E3).

Pure. It does not read lanes: it gets the result of a check, and without one the previous condition stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.api.resources.reasons import Reason
from headgate.expiry import SECOND_US
from headgate_operator.decide.bulk import jobs_of
from headgate_operator.decide.scaling import known_figures
from headgate_operator.model.plan import ConditionUpdate, Emit, PartialPlan, StopLane, format_names
from headgate_operator.model.world import DecisionMemory, LaneHealth, LaneProblem, ResourceWorld, StoreConnection

TYPE: Final = "LanesHealthy"
LANES_NAMED: Final = 3
TAKING: Final = ("drain", "move", "redrive")
"""Bulk jobs that take what waits; the others read what is kept."""
LANES_FRESH_US: Final = 60 * SECOND_US
EXTRA_US: Final = 5 * 60 * SECOND_US
"""How long the extra worker stays after the last lane without an owner was found."""
STOP_AGAIN_US: Final = 60 * SECOND_US
"""How long after an order to stop a lane without progress gets another."""


def decide_lane_health(
    world: ResourceWorld, connection: StoreConnection | None, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    """Stops to order, extra processing to remember, and what is so."""
    lanes = _fresh(world, now_us)
    if lanes is None:
        return _unseen(world, memory, now_us)
    stops, memory = _stops(world, lanes, connection, memory, now_us)
    events = tuple(Emit(world.key, world.uid, "LaneStopped", _stop_words(stop), "Warning") for stop in stops)
    trail = [_stop_words(stop) for stop in stops]
    if lanes.unprocessed:
        memory = replace(memory, unwell_until_us=now_us + EXTRA_US)
        trail.append(
            f"lanes {_lanes(lanes.unprocessed)} have due messages and no owner: one extra worker for 5 minutes"
        )
    finding = _finding(world, lanes)
    rows = _find_unreadable(world, now_us) if finding.status == "True" else None
    findings = (finding,) if rows is None else rows
    return PartialPlan(memory, effects=(*stops, *events), findings=findings, trail=tuple(trail))


def _finding(world: ResourceWorld, lanes: LaneHealth) -> ConditionUpdate:
    if lanes.suspicious:
        return _bad(
            Reason.LANE_OWNER_STALLED, lanes.suspicious, "the owner of a lane makes no progress and was stopped"
        )
    if lanes.unprocessed and not waits_as_declared(world):
        return _bad(Reason.LANES_UNPROCESSED, lanes.unprocessed, "messages are due and the lane has no owner")
    if lanes.held:
        return _bad(
            Reason.LANE_HELD, lanes.held, "nothing new is delivered, since too many messages are settled out of order"
        )
    return ConditionUpdate(TYPE, "True", Reason.LANES_SERVED)


def _find_unreadable(world: ResourceWorld, now_us: int) -> tuple[ConditionUpdate, ...] | None:
    """The condition where rows were set aside; None: there are none. Owners report them, so the condition stays as it
    is while no lane has an owner."""
    figures = known_figures(world, now_us)
    if figures is not None and figures.unreadable:
        message = f"rows cannot be read, and their messages are kept and not delivered: {figures.unreadable} rows"
        return (ConditionUpdate(TYPE, "False", Reason.ROWS_UNREADABLE, message),)
    is_reported = world.reports_reason(TYPE, Reason.ROWS_UNREADABLE.value)
    return () if is_reported and (figures is None or not figures.owners) else None


def waits_as_declared(world: ResourceWorld) -> bool:
    """Whether what is due is to wait: in a queue without consumers that bulk jobs empty, or of dead letters."""
    if world.queue is None or world.queue.spec.consumers:
        return False
    return any(job.mode in TAKING for job in jobs_of(world)) or _has_dead_letters(world)


def _has_dead_letters(world: ResourceWorld) -> bool:
    """Whether another queue names it as the one of its dead letters."""
    siblings = world.siblings.values() if isinstance(world.siblings, Mapping) else ()
    return any(world.key.name in each.dead_letters for each in siblings)


def _unseen(world: ResourceWorld, memory: DecisionMemory, now_us: int) -> PartialPlan:
    """Without a check: only queues that may need one get one. Figures show lanes that are held, and rows that were
    set aside; any other failing condition stays until a check finds the lanes healthy."""
    figures = known_figures(world, now_us)
    if figures is None:
        return PartialPlan(memory)
    if figures.held:
        message = f"nothing new is delivered, since too many messages are settled out of order: {figures.held} lanes"
        return PartialPlan(memory, findings=(ConditionUpdate(TYPE, "False", Reason.LANE_HELD, message),))
    rows = _find_unreadable(world, now_us)
    if rows is not None:
        return PartialPlan(memory, findings=rows)
    is_well = not world.reports(TYPE, "False") or world.reports_reason(TYPE, Reason.ROWS_UNREADABLE.value)
    return PartialPlan(memory, findings=(ConditionUpdate(TYPE, "True", Reason.LANES_SERVED),) if is_well else ())


def _fresh(world: ResourceWorld, now_us: int) -> LaneHealth | None:
    lanes = world.lanes
    return lanes if isinstance(lanes, LaneHealth) and now_us - lanes.at_us <= LANES_FRESH_US else None


def _stops(
    world: ResourceWorld, lanes: LaneHealth, connection: StoreConnection | None, memory: DecisionMemory, now_us: int
) -> tuple[tuple[StopLane, ...], DecisionMemory]:
    recent = tuple(stop for stop in memory.stopped if now_us - stop[2] < STOP_AGAIN_US)
    if connection is None:
        return (), replace(memory, stopped=recent)
    known = {(lane, epoch) for lane, epoch, _ in recent}
    due = [one for one in lanes.suspicious if (one.lane, one.epoch) not in known]
    ordered = tuple((one.lane, one.epoch, now_us) for one in due)
    stops = tuple(StopLane(world.key, one.lane, one.epoch, connection) for one in due)
    return stops, replace(memory, stopped=(*recent, *ordered))


def _stop_words(stop: StopLane) -> str:
    return f"the owner of lane {stop.lane} (epoch {stop.epoch}) makes no progress, and is ordered to stop"


def _bad(reason: Reason, lanes: Sequence[LaneProblem], message: str) -> ConditionUpdate:
    named = ", ".join(f"{one.lane} ({one.message})" if one.message else one.lane for one in lanes[:LANES_NAMED])
    more = f" and {len(lanes) - LANES_NAMED} more" if len(lanes) > LANES_NAMED else ""
    return ConditionUpdate(TYPE, "False", reason, f"{message}: {named}{more}")


def _lanes(lanes: Sequence[LaneProblem]) -> str:
    return format_names(one.lane for one in lanes)
