"""`headgate stats`: what a queue holds, and the state of its lanes."""

from __future__ import annotations

import click

from headgate.cli.documents import lane_state, stats_document
from headgate.client.connection import Headgate
from headgate.client.model.times import age
from headgate.command_line.arguments import define_command, queue_argument
from headgate.command_line.connection import run_connected
from headgate.command_line.output import Output, output_option
from headgate.command_line.showing import table
from headgate.engines.contract import LaneStats, RepairStanding, Stats
from headgate.engines.summary.standing import PassStatus, read_pass_status


@define_command("stats")
@queue_argument
@click.option("--lanes", is_flag=True, help="Also each lane: owner, lease, position.")
@output_option
def command(*, queue: str, lanes: bool, output: Output) -> None:
    """Count the messages of a queue.

    Ready, in flight and delayed messages, the age of the oldest, and how far repair is.
    """

    async def read(connection: Headgate) -> tuple[Stats, PassStatus | None, int, str]:
        opened = await connection.queue(queue)
        process_context = connection.process_context
        last = await read_pass_status(process_context.store_in(process_context.keyspace), opened.entry.id)
        return await opened.read_stats(), last, opened.now_us(), opened.name

    stats, last, now_us, name = run_connected(read)
    output.show(
        stats_document(name, stats, last, now_us),
        table=lambda: format_stats(stats, last, now_us, with_lanes=lanes),
        names=[name],
    )


def format_stats(stats: Stats, last: PassStatus | None, now_us: int, *, with_lanes: bool) -> list[str]:
    """The lines for a person; with lanes a table of them."""
    more = "" if stats.complete else " (at least: too many to count)"
    oldest = None if stats.oldest_due_us is None else now_us - stats.oldest_due_us
    open_ = [lane for lane in stats.lanes if not lane.is_retired]
    lines = [
        f"backlog    {stats.backlog}{more}",
        f"in flight  {stats.in_flight}",
        f"delayed    {stats.delayed}",
        f"oldest     {age(oldest)}",
        f"lanes      {len(open_)}, {sum(lane.owner is not None for lane in open_)} held",
    ]
    if stats.repair is not None:
        lines.append(f"repair     {_repair(stats.repair, now_us)}")
    if last is not None:
        lines.append(f"last pass  {age(max(0, now_us - last.ended_us))} ago: {last.message}")
    if with_lanes:
        lines += ["", *table(LANE_HEADS, (_lane(lane, now_us) for lane in stats.lanes))]
    return lines


LANE_HEADS = (
    *("lane", "state", "owner", "fencing token", "lease left", "progress", "settled up to", "oldest due since"),
    *("in flight", "hidden", "settled out of order"),
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
        age(_since(lane, now_us)),
        "-" if lane.in_flight is None else lane.in_flight,
        lane.hidden,
        lane.settled_above,
    )


def _repair(status: RepairStanding, now_us: int) -> str:
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


def _since(lane: LaneStats, now_us: int) -> int | None:
    return None if lane.oldest_due_us is None else now_us - lane.oldest_due_us
