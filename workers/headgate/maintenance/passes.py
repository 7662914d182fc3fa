"""One pass of repair over a queue, one pass of the collector over a counter, and those of a namespace that are
due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headgate.api.resources.counters import Collect
from headgate.api.resources.queues import Repair
from headgate.client.catalogue.opened import PATIENCE_S
from headgate.client.connection import Headgate
from headgate.client.counter import Counter
from headgate.client.model.times import age
from headgate.counters.collect.collector import PassReport
from headgate.engines.contract import PassEnd, Repaired
from headgate.engines.summary.pass_results import CollectionResult, PassResults, RepairResult
from headgate.maintenance.pass_groups import PassGroup, PassOutcome, write_result
from headgate.store.catalogue.entry import Entry

REPAIR_SCHEDULE = Repair().schedule


async def scheduled_queues(
    connection: Headgate, namespace: str, schedule: str | None, group: PassGroup
) -> dict[str, Entry]:
    """The queues with that schedule and of this group, by name, from the catalogue alone."""
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    entries = await connection.queue_entries(namespace)
    return group.select(entries, schedule, block="repair", default_schedule=REPAIR_SCHEDULE)


async def repair_queue(connection: Headgate, name: str, *, results: PassResults | None = None) -> PassOutcome:
    """One pass over a queue, recorded where the operator reads it, with others if there are `results`."""
    queue = await connection.queue(name)
    done = await queue.run_repair()
    now_us = queue.now_us()
    outcome = PassOutcome(_format_repaired(done, now_us), done.problems)
    if done.end is not PassEnd.BUSY:
        result = RepairResult(
            ended_us=now_us,
            message=done.problems[0] if done.problems else outcome.message,
            problems=len(done.problems),
            owed_us=done.owed_us or 0,
            waits_for_all_us=done.waits_for_all_us or 0,
        )
        outcome = outcome.add(await write_result(connection, queue.entry.id, result, results=results))
    return outcome


def _format_repaired(done: Repaired, now_us: int) -> str:
    if done.end is PassEnd.BUSY:
        return str(done.end.value)
    facts = [f"checked {done.checked} parts", f"{done.put_again} of {done.late} late rows put again"]
    if done.lanes_retired:
        facts.append(f"{done.lanes_retired} lanes retired")
    facts += [f"generation {number} left" for number in done.generations_left]
    if done.waits_for_all:
        facts.append("final checks wait until all replicas answer")
    if done.oldest_owed_us is not None:
        facts.append(f"overdue for {age(now_us - done.oldest_owed_us)}")
    if done.end is PassEnd.STOPPED:
        facts.append("to be continued")
    return "; ".join(facts)


# ---- collection

COLLECT_SCHEDULE = Collect().schedule

MakePass = Callable[[Counter], Awaitable[PassReport]]
"""Makes a pass, or a part of one."""


async def scheduled_counters(
    connection: Headgate, namespace: str, schedule: str | None, group: PassGroup
) -> dict[str, Entry]:
    """The counters with that schedule and of this group, by name, from the catalogue alone."""
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    entries = await connection.counter_entries(namespace)
    return group.select(entries, schedule, block="gc", default_schedule=COLLECT_SCHEDULE)


async def collect_counter(
    connection: Headgate,
    name: str,
    collect: MakePass = Counter.run_collector,
    *,
    results: PassResults | None = None,
) -> PassOutcome:
    """One pass over a counter, recorded, with others if there are `results`; no problem if it only has to wait.
    `collect` may divide the pass, as Spark does."""
    counter = await connection.counter(name)
    report = await collect(counter)
    result = await _result(counter, report, connection.now_us())
    missed = await write_result(connection, counter.entry.id, result, results=results)
    if report.refused is not None:
        return PassOutcome(report.refused, (report.refused,)).add(missed)
    owed_us = None if report.full else await _overdue_us(counter, connection.now_us())
    problem = f"no pass has read every key for {age(owed_us)}: fix the replicas that do not answer"
    return PassOutcome(_format_report(report), () if owed_us is None else (problem,)).add(missed)


async def _result(counter: Counter, report: PassReport, now_us: int) -> CollectionResult:
    """With what all passes have left: one run may be a part of a pass."""
    standing = await counter.standing()
    keys, shards, expired = standing.counted()
    return CollectionResult(
        ended_us=now_us,
        message=report.refused or _format_report(report),
        problems=int(report.refused is not None),
        refused=report.refused or "",
        full_us=standing.full_us or 0,
        keys=keys,
        shards=shards,
        expired=expired,
    )


async def _overdue_us(counter: Counter, now_us: int) -> int | None:
    """For how long no pass was full, if that is too long."""
    standing = await counter.standing()
    made_us = counter.entry.generations.current.from_us
    gc_grace_us = counter.handle.settings.tables.shards.gc_grace_s * 1_000_000
    if not standing.is_overdue(made_us=made_us, now_us=now_us, gc_grace_us=gc_grace_us):
        return None
    return now_us - (standing.full_us or made_us)


def _format_report(report: PassReport) -> str:
    facts = [
        f"{report.keys} keys, {report.shards} shards",
        f"{report.collected} of {report.expired} ended shards merged",
    ]
    if report.minutes:
        facts.append(f"{report.minutes} minutes of updates with tokens merged")
    if report.skipped:
        facts.append(f"{report.skipped} keys skipped, because not all replicas answered")
    if report.unreachable:
        facts.append("aborted, because replicas are unavailable")
    if report.waits is not None:
        facts.append(f"waiting: {report.waits}")
    return "; ".join(facts)
