"""`headgate where`: what became of a message."""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.queues import connection_options, on_queue, queue_option
from headgate.cli.showing import moment
from headgate.engines.contract import Fate

EXIT_NOT_FOUND = 1


@click.command("where")
@queue_option
@click.argument("message_id", metavar="ID")
@connection_options
def command(message_id: str, **options: Any) -> None:
    """Tell where the message ID lies, and what became of it. Exit code 1 if there is no such message."""
    found = on_queue(options, lambda queue: queue.read_whereabouts(message_id))
    click.echo(f"{found.fate.value}")
    if found.due_us:
        click.echo(f"due {moment(found.due_us)}")
    if found.attempt:
        click.echo(f"received {found.attempt} times, as far as is recorded")
    if found.hidden_until_us:
        click.echo(f"hidden until {moment(found.hidden_until_us)}")
    for number, place in enumerate(found.places):
        click.echo(f"{'first place' if number == 0 else 'then'} {place}")
    if found.fate is Fate.NOT_FOUND:
        raise SystemExit(EXIT_NOT_FOUND)
