"""How many workers each consumer should have: by what is behind, how long it waits, and what is about to be due.

Up at once, down slowly: to the highest number that was wanted within the last 30 seconds. Unknown state changes
nothing: with no figures for 15 seconds the replicas stay as they are, and never go down. The number is always within
`min` and `max`, and never above the number of lanes, since a worker more than there are lanes has nothing to do.

Pure. It does not know how a number is applied, nor when a queue is read to be awake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.api.resources.consumer import Consumer, Scaling
from headgate.expiry import SECOND_US
from headgate_operator.model.names import consumer_name
from headgate_operator.model.plan import PartialPlan, earliest
from headgate_operator.model.world import ChildName, DecisionMemory, LaneHealth, QueueLoad, ResourceWorld

FIGURES_HOLD_US: Final = 15 * SECOND_US
WINDOW_US: Final = 30 * SECOND_US
DUE_SOON_US: Final = 30 * SECOND_US
RAISE_EVERY_US: Final = 5 * SECOND_US
DECIDE_EVERY_US: Final = 5 * SECOND_US
"""The interval of decisions while there is a backlog, with or without an event."""
MS_US: Final = 1000


@dataclass(frozen=True)
class ScalingDecision(PartialPlan):
    """The wanted number of workers by consumer; the number of an absent consumer stays."""

    wanted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Now:
    figures: QueueLoad | None
    """None: not known, or too old."""
    shards: int | None
    lanes: int | None
    extra: int
    """Workers beyond what the load asks for, since lanes are not worked."""
    is_idle: bool
    """Nothing is behind, and no lane wants a worker: an extra one would have nothing to do."""
    time_us: int
    is_falling: bool
    """Whether the backlog falls, or is unknown."""


@dataclass(frozen=True)
class _Crew:
    replicas: int | None
    ready: int


def known_figures(world: ResourceWorld, now_us: int) -> QueueLoad | None:
    """The figures, if they are fresh enough to decide by."""
    figures = world.figures
    return figures if isinstance(figures, QueueLoad) and now_us - figures.at_us <= FIGURES_HOLD_US else None


def decide_scaling(
    world: ResourceWorld, shards: int | None, lanes: int | None, memory: DecisionMemory, now_us: int
) -> ScalingDecision:
    """The replicas of all consumers. `shards` are in force, `lanes` are those of all generations that have some."""
    consumers = (world.queue.spec.consumers or ()) if world.queue else ()
    figures = known_figures(world, now_us)
    memory, is_falling = _watched(figures, memory, now_us)
    busy = figures is not None and is_busy(figures)
    idle = not busy and not (isinstance(world.lanes, LaneHealth) and world.lanes.unprocessed)
    now = _Now(figures, shards, lanes, int(now_us < memory.unwell_until_us), idle, now_us, is_falling)
    again_us = earliest(now_us + DECIDE_EVERY_US if busy else None, memory.unwell_until_us if now.extra else None)
    decided = ScalingDecision(_without_others(memory, consumers), again_at_us=again_us if consumers else None)
    for consumer in consumers:
        decided = _with(decided, consumer, _crew(world, consumer), now)
    if figures is not None and not busy:
        soon = min((mark.due_us for mark in figures.later if mark.due_us > now_us), default=None)
        decided = replace(decided, again_at_us=earliest(decided.again_at_us, soon if consumers else None))
    return decided


def _with(decided: ScalingDecision, consumer: Consumer, crew: _Crew, now: _Now) -> ScalingDecision:
    scaling = consumer.scaling
    if scaling is None:
        if now.shards is None:
            return decided
        return replace(decided, wanted={**decided.wanted, consumer.name: now.shards + now.extra})
    if scaling.mode == "external":
        return decided
    part = _auto(consumer.name, scaling, crew, now, decided.memory)
    both = decided.then(part)
    return ScalingDecision(
        both.memory,
        trail=both.trail,
        again_at_us=both.again_at_us,
        wanted={**decided.wanted, **part.wanted},
    )


def _auto(name: str, scaling: Scaling, crew: _Crew, now: _Now, memory: DecisionMemory) -> ScalingDecision:
    window = _window(memory, name, now.time_us)
    if now.figures is None:
        kept = crew.replicas if crew.replicas is not None else max((each for _, each in window), default=scaling.min)
        target = _bounded(kept, scaling, now.lanes)
        memory = _remember(memory, name, now.time_us, target, window)
        return ScalingDecision(
            memory, trail=(f"{name}: {target}, since the backlog is unknown",), wanted={name: target}
        )
    if not window and crew.replicas is not None:
        window = ((now.time_us, crew.replicas),)  # nothing is remembered: what runs was wanted until now
    needed, memory, why = _needed(name, scaling, crew, now, now.figures, memory)
    needed = _bounded(needed if now.is_idle else needed + now.extra, scaling, now.lanes)
    target = _bounded(max([needed, *(each for _, each in window)]), scaling, now.lanes)
    memory = _remember(memory, name, now.time_us, needed, window)
    if target == needed:
        return ScalingDecision(memory, trail=(f"{name}: {target}, {why}",), wanted={name: target})
    again_us = max(at_us for at_us, each in window if each >= target) + WINDOW_US
    trail = (f"{name}: {target}, wanted within the last 30 s; now {needed}, {why}",)
    return ScalingDecision(memory, trail=trail, again_at_us=again_us, wanted={name: target})


def _needed(
    name: str, scaling: Scaling, crew: _Crew, now: _Now, figures: QueueLoad, memory: DecisionMemory
) -> tuple[int, DecisionMemory, str]:
    """By the load alone, and why."""
    now_us = now.time_us
    running = crew.replicas or 0
    if not is_busy(figures):
        if running and is_soon(figures, now_us):
            return max(1, scaling.min), memory, "a message is due within 30 s"
        return scaling.min, memory, "no backlog"
    behind = figures.behind
    needed = max(scaling.min, -(-(behind or 0) // scaling.backlog_per_worker))
    if figures.owners == 0 or figures.in_flight or figures.held:
        needed = max(1, needed)
    why = "woken" if behind is None else f"{behind} behind"
    waits_us = 0 if figures.oldest_us is None else now_us - figures.oldest_us
    if waits_us <= scaling.lag.ms * MS_US or not running:
        return needed, memory, why
    raised_us = dict(memory.raised_us).get(name, 0)
    if crew.ready < running or now.is_falling or now_us - raised_us < RAISE_EVERY_US:
        return max(needed, running), memory, f"{why}, the oldest for longer than {scaling.lag}"
    raised = (*((each, at_us) for each, at_us in memory.raised_us if each != name), (name, now_us))
    memory = replace(memory, raised_us=raised)
    return max(needed, 2 * running), memory, f"{why}, the oldest for longer than {scaling.lag}, not falling: doubled"


def is_busy(figures: QueueLoad) -> bool:
    """Whether anything waits, is in flight, or was not read yet."""
    return bool(figures.backlog or figures.in_flight or figures.held or (figures.awake and figures.owners == 0))


def is_soon(figures: QueueLoad, now_us: int) -> bool:
    """Whether something falls due within 30 s: no reason to start a worker, but one to keep it."""
    return any(mark.until_us > now_us and mark.due_us <= now_us + DUE_SOON_US for mark in figures.later)


def _bounded(number: int, scaling: Scaling, lanes: int | None) -> int:
    most = scaling.max if lanes is None else min(scaling.max, lanes)
    return min(max(number, scaling.min), most)


def _crew(world: ResourceWorld, consumer: Consumer) -> _Crew:
    live = world.live.get(ChildName("Deployment", consumer_name(world.key.name, consumer.name)))
    if live is None:
        return _Crew(None, 0)
    replicas = live["spec"].get("replicas")
    status = live.get("status") or {}
    return _Crew(1 if replicas is None else int(replicas), int(status.get("readyReplicas") or 0))


# ---- what is remembered


def _watched(figures: QueueLoad | None, memory: DecisionMemory, now_us: int) -> tuple[DecisionMemory, bool]:
    """Whether the backlog falls: by what it was five seconds ago or more."""
    if figures is None or figures.backlog is None:
        return replace(memory, backlog_before=None), True
    before = memory.backlog_before
    if before is None or now_us - before[0] > WINDOW_US:
        return replace(memory, backlog_before=(now_us, figures.backlog)), True
    if now_us - before[0] < RAISE_EVERY_US:
        return memory, True
    return replace(memory, backlog_before=(now_us, figures.backlog)), figures.backlog < before[1]


def _window(memory: DecisionMemory, name: str, now_us: int) -> tuple[tuple[int, int], ...]:
    """(time, wanted replicas) of the last 30 seconds, oldest first, each lower than the one before.

    The last one was wanted until now, however long ago that was found.
    """
    known = [(at_us, each) for of, at_us, each in memory.wanted if of == name]
    recent = tuple((at_us, each) for at_us, each in known if at_us > now_us - WINDOW_US)
    return recent or tuple((now_us, each) for _, each in known[-1:])


def _remember(
    memory: DecisionMemory, name: str, now_us: int, number: int, window: tuple[tuple[int, int], ...]
) -> DecisionMemory:
    """With this number as the last that was wanted; those that it is not below have no effect any more."""
    others = tuple(entry for entry in memory.wanted if entry[0] != name)
    kept = tuple((name, at_us, each) for at_us, each in window if each > number)
    return replace(memory, wanted=(*others, *kept, (name, now_us, number)))


def _without_others(memory: DecisionMemory, consumers: tuple[Consumer, ...]) -> DecisionMemory:
    """Without what was remembered of consumers that are no more."""
    names = {consumer.name for consumer in consumers}
    return replace(
        memory,
        wanted=tuple(entry for entry in memory.wanted if entry[0] in names),
        raised_us=tuple(entry for entry in memory.raised_us if entry[0] in names),
    )
