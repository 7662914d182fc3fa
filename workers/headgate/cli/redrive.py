"""`headgate redrive`: puts dead letters back where they came from."""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.queues import connection_options, on_connection, queue_option
from headgate.client.connection import Headgate
from headgate.client.redriving import Redriven, redrive


@click.command("redrive")
@queue_option
@click.option("--to", metavar="NAMESPACE/NAME", help="Where to. Unset: the queue that each of them died in.")
@click.option("--limit", type=click.IntRange(1), help="At most so many. Unset: all that is there now.")
@connection_options
def command(to: str | None, limit: int | None, **options: Any) -> None:
    """Put the dead letters that lie in --queue back into the queue they came from, to be tried anew.

    Each is put back once, also when this is interrupted and run again. What does not tell where it came from,
    or came from a queue that is gone, stays, unless --to says where it goes.
    """

    async def work(connection: Headgate) -> Redriven:
        return await redrive(connection, options["queue"], to=to, limit=limit)

    done = on_connection(options, work)
    left = f", {done.left} left: they tell no queue, or one that is gone; give --to" if done.left else ""
    click.echo(f"redriven {done.moved}{left}")
