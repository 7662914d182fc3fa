"""`headgate init`: a first queue as a file."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.command_line.arguments import define_command
from headgate.errors import InvalidRequest
from headgate.local.first_queue import format_first_queue


@define_command("init")
@click.argument("file", default="queues.yaml", type=click.Path(path_type=Path))
@click.option("--queue", default="emails", show_default=True, metavar="[NAMESPACE/]NAME", help="Name of the queue.")
@click.option(
    "--handler", default="handlers:handle", show_default=True, metavar="MODULE:FUNCTION", help="Handler of messages."
)
def command(file: Path, *, queue: str, handler: str) -> None:
    """Write a first file for headgate dev.

    It declares a queue, its worker and its dead-letter queue. An existing file stays as it is.
    """
    text = format_first_queue(queue, handler, file=str(file))
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise InvalidRequest("The file exists", file=file, remedy="name another, or remove it") from None
    except OSError as error:
        raise InvalidRequest("The file cannot be written", file=file, cause=error.strerror) from None
    click.echo(f"wrote {file}: queue {queue}, handled by {handler}\nnext: headgate dev {file}")
