"""`headgate gc`: one pass of the collector over a counter, or over all counters of a namespace with a schedule."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import click

from headgate.api.counters import Collect
from headgate.cli.passes import Group, check_whom, in_words, note, noted, pass_over_all, schedule_of
from headgate.cli.queues import connection_options, on_connection
from headgate.cli.showing import age
from headgate.client.connection import Headgate
from headgate.client.counter import Counter
from headgate.client.queue import PATIENCE_S
from headgate.counters.collector import PassReport
from headgate.engines.summary.standing import CollectionResult
from headgate.store.catalogue_entry import Entry, State

EXIT_FAILED = 1
DEFAULT_SCHEDULE = Collect().schedule


@click.command("gc")
@click.option("--counter", metavar="NAMESPACE/NAME", help="This counter alone.")
@click.option("--namespace", help="Every counter of this namespace ...")
@click.option("--schedule", metavar="CRON", help="... that has this gc schedule. Unset: whatever schedule it has.")
@connection_options
def command(counter: str | None, namespace: str | None, schedule: str | None, **options: Any) -> None:
    """Merge the shards of counters that have ended into tallies, so that reads stay fast. No value changes.

    Harmless twice, and side by side; a pass that was broken off goes on where it was. What not all replicas answer
    for is skipped, counted, and tried again by the next pass. The exit code is 1 if a counter could not be collected
    at all: gc.after is not above a node's hint window, or a full pass is overdue.
    """
    check_whom("gc", "counter", counter, namespace, schedule)

    async def work(connection: Headgate) -> bool:
        if namespace is None:
            return await collect_counter(connection, str(counter))
        entries = await scheduled_counters(connection, namespace, schedule)
        if not entries:
            has = f" has the gc schedule {schedule!r}" if schedule is not None else ""
            click.echo(f"no counter in {namespace}{has}")

        async def one(name: str) -> bool:
            return await noted(connection, entries[name], lambda: collect_counter(connection, name))

        return await pass_over_all(list(entries), one)

    if not on_connection(options, work):
        raise SystemExit(EXIT_FAILED)


async def scheduled_counters(connection: Headgate, namespace: str, schedule: str | None) -> dict[str, Entry]:
    """The counters with that schedule and of this group, as the catalogue tells, by name; none of them is opened for
    it."""
    wanted, group = None if schedule is None else in_words(schedule), Group.of(os.environ)
    await connection.ground.clock.until_trusted(PATIENCE_S)
    return {
        f"{namespace}/{entry.name.name}": entry
        for entry in await connection.counter_entries(namespace)
        if entry.state is State.ACTIVE
        and wanted in (None, schedule_of(entry, "gc", DEFAULT_SCHEDULE))
        and group.has(entry, "gc")
    }


MakePass = Callable[[Counter], Awaitable[PassReport]]
"""Makes a pass, or a part of one."""


async def collect_counter(connection: Headgate, name: str, collect: MakePass = Counter.run_collector) -> bool:
    """Whether it was collected, or only has to wait. `collect` may share the pass out, as Spark does."""
    counter = await connection.counter(name)
    report = await collect(counter)
    await note(connection, counter.entry.id, await _result(counter, report, connection.now_us()))
    if report.refused is not None:
        click.echo(f"{name}: {report.refused}", err=True)
        return False
    click.echo(f"{name}: {_told(report)}")
    if not report.full and (owed_us := await _overdue_us(counter, connection.now_us())) is not None:
        click.echo(
            f"{name}: no pass has seen every key for {age(owed_us)}: mend the replicas that do not answer", err=True
        )
        return False
    return True


async def _result(counter: Counter, report: PassReport, now_us: int) -> CollectionResult:
    """With what all passes have left: one run may be a part of a pass."""
    standing = await counter.standing()
    keys, shards, expired = standing.counted()
    return CollectionResult(
        ended_us=now_us,
        says=report.refused or _told(report),
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


def _told(report: PassReport) -> str:
    facts = [
        f"{report.keys} keys, {report.shards} shards",
        f"{report.collected} of {report.expired} that ended were collected",
    ]
    if report.minutes:
        facts.append(f"{report.minutes} minutes of updates with tokens were folded")
    if report.skipped:
        facts.append(f"{report.skipped} keys were skipped, since not all replicas answered")
    if report.unreachable:
        facts.append("broken off, since replicas are away")
    if report.waits is not None:
        facts.append(f"it waits: {report.waits}")
    return "; ".join(facts)
