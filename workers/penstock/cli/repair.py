"""`penstock repair`: one pass of repair over a queue, or over all queues of a namespace with a schedule."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.queues import connection_options, on_connection
from penstock.cli.showing import age
from penstock.client.connection import Penstock
from penstock.client.queue import Queue
from penstock.engines.contract import PassEnd, Repaired
from penstock.errors import PenstockError, SpecError

EXIT_FAILED = 1
DEFAULT_SCHEDULE = "*/5 * * * *"


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
    if (queue is None) == (namespace is None):
        raise SpecError("repair needs to know what", remedy="give either --queue, or --namespace")
    if schedule is not None and namespace is None:
        raise SpecError("--schedule picks queues of a namespace", remedy="give --namespace too")

    async def work(connection: Penstock) -> bool:
        names = [queue] if queue is not None else await _scheduled(connection, str(namespace), schedule)
        if not names:
            click.echo(
                f"no queue in {namespace} has the repair schedule {schedule!r}"
                if schedule
                else f"no queue in {namespace}"
            )
        well = True
        for name in names:
            well &= await _repair(connection, name)
        return well

    if not on_connection(options, work):
        raise SystemExit(EXIT_FAILED)


async def _scheduled(connection: Penstock, namespace: str, schedule: str | None) -> list[str]:
    """The queues with that schedule, as the catalogue tells; one that can not be opened is tried and told."""
    names = await connection.queues(namespace)
    if schedule is None:
        return names
    wanted = []
    for name in names:
        try:
            found = await connection.queue(name)
        except PenstockError:
            wanted.append(name)
            continue
        if _schedule_of(found) == " ".join(schedule.split()):
            wanted.append(name)
    return wanted


def _schedule_of(queue: Queue) -> str:
    repair = queue.entry.spec.get("repair")
    told = repair.get("schedule", DEFAULT_SCHEDULE) if isinstance(repair, dict) else DEFAULT_SCHEDULE
    return " ".join(str(told).split())


async def _repair(connection: Penstock, name: str) -> bool:
    try:
        queue = await connection.queue(name)
        done = await queue.repair()
        now_us = queue.now_us()
    except PenstockError as error:
        click.echo(f"{name}: {error}", err=True)
        return False
    click.echo(f"{name}: {_told(done, now_us)}")
    for problem in done.problems:
        click.echo(f"{name}: {problem}", err=True)
    return not done.problems


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
