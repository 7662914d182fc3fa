"""`headgate top`: the backlog of all queues, read from the summary alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click
from click.core import ParameterSource

from headgate.cli.documents import iso_time, overview_document, stats_document
from headgate.cli.terminal.live import LiveScreen, is_screen_possible
from headgate.client.catalogue.opened import PATIENCE_S
from headgate.client.catalogue.overview import QueueOverview
from headgate.client.connection import Headgate
from headgate.client.model.times import age
from headgate.command_line.arguments import DURATION, define_command, namespace_option
from headgate.command_line.connection import run_connected
from headgate.command_line.output import Output, format_table, output_option
from headgate.errors import Unavailable

HEADS = ("queue", "backlog", "in flight", "oldest", "rate/s", "workers", "lanes", "blocked", "next due in", "")
INTERVAL_S_MIN = 0.1


@define_command("top")
@namespace_option
@click.option("--every", type=DURATION, default="2s", show_default=True, help="Interval between readings.")
@click.option("--snapshot", is_flag=True, help="Read once, print, exit.")
@output_option
@click.pass_context
def top(ctx: click.Context, *, namespace: str | None, every: timedelta, snapshot: bool, output: Output) -> None:
    """Watch all queues, the longest backlog first.

    On a terminal this is a screen: arrow keys select a queue, enter opens it, b, a, f, r and n sort, q quits.
    Without a terminal it prints one JSON document per interval, and with --snapshot one table.

    The numbers come from a small table that producers and workers write, a second or two late. `headgate stats`
    counts exactly.
    """
    every_s = max(every.total_seconds(), INTERVAL_S_MIN)
    is_form_chosen = ctx.get_parameter_source("output") is not ParameterSource.DEFAULT
    if snapshot or is_form_chosen:
        form = output
    elif not sys.stdout.isatty():
        form = Output("json")
    elif is_screen_possible():
        run_connected(lambda connection: _show_screen(connection, namespace, every_s))
        return
    else:
        click.echo("headgate: install headgate[cli] for a screen with keys", err=True)
        form = output
    run_connected(lambda connection: _print(connection, namespace, form, None if snapshot else every_s))


async def _show_screen(connection: Headgate, namespace: str | None, every_s: float) -> None:
    async def read_queues() -> Sequence[Mapping[str, Any]]:
        return [overview_document(each) for each in await connection.read_overview(namespace)]

    async def read_stats(name: str) -> Mapping[str, Any]:
        queue = await connection.queue(name)
        return stats_document(name, await queue.read_stats(), None, queue.now_us())

    await connection.process_context.clock.until_trusted(PATIENCE_S)
    try:
        await LiveScreen(read_queues, read_stats, every_s=every_s).run()
    except asyncio.CancelledError:  # Ctrl-C is a way to quit
        return


async def _print(connection: Headgate, namespace: str | None, output: Output, every_s: float | None) -> None:
    await connection.process_context.clock.until_trusted(PATIENCE_S)
    while True:
        try:
            _show(rank_queues(await connection.read_overview(namespace)), output)
        except Unavailable as error:
            if every_s is None:
                raise
            click.echo(f"headgate: {error}", err=True)
        if every_s is None:
            return
        try:
            await asyncio.sleep(every_s)
        except asyncio.CancelledError:  # Ctrl-C is a way to quit
            return


def _show(queues: list[QueueOverview], output: Output) -> None:
    document = {
        "at": iso_time(queues[0].at_us) if queues else None,
        "queues": [overview_document(each) for each in queues],
    }
    output.show(document, table=lambda: format_queues(queues), names=[each.name for each in queues])


def rank_queues(queues: list[QueueOverview]) -> list[QueueOverview]:
    """By backlog, then by the age of the oldest message, then by messages in flight; queues without workers first."""
    return sorted(
        queues,
        key=lambda each: (
            -(each.figures.backlog or 0),
            -(each.oldest_age_us or 0),
            -each.figures.in_flight,
            each.is_worked,
            each.name,
        ),
    )


def format_queues(queues: list[QueueOverview]) -> list[str]:
    """For people."""
    return format_table(HEADS, map(_row, queues)) if queues else ["no queues"]


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
        "" if each.is_worked else "no active workers" + _since_put(each),
    )


def _since_put(each: QueueOverview) -> str:
    put_us = each.figures.put_us
    return "" if put_us is None else f", last put {age(max(0, each.at_us - put_us))} ago"
