"""`headgate cancel`: takes messages back before they are due."""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.queues import connection_options, on_queue, queue_option
from headgate.client.queue import Queue

EXIT_TOO_LATE = 1


@click.command("cancel")
@queue_option
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@connection_options
def command(message_ids: tuple[str, ...], **options: Any) -> None:
    """Never deliver the messages ID, where that can still be promised.

    Only a message that was put for later can be cancelled, and only before it is due. Exit code 1 if it was too late
    for one of them.
    """

    async def cancel(queue: Queue) -> bool:
        all_cancelled = True
        for message_id in message_ids:
            cancelled = await queue.cancel(message_id)
            all_cancelled &= cancelled
            click.echo(f"{message_id} {'cancelled' if cancelled else 'too late'}")
        return all_cancelled

    if not on_queue(options, cancel):
        raise SystemExit(EXIT_TOO_LATE)
