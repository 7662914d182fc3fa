"""Commands on whole queues: queues, stats, redrive and purge."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import click

from headgate.cli.documents import iso_time, lane_state, redriven_document, stats_document
from headgate.cli.terminal.progress import show_progress
from headgate.client.connection import Headgate
from headgate.client.message import Received
from headgate.client.model.times import age
from headgate.client.queue import Queue
from headgate.client.redriving import DEATH_REASON, RedriveResult, SkipReason
from headgate.command_line.arguments import (
    define_command,
    limit_option,
    namespace_option,
    queue_argument,
    target_option,
    until_option,
    yes_option,
)
from headgate.command_line.connection import run_connected, run_on_queue
from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.output import Output, format_table, output_option
from headgate.engines.contract import LaneStats, RepairStanding, Stats
from headgate.engines.summary.pass_results import PassStatus, read_pass_status


@define_command("queues")
@namespace_option
@output_option
def queues(namespace: str | None, output: Output) -> None:
    """List queues."""
    names = sorted(run_connected(lambda connection: connection.queues(namespace)))
    output.show([{"name": name} for name in names], table=lambda: names or ["no queues"], names=names)


# ---- stats


@define_command("stats")
@queue_argument
@click.option("--lanes", is_flag=True, help="Also each lane: owner, lease, position.")
@output_option
def stats(*, queue: str, lanes: bool, output: Output) -> None:
    """Count the messages of a queue.

    Ready, in flight and delayed messages, the age of the oldest, and how far repair is.
    """

    async def read(connection: Headgate) -> tuple[Stats, PassStatus | None, int, str]:
        opened = await connection.queue(queue)
        process_context = connection.process_context
        last = await read_pass_status(process_context.store_in(process_context.keyspace), opened.entry.id)
        return await opened.read_stats(), last, opened.now_us(), opened.name

    counted, last, now_us, name = run_connected(read)
    output.show(
        stats_document(name, counted, last, now_us),
        table=lambda: _format_stats(counted, last, now_us, with_lanes=lanes),
        names=[name],
    )


def _format_stats(stats: Stats, last: PassStatus | None, now_us: int, *, with_lanes: bool) -> list[str]:
    more = "" if stats.complete else " (at least: too many to count)"
    open_ = [lane for lane in stats.lanes if not lane.is_retired]
    lines = [
        f"backlog    {stats.backlog}{more}",
        f"in flight  {stats.in_flight}",
        f"delayed    {stats.delayed}",
        f"oldest     {_since(stats.oldest_due_us, now_us)}",
        f"lanes      {len(open_)}, {sum(lane.owner is not None for lane in open_)} held",
    ]
    if unreadable := sum(lane.unreadable_rows for lane in stats.lanes):
        lines.append(f"unreadable {unreadable} rows are kept and not delivered")
    if stats.repair is not None:
        lines.append(f"repair     {_format_repair(stats.repair, now_us)}")
    if last is not None:
        lines.append(f"last pass  {age(max(0, now_us - last.ended_us))} ago: {last.message}")
    if with_lanes:
        lines += ["", *format_table(LANE_HEADS, (_lane(lane, now_us) for lane in stats.lanes))]
    return lines


LANE_HEADS = (
    *("lane", "state", "owner", "fencing token", "lease left", "progress", "settled up to", "oldest due since"),
    *("in flight", "hidden", "settled out of order", "unreadable rows"),
)


def _lane(lane: LaneStats, now_us: int) -> tuple[object, ...]:
    """A row; `owner` is the start of the lease's id."""
    return (
        f"{lane.generation}/{lane.shard}",
        lane_state(lane),
        "-" if lane.owner is None else lane.owner[:8],
        lane.epoch,
        age(lane.lease_left_us),
        lane.progress,
        age(now_us - lane.last_us),
        _since(lane.oldest_due_us, now_us),
        "-" if lane.in_flight is None else lane.in_flight,
        lane.hidden,
        lane.settled_above,
        lane.unreadable_rows,
    )


def _since(time_us: int | None, now_us: int) -> str:
    return age(None if time_us is None else now_us - time_us)


def _format_repair(status: RepairStanding, now_us: int) -> str:
    """When repair last ran, up to where it has checked, and for how long its oldest check is overdue."""
    if status.last_pass_us is None:
        facts = ["never run"]
    else:
        facts = ["running" if status.runs_now else f"last run {age(max(0, now_us - status.last_pass_us))} ago"]
    if status.checked_to_us is not None:
        facts.append(f"checked what was due until {age(now_us - status.checked_to_us)} ago")
    if status.owed_since_us is None:
        facts.append("nothing overdue")
    else:
        facts.append(f"oldest check overdue for {age(max(0, now_us - status.owed_since_us))}")
    return "; ".join(facts)


# ---- redrive


@define_command("redrive")
@queue_argument
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message. Repeatable.")
@click.option("--reason", metavar="TEXT", help="Only messages with TEXT in their reason.")
@target_option
@limit_option(default=None)
@output_option
def redrive(
    *, queue: str, ids: tuple[str, ...], reason: str | None, to: str | None, limit: int | None, output: Output
) -> None:
    """Move dead letters back to their source.

    NAMESPACE/NAME is the dead-letter queue. Each message is moved once, also if the command is interrupted and
    started again. A message without a source queue stays, unless --to names a target. `-o name` prints the ids of
    messages that stay. Exit code 3 if none of the ids is in the queue, 4 if some messages stay.
    """
    text = (reason or "").casefold()

    def has_reason(message: Received) -> bool:
        return text in str(message.attributes.get(DEATH_REASON, "")).casefold()

    async def move(opened: Queue) -> RedriveResult:
        total = len(ids) or (None if reason else await _count_movable(opened, limit))
        with show_progress("redrive", total) as progress:
            return await opened.redrive(
                ids=ids or None,
                matching=None if reason is None else has_reason,
                to=to,
                limit=limit,
                on_moved=progress.advance,
            )

    result = run_on_queue(queue, move)
    output.show(
        redriven_document(queue, result),
        table=lambda: format_redriven(result),
        names=[each.message_id for each in result.skipped],
    )
    if result.skipped or not result.complete:
        are_absent = all(each.reason is SkipReason.NOT_FOUND for each in result.skipped)
        is_not_found = result.skipped and are_absent and not result.moved
        raise SystemExit(ExitCode.NOT_FOUND if is_not_found else ExitCode.PARTLY_DONE)


async def _count_movable(queue: Queue, limit: int | None) -> int:
    stats = await queue.read_stats()
    waiting = stats.backlog + stats.in_flight
    return waiting if limit is None else min(limit, waiting)


def format_redriven(result: RedriveResult) -> list[str]:
    """The number of messages moved, and of those that stay by their reason."""
    counts = Counter(each.reason for each in result.skipped)
    lines = [f"moved {result.moved}", *(f"skipped {count}: {reason.value}" for reason, count in counts.items())]
    if not result.complete:
        lines.append("stopped: too many messages stay; run it again, or redrive by --id")
    return lines


# ---- purge


@define_command("purge")
@queue_argument
@until_option
@yes_option
@output_option
def purge(*, queue: str, until: datetime | None, yes: bool, output: Output) -> None:
    """Delete all messages of a queue.

    Delayed messages are deleted too. Messages put after the start, or after --until, stay. The command shows the
    number of messages and asks for confirmation. A purge cannot be undone.
    """
    stats = run_on_queue(queue, lambda opened: opened.read_stats())
    total = stats.backlog + stats.in_flight + stats.delayed
    if not yes:
        click.confirm(f"Delete {describe_purge(stats, until)} in {queue}?", abort=True, err=True)

    async def delete(opened: Queue) -> datetime:
        with show_progress("purge") as progress:
            purged = await opened.purge(before=until)
            progress.advance(total)
            return purged

    purged = run_on_queue(queue, delete)
    document = {"queue": queue, "until": iso_time(round(purged.timestamp() * 1_000_000)), "expected": total}
    output.show(document, table=lambda: [f"deleted messages put before {purged.isoformat()}"], names=[queue])


def describe_purge(stats: Stats, until: datetime | None) -> str:
    """What a purge is about to delete, in words."""
    total = stats.backlog + stats.in_flight + stats.delayed
    number = f"{'' if stats.complete else 'at least '}{total:,} message{'' if total == 1 else 's'}"
    kinds = f"{stats.backlog:,} ready, {stats.in_flight:,} in flight, {stats.delayed:,} delayed"
    if until is not None:
        return f"up to {number} ({kinds}), those put before {until.isoformat()},"
    return f"{number} ({kinds})"
