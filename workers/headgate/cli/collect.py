"""`headgate gc`: one pass of the collector over a counter, or over all counters of a namespace with a schedule."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import click

from headgate.api.counters import Collect
from headgate.cli.arguments import NAME_METAVAR, complete_counter, define_command, namespace_option
from headgate.cli.connection import run_connected
from headgate.cli.exit_codes import ExitCode, exit_code_for
from headgate.cli.output import Output, output_option
from headgate.cli.showing import age
from headgate.client.connection import Headgate
from headgate.client.counter import Counter
from headgate.client.queue import PATIENCE_S
from headgate.counters.collect.collector import PassReport
from headgate.engines.summary.standing import CollectionResult
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

DEFAULT_SCHEDULE = Collect().schedule


@define_command("gc")
@click.argument("counter", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_counter)
@namespace_option
@schedule_option
@output_option
def command(counter: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Compact a counter, or those of a namespace.

    Shards of counters that have ended are merged into tallies, so that reads stay fast. No value changes. It is
    harmless to run it twice, also at the same time; an interrupted pass is resumed. Keys for which a replica does
    not answer are skipped and counted, and the next pass tries them again.

    Exit code 1 if a counter could not be compacted (gc.after is not above a node's hint window, or a full pass is
    overdue), 4 if some could not.
    """
    check_whom("gc", "counter", counter, namespace, schedule)

    async def work(connection: Headgate) -> ExitCode:
        if namespace is None:
            return exit_code_for(0, int(not await collect_counter(connection, str(counter), output=output)))
        entries = await scheduled_counters(connection, namespace, schedule)
        if not entries:
            which = f" has the gc schedule {schedule!r}" if schedule is not None else ""
            click.echo(f"no counter in {namespace}{which}", err=True)

        async def one(name: str) -> bool:
            return await noted(connection, entries[name], lambda: collect_counter(connection, name, output=output))

        return await pass_over_all(list(entries), one)

    code = run_connected(work)
    if code:
        raise SystemExit(code)


async def scheduled_counters(connection: Headgate, namespace: str, schedule: str | None) -> dict[str, Entry]:
    """The counters with that schedule and of this group, by name, from the catalogue alone."""
    wanted, group = None if schedule is None else in_words(schedule), PassGroup.of(os.environ)
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    return {
        f"{namespace}/{entry.name.name}": entry
        for entry in await connection.counter_entries(namespace)
        if entry.state is EntryState.ACTIVE
        and wanted in (None, schedule_of(entry, "gc", DEFAULT_SCHEDULE))
        and group.has(entry, "gc")
    }


MakePass = Callable[[Counter], Awaitable[PassReport]]
"""Makes a pass, or a part of one."""


async def collect_counter(
    connection: Headgate, name: str, collect: MakePass = Counter.run_collector, *, output: Output | None = None
) -> bool:
    """Whether it was compacted, or only has to wait. `collect` may divide the pass, as Spark does."""
    counter = await connection.counter(name)
    report = await collect(counter)
    await note(connection, counter.entry.id, await _result(counter, report, connection.now_us()))
    problems = [] if report.refused is None else [report.refused]
    if not problems and not report.full:
        owed_us = await _overdue_us(counter, connection.now_us())
        if owed_us is not None:
            problems.append(f"no pass has read every key for {age(owed_us)}: fix the replicas that do not answer")
    message = report.refused or _format_report(report)
    show_pass("counter", name, output or Output(), message=message, problems=problems)
    return not problems


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
