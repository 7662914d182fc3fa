"""`headgate purge`: settles all that is in a queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from headgate.cli.queues import MOMENT, connection_options, on_queue, queue_option


@click.command("purge")
@queue_option
@click.option("--before", type=MOMENT, help="Only what was put before this moment. Unset: now.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connection_options
def command(*, before: datetime | None, yes: bool, **options: Any) -> None:
    """Settle everything that is in the queue now, also what is due later. Nothing put after this is touched.

    There is no way back.
    """
    if not yes:
        what = "everything" if before is None else f"what was put before {before.isoformat()}"
        click.confirm(f"settle {what} in {options['queue']}?", abort=True)
    purged = on_queue(options, lambda queue: queue.purge(before=before))
    click.echo(f"purged what was put before {purged.isoformat()}")
