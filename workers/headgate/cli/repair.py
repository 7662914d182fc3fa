"""`headgate repair`: one pass of repair over a queue, or over all queues of a namespace with a schedule."""

from __future__ import annotations

import os
from typing import Any

import click

from headgate.api.queues import Repair
from headgate.cli.passes import Group, check_whom, in_words, note, noted, pass_over_all, schedule_of
from headgate.cli.queues import connection_options, on_connection
from headgate.cli.showing import age
from headgate.client.connection import Headgate
from headgate.client.directory import KIND
from headgate.client.queue import PATIENCE_S
from headgate.engines.contract import PassEnd, Repaired
from headgate.engines.summary.standing import RepairResult
from headgate.store.catalogue_entry import Entry, State

EXIT_FAILED = 1
DEFAULT_SCHEDULE = Repair().schedule
READY = (State.ACTIVE,)


@click.command("repair")
@click.option("--queue", metavar="NAMESPACE/NAME", help="This queue alone.")
@click.option("--namespace", help="Every queue of this namespace ...")
@click.option(
    "--schedule", metavar="CRON", help="... that has this repair schedule. Unset: whatever schedule it has."
)
@connection_options
def command(queue: str | None, namespace: str | None, schedule: str | None, **options: Any) -> None:
    """Look again at what was passed, put late writes anew, bring generations on.

    Harmless twice: one process at a time repairs a queue, and what is done is not done again. A queue that fails does
    not stop the others; the exit code is 1 then.
    """
    check_whom("repair", "queue", queue, namespace, schedule)

    async def work(connection: Headgate) -> bool:
        if namespace is None:
            return await _repair(connection, str(queue))
        entries = await scheduled_queues(connection, namespace, schedule)
        if not entries:
            has = f" has the repair schedule {schedule!r}" if schedule is not None else ""
            click.echo(f"no queue in {namespace}{has}")

        async def one(name: str) -> bool:
            return await noted(connection, entries[name], lambda: _repair(connection, name))

        return await pass_over_all(list(entries), one)

    if not on_connection(options, work):
        raise SystemExit(EXIT_FAILED)


async def scheduled_queues(connection: Headgate, namespace: str, schedule: str | None) -> dict[str, Entry]:
    """The queues with that schedule and of this group, as the catalogue tells, by name; none of them is opened for
    it. What is being made or deleted, or retained, has nothing to be looked at."""
    wanted, group = None if schedule is None else in_words(schedule), Group.of(os.environ)
    await connection.ground.clock.until_trusted(PATIENCE_S)
    return {
        f"{namespace}/{known.entry.name.name}": known.entry
        for known in await connection.ground.catalogue().list(namespace, KIND)
        if known.entry.state in READY
        and wanted in (None, schedule_of(known.entry, "repair", DEFAULT_SCHEDULE))
        and group.has(known.entry, "repair")
    }


async def _repair(connection: Headgate, name: str) -> bool:
    """Whether nothing went wrong in its pass."""
    told, problems = await repair_queue(connection, name)
    click.echo(f"{name}: {told}")
    for problem in problems:
        click.echo(f"{name}: {problem}", err=True)
    return not problems


async def repair_queue(connection: Headgate, name: str) -> tuple[str, tuple[str, ...]]:
    """One pass over a queue, noted where the operator reads it: what it came to, and what went wrong."""
    queue = await connection.queue(name)
    done = await queue.run_repair()
    now_us = queue.now_us()
    if done.end is not PassEnd.BUSY:
        await note(connection, queue.entry.id, _result(done, now_us))
    return _told(done, now_us), done.problems


def _result(done: Repaired, now_us: int) -> RepairResult:
    return RepairResult(
        ended_us=now_us,
        says=done.problems[0] if done.problems else _told(done, now_us),
        problems=len(done.problems),
        owed_us=done.owed_us or 0,
        waits_for_all_us=done.waits_for_all_us or 0,
    )


def _told(done: Repaired, now_us: int) -> str:
    if done.end is PassEnd.BUSY:
        return str(done.end.value)
    facts = [f"looked at {done.looked} parts", f"{done.put_anew} of {done.late} late rows put anew"]
    if done.lanes_retired:
        facts.append(f"{done.lanes_retired} lanes retired")
    facts += [f"generation {number} left" for number in done.generations_left]
    if done.waits_for_all:
        facts.append("last looks wait until all replicas answer")
    if done.oldest_owed_us is not None:
        facts.append(f"owed since {age(now_us - done.oldest_owed_us)}")
    if done.end is PassEnd.STOPPED:
        facts.append("to be continued")
    return "; ".join(facts)
