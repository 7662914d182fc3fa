"""`headgate stats`: what a queue holds, and how its lanes stand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from headgate.cli.queues import connection_options, on_connection, queue_option
from headgate.cli.showing import age, table
from headgate.client.connection import Headgate
from headgate.engines.contract import LaneStats, RepairStanding, Stats
from headgate.engines.summary.standing import PassStanding, read_standing_of


@click.command("stats")
@queue_option
@click.option("--lanes", is_flag=True, help="Each lane too: its owner, its lease, how far it is and what it holds.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@connection_options
def command(**options: Any) -> None:
    """Count what a queue holds: due, in hands, due later; how old the oldest is; how far repair is."""

    async def look(connection: Headgate) -> tuple[Stats, PassStanding | None, int]:
        queue = await connection.queue(options["queue"])
        ground = connection.ground
        last = await read_standing_of(ground.store_in(ground.keyspace), queue.entry.id)
        return await queue.read_stats(), last, queue.now_us()

    found, last, now_us = on_connection(options, look)
    if options["as_json"]:
        click.echo(json.dumps({**asdict(found), "last_pass": asdict(last) if last else None}))
        return
    click.echo("\n".join(_lines(found, last, now_us, with_lanes=options["lanes"])))


def _lines(found: Stats, last: PassStanding | None, now_us: int, *, with_lanes: bool) -> list[str]:
    more = "" if found.complete else " (at least: there is more than one look counts)"
    oldest = None if found.oldest_due_us is None else now_us - found.oldest_due_us
    open_ = [lane for lane in found.lanes if not lane.is_retired]
    lines = [
        f"backlog    {found.backlog}{more}",
        f"in flight  {found.in_flight}",
        f"due later  {found.delayed}",
        f"oldest     {age(oldest)}",
        f"lanes      {len(open_)}, {sum(lane.owner is not None for lane in open_)} held",
    ]
    if found.repair is not None:
        lines.append(f"repair     {_repair(found.repair, now_us)}")
    if last is not None:
        lines.append(f"last pass  {age(max(0, now_us - last.ended_us))} ago: {last.says}")
    if with_lanes:
        lines += ["", *table(LANE_HEADS, (_lane(lane, now_us) for lane in found.lanes))]
    return lines


LANE_HEADS = (
    *("lane", "standing", "owner", "epoch", "lease left", "progress", "settled up to", "oldest due since"),
    *("in flight", "hidden", "settled above"),
)


def _lane(lane: LaneStats, now_us: int) -> tuple[object, ...]:
    """A row; `owner` is the beginning of the taking's id."""
    return (
        f"{lane.generation}/{lane.shard}",
        _standing(lane),
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


def _repair(found: RepairStanding, now_us: int) -> str:
    """When it last ran, up to where it has looked, and how long the oldest look has been due that was not taken."""
    if found.last_pass_us is None:
        facts = ["never run"]
    else:
        facts = ["runs now" if found.runs_now else f"last run {age(max(0, now_us - found.last_pass_us))} ago"]
    if found.looked_to_us is not None:
        facts.append(f"has looked at what was due until {age(now_us - found.looked_to_us)} ago")
    if found.owed_since_us is None:
        facts.append("nothing owed")
    else:
        facts.append(f"the oldest look has been owed for {age(max(0, now_us - found.owed_since_us))}")
    return "; ".join(facts)


def _since(lane: LaneStats, now_us: int) -> int | None:
    return None if lane.oldest_due_us is None else now_us - lane.oldest_due_us


def _standing(lane: LaneStats) -> str:
    standings = {
        "retired": lane.is_retired,
        "free": lane.owner is None,
        "stopped": lane.is_stopped,
        "held back": lane.is_held,
        "lent": lane.is_lent,
    }
    return (
        ", ".join(name for name, so in standings.items() if so and (name != "free" or not lane.is_retired)) or "held"
    )
