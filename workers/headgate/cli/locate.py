"""`headgate locate`: the state and the place of one message."""

from __future__ import annotations

import click

from headgate.cli.documents import location_document
from headgate.client.model.times import format_time
from headgate.command_line.arguments import define_command, queue_argument
from headgate.command_line.connection import run_on_queue
from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.output import Output, output_option
from headgate.engines.contract import MessageLocation, MessageState


@define_command("locate")
@queue_argument
@click.argument("message_id", metavar="ID")
@output_option
def command(queue: str, message_id: str, output: Output) -> None:
    """Show the state and place of a message.

    Exit code 3 if the queue has no such message.
    """
    location = run_on_queue(queue, lambda opened: opened.read_location(message_id))
    exists = location.fate is not MessageState.NOT_FOUND
    names = [message_id] if exists else []
    output.show(location_document(location), table=lambda: _lines(location), names=names)
    if not exists:
        raise SystemExit(ExitCode.NOT_FOUND)


def _lines(location: MessageLocation) -> list[str]:
    lines = [location.fate.value]
    if location.due_us:
        lines.append(f"due {format_time(location.due_us)}")
    if location.attempt:
        lines.append(f"received {location.attempt} times, as far as recorded")
    if location.hidden_until_us:
        lines.append(f"hidden until {format_time(location.hidden_until_us)}")
    for number, place in enumerate(location.places):
        lines.append(f"{'first place' if number == 0 else 'later place'} {place}")
    return lines
