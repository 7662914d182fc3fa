"""`penstock purge`: settles all that is in a queue."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.queues import connection_options, on_queue, queue_option


@click.command("purge")
@queue_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def command(*, yes: bool, **options: Any) -> None:
    """Settle everything that is in the queue now, also what is due later. Nothing put after this is touched.

    There is no way back.
    """
    if not yes:
        click.confirm(f"settle everything in {options['queue']}?", abort=True)
    before = on_queue(options, lambda queue: queue.purge())
    click.echo(f"purged what was put before {before.isoformat()}")
