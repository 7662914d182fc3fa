"""One pass of repair over a queue, and the queues of a namespace that are due for one."""

from __future__ import annotations

from headgate.api.queues import Repair
from headgate.client.catalogue.opened import PATIENCE_S
from headgate.client.catalogue.queue_record import KIND
from headgate.client.connection import Headgate
from headgate.client.model.times import age
from headgate.engines.contract import PassEnd, Repaired
from headgate.engines.summary.standing import RepairResult
from headgate.maintenance.pass_groups import PassGroup, PassOutcome, write_result
from headgate.store.catalogue.entry import Entry

DEFAULT_SCHEDULE = Repair().schedule


async def scheduled_queues(
    connection: Headgate, namespace: str, schedule: str | None, group: PassGroup
) -> dict[str, Entry]:
    """The queues with that schedule and of this group, by name, from the catalogue alone."""
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    known = await connection.process_context.catalogue().list(namespace, KIND)
    return group.select([each.entry for each in known], schedule, block="repair", default_schedule=DEFAULT_SCHEDULE)


async def repair_queue(connection: Headgate, name: str) -> PassOutcome:
    """One pass over a queue, recorded where the operator reads it."""
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
        outcome = outcome.add(await write_result(connection, queue.entry.id, result))
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
