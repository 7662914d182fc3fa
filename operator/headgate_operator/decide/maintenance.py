"""The conditions of repair and of the collector, from the last results of their passes, which are in a table.

They run by CronJobs, without the operator. This module only judges whether they keep up, and reports a delay before
it can lose anything: the third check of repair is due at 4 h, its record is kept for 7 days beyond the last; a full
pass of the collector is due within half of gc_grace.

Pure. While the result of the last pass is unknown, the previous condition stays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headgate.api.resources.counters import CounterResource
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate.api.values.cron import due_after
from headgate.api.values.units import format_duration_ms
from headgate.expiry import SECOND_US
from headgate.store.model.table import Table
from headgate_operator.model.plan import ConditionUpdate, PartialPlan
from headgate_operator.model.world import DecisionMemory, Nothing, Passes, PresentResource, ResourceWorld

REPAIR: Final = "RepairHealthy"
COLLECTION: Final = "CollectionHealthy"
HOUR_US: Final = 3600 * SECOND_US
REPAIR_OWED_US: Final = HOUR_US
ALL_OWED_US: Final = 24 * HOUR_US
FULL_OWED_US: Final = Table.gc_grace_s * SECOND_US // 2
"""Counters' tables have the default gc_grace of tables."""
FAILED_RUNS: Final = 2
PERIODS: Final = 2


def decide_maintenance(world: ResourceWorld, memory: DecisionMemory, now_us: int) -> PartialPlan:
    present = world.resource
    passes = world.passes
    if not isinstance(present, PresentResource) or isinstance(present.parsed, tuple) or isinstance(passes, Nothing):
        return PartialPlan(memory)
    if isinstance(present.parsed, CounterResource):
        return PartialPlan(memory, findings=(_collection(present, present.parsed, passes, now_us),))
    return PartialPlan(memory, findings=(_repair(present, present.parsed, passes, now_us),))


def _repair(present: PresentResource, queue: QueueResource, passes: Passes, now_us: int) -> ConditionUpdate:
    schedule = queue.spec.repair.schedule
    if passes.owed_us is not None and now_us - passes.owed_us > REPAIR_OWED_US:
        message = f"a check is overdue since {format_time(passes.owed_us)}{_words(passes)}"
        return ConditionUpdate(REPAIR, "False", Reason.REPAIR_OVERDUE, message)
    if passes.waits_for_all_us is not None and now_us - passes.waits_for_all_us > ALL_OWED_US:
        message = f"a check of all replicas is overdue since {format_time(passes.waits_for_all_us)}: is a node down?"
        return ConditionUpdate(REPAIR, "False", Reason.REPAIR_OVERDUE, message)
    if passes.failed_runs >= FAILED_RUNS:
        message = f"the last {passes.failed_runs} runs failed{_words(passes)}"
        return ConditionUpdate(REPAIR, "False", Reason.REPAIR_FAILING, message)
    since_us = present.meta.created_us if passes.ended_us is None else passes.ended_us + REPAIR_OWED_US
    if now_us > _periods_after_us(schedule, since_us):
        message = (
            "no run since its creation" if passes.ended_us is None else f"no run since {format_time(passes.ended_us)}"
        )
        return ConditionUpdate(REPAIR, "False", Reason.REPAIR_OVERDUE, f"{message}; it should run at {schedule}")
    if passes.ended_us is None:
        return ConditionUpdate(REPAIR, "Unknown", Reason.REPAIR_PENDING)
    return ConditionUpdate(REPAIR, "True", Reason.REPAIR_CURRENT)


def _collection(present: PresentResource, counter: CounterResource, passes: Passes, now_us: int) -> ConditionUpdate:
    if passes.gc_after_too_short:
        return ConditionUpdate(COLLECTION, "False", Reason.GC_AFTER_TOO_SHORT, passes.gc_after_too_short)
    schedule = counter.spec.gc.schedule
    whole_us = present.meta.created_us if passes.full_us is None else passes.full_us
    if now_us > max(whole_us + FULL_OWED_US, _periods_after_us(schedule, whole_us)):
        after = format_duration_ms(FULL_OWED_US // 1000)
        message = (
            f"no full pass since {format_time(whole_us)}; one is due within {after}, half of gc_grace{_words(passes)}"
        )
        return ConditionUpdate(COLLECTION, "False", Reason.COLLECTION_OVERDUE, message)
    if passes.failed_runs >= FAILED_RUNS:
        message = f"the last {passes.failed_runs} runs failed{_words(passes)}"
        return ConditionUpdate(COLLECTION, "False", Reason.COLLECTION_FAILING, message)
    if passes.ended_us is None:
        return ConditionUpdate(COLLECTION, "Unknown", Reason.COLLECTION_PENDING)
    return ConditionUpdate(COLLECTION, "True", Reason.COLLECTION_CURRENT)


def format_time(at_us: int) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(at_us // SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _periods_after_us(schedule: str, since_us: int) -> int:
    """The time by which it should have run twice; in the far future for a schedule that is never due."""
    at = datetime.fromtimestamp(since_us // SECOND_US, UTC)
    for _ in range(PERIODS):
        following = due_after(schedule, at)
        if following is None:
            return since_us + 10**18
        at = following
    return int(at.timestamp()) * SECOND_US


def _words(passes: Passes) -> str:
    return f": {passes.message}" if passes.message else ""
