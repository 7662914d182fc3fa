"""`headgate repair`: one pass of repair over a queue, or over all queues of a namespace with a schedule."""

from __future__ import annotations

import os

import click

from headgate.api.queues import Repair
from headgate.cli.arguments import NAME_METAVAR, complete_queue, define_command, namespace_option
from headgate.cli.connection import run_connected
from headgate.cli.exit_codes import ExitCode, exit_code_for
from headgate.cli.output import Output, output_option
from headgate.cli.showing import age
from headgate.client.catalogue.directory import KIND
from headgate.client.connection import Headgate
from headgate.client.queue import PATIENCE_S
from headgate.engines.contract import PassEnd, Repaired
from headgate.engines.summary.standing import RepairResult
from headgate.maintenance.pass_groups import (
    PassGroup,
    check_whom,
    in_words,
    note,
    noted,
    pass_over_all,
    schedule_of,
    schedule_option,
    show_pass,
)
from headgate.store.catalogue.entry import Entry, EntryState

DEFAULT_SCHEDULE = Repair().schedule
READY = (EntryState.ACTIVE,)


@define_command("repair")
@click.argument("queue", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_queue)
@namespace_option
@schedule_option
@output_option
def command(queue: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Repair a queue, or those of a namespace.

    Repair finds messages that were written late and delivers them, and completes changes of the number of shards.
    It is harmless to run it twice: one process at a time repairs a queue. With --namespace, a queue that fails does
    not stop the others. Exit code 1 if all failed, 4 if some did.
    """
    check_whom("repair", "queue", queue, namespace, schedule)

    async def work(connection: Headgate) -> ExitCode:
        if namespace is None:
            return exit_code_for(0, int(not await _repair(connection, str(queue), output)))
        entries = await scheduled_queues(connection, namespace, schedule)
        if not entries:
            which = f" has the repair schedule {schedule!r}" if schedule is not None else ""
            click.echo(f"no queue in {namespace}{which}", err=True)

        async def one(name: str) -> bool:
            return await noted(connection, entries[name], lambda: _repair(connection, name, output))

        return await pass_over_all(list(entries), one)

    code = run_connected(work)
    if code:
        raise SystemExit(code)


async def scheduled_queues(connection: Headgate, namespace: str, schedule: str | None) -> dict[str, Entry]:
    """The queues with that schedule and of this group, by name, from the catalogue alone. A queue that is being
    created or deleted, or that is retained, needs no repair."""
    wanted, group = None if schedule is None else in_words(schedule), PassGroup.of(os.environ)
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    return {
        f"{namespace}/{known.entry.name.name}": known.entry
        for known in await connection.process_context.catalogue().list(namespace, KIND)
        if known.entry.state in READY
        and wanted in (None, schedule_of(known.entry, "repair", DEFAULT_SCHEDULE))
        and group.has(known.entry, "repair")
    }


async def _repair(connection: Headgate, name: str, output: Output) -> bool:
    """Whether its pass had no problem."""
    message, problems = await repair_queue(connection, name)
    show_pass("queue", name, output, message=message, problems=problems)
    return not problems


async def repair_queue(connection: Headgate, name: str) -> tuple[str, tuple[str, ...]]:
    """One pass over a queue, noted where the operator reads it: what it came to, and what went wrong."""
    queue = await connection.queue(name)
    done = await queue.run_repair()
    now_us = queue.now_us()
    if done.end is not PassEnd.BUSY:
        await note(connection, queue.entry.id, _result(done, now_us))
    return _format_repaired(done, now_us), done.problems


def _result(done: Repaired, now_us: int) -> RepairResult:
    return RepairResult(
        ended_us=now_us,
        message=done.problems[0] if done.problems else _format_repaired(done, now_us),
        problems=len(done.problems),
        owed_us=done.owed_us or 0,
        waits_for_all_us=done.waits_for_all_us or 0,
    )


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
