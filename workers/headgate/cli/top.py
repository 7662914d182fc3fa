"""`headgate top`: what is behind, of all queues, from the summary alone."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from headgate.cli.queues import SPAN, connection_options, on_connection
from headgate.cli.showing import age, table
from headgate.client.connection import Headgate
from headgate.client.overview import QueueOverview
from headgate.client.queue import PATIENCE_S
from headgate.errors import Unavailable

HEADS = ("queue", "backlog", "in flight", "oldest", "rate/s", "workers", "lanes", "held back", "next due in", "")
CLEAR = "\033[H\033[J"


@click.command("top")
@click.option("--namespace", help="Only the queues of this one.")
@click.option("--every", type=SPAN, default="2s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Look once.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a look, in one line.")
@connection_options
def command(**options: Any) -> None:
    """Show how all queues stand, what is behind first. It reads a small table that producers and workers write to, a
    second or two behind; `headgate stats` counts exactly."""
    on_connection(options, lambda connection: _show(connection, options))


async def _show(connection: Headgate, options: dict[str, Any]) -> None:
    every: timedelta = options["every"]
    clears = not options["once"] and not options["as_json"] and sys.stdout.isatty()
    await connection.ground.clock.until_trusted(PATIENCE_S)
    while True:
        try:
            found = ranked(await connection.read_overview(options["namespace"]))
            click.echo((CLEAR if clears else "") + (as_json(found) if options["as_json"] else as_text(found)))
        except Unavailable as error:
            if options["once"]:
                raise
            click.echo(f"headgate: {error}", err=True)
        if options["once"]:
            return
        try:
            await asyncio.sleep(max(every.total_seconds(), 0.1))
        except asyncio.CancelledError:  # it is how one leaves
            return


def ranked(found: list[QueueOverview]) -> list[QueueOverview]:
    """What is behind first: by backlog, then by age, then what is in hands; nobody's queues before idle ones."""
    return sorted(
        found,
        key=lambda each: (
            -(each.figures.backlog or 0),
            -(each.oldest_age_us or 0),
            -each.figures.in_flight,
            each.is_worked,
            each.name,
        ),
    )


def as_json(found: list[QueueOverview]) -> str:
    """All that is known, for programs."""
    queues = [{"queue": each.name, **asdict(each.figures)} for each in found]
    return json.dumps({"at_us": found[0].at_us if found else None, "queues": queues})


def as_text(found: list[QueueOverview]) -> str:
    """For people."""
    if not found:
        return "there are no queues"
    return "\n".join(table(HEADS, [_row(each) for each in found]))


def _row(each: QueueOverview) -> tuple[object, ...]:
    figures = each.figures
    next_us = figures.next_due_us(each.at_us)
    return (
        each.name,
        "-" if figures.backlog is None else figures.backlog,
        figures.in_flight,
        age(each.oldest_age_us),
        f"{figures.rate:g}",
        figures.workers,
        figures.lanes,
        figures.held,
        "-" if next_us is None else age(next_us - each.at_us),
        "" if each.is_worked else "nobody at work" + _since_put(each),
    )


def _since_put(each: QueueOverview) -> str:
    put_us = each.figures.put_us
    return "" if put_us is None else f", last put {age(max(0, each.at_us - put_us))} ago"
