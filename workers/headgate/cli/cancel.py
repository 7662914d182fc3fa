"""`headgate cancel`: cancels messages before they are due."""

from __future__ import annotations

import click

from headgate.client.queue import Queue
from headgate.command_line.arguments import define_command, queue_argument
from headgate.command_line.connection import run_on_queue
from headgate.command_line.exit_codes import exit_code_for
from headgate.command_line.output import Output, output_option


@define_command("cancel")
@queue_argument
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@output_option
def command(queue: str, message_ids: tuple[str, ...], output: Output) -> None:
    """Cancel delayed messages before they are due.

    Exit code 1 if it was too late for all of them, 4 if it was too late for some.
    """

    async def cancel(opened: Queue) -> int:
        count = 0
        for message_id in message_ids:
            is_cancelled = await opened.cancel(message_id)
            count += is_cancelled
            _show(message_id, output, is_cancelled=is_cancelled)
        return count

    count = run_on_queue(queue, cancel)
    if count < len(message_ids):
        raise SystemExit(exit_code_for(count, len(message_ids) - count))


def _show(message_id: str, output: Output, *, is_cancelled: bool) -> None:
    output.show_item(
        {"id": message_id, "cancelled": is_cancelled},
        table=lambda: [f"{message_id} {'cancelled' if is_cancelled else 'too late'}"],
        name=message_id,
    )
