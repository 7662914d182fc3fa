"""`headgate purge`: deletes all messages of a queue."""

from __future__ import annotations

from datetime import datetime

import click

from headgate.cli.documents import iso_time
from headgate.cli.terminal.progress import show_progress
from headgate.client.queue import Queue
from headgate.command_line.arguments import define_command, queue_argument, until_option, yes_option
from headgate.command_line.connection import run_on_queue
from headgate.command_line.output import Output, output_option
from headgate.engines.contract import Stats


@define_command("purge")
@queue_argument
@until_option
@yes_option
@output_option
def command(*, queue: str, until: datetime | None, yes: bool, output: Output) -> None:
    """Delete all messages of a queue.

    Delayed messages are deleted too. Messages put after the start, or after --until, stay. The command shows the
    number of messages and asks for confirmation. A purge cannot be undone.
    """

    async def count(opened: Queue) -> Stats:
        return await opened.read_stats()

    stats = run_on_queue(queue, count)
    if not yes:
        click.confirm(f"Delete {describe(stats, until)} in {queue}?", abort=True, err=True)

    async def purge(opened: Queue) -> datetime:
        with show_progress("purge") as progress:
            purged = await opened.purge(before=until)
            progress.advance(_total(stats))
            return purged

    purged = run_on_queue(queue, purge)
    document = {
        "queue": queue,
        "until": iso_time(round(purged.timestamp() * 1_000_000)),
        "expected": _total(stats),
    }
    output.show(document, table=lambda: [f"deleted messages put before {purged.isoformat()}"], names=[queue])


def describe(stats: Stats, until: datetime | None) -> str:
    """What a purge is about to delete, in words."""
    total = _total(stats)
    number = f"{'' if stats.complete else 'at least '}{total:,} message{'' if total == 1 else 's'}"
    kinds = f"{stats.backlog:,} ready, {stats.in_flight:,} in flight, {stats.delayed:,} delayed"
    if until is not None:
        return f"up to {number} ({kinds}), those put before {until.isoformat()},"
    return f"{number} ({kinds})"


def _total(stats: Stats) -> int:
    return stats.backlog + stats.in_flight + stats.delayed
