"""`headgate dev FILE...`, a whole stack on one machine without Kubernetes, and `headgate init`, a first file for
it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from headgate.command_line.arguments import define_command
from headgate.command_line.connection import read_environment
from headgate.errors import InvalidRequest
from headgate.local.first_queue import format_first_queue


@define_command("dev")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--queue", metavar="[NAMESPACE/]NAME", help="Queue to run without a file.")
@click.option("--handler", metavar="MODULE:FUNCTION", help="Handler of its messages.")
@click.option("--fresh", is_flag=True, help="Begin with an empty Cassandra.")
@click.option("--memory", is_flag=True, help="Run without a server, in one process.")
@click.option("--put", "payload", metavar="PAYLOAD", help="First message, put when the workers run.")
@click.option("--until-handled", is_flag=True, help="End when the message of --put is handled.")
def dev(
    files: tuple[Path, ...],
    *,
    queue: str | None,
    handler: str | None,
    fresh: bool,
    memory: bool,
    payload: str | None,
    until_handled: bool,
) -> None:
    """Run queues on this machine, with a Cassandra.

    FILES declare the queues; each consumer gets a worker, and repair runs too. Handlers are imported from the current
    directory. Where HEADGATE_CONTACT_POINTS is set that Cassandra is used, else one is started; its data stay for the
    next time. A file that is changed is applied again; where the code of a handler is changed, its worker is
    restarted. Without a file: --queue shop/emails --handler mailer:send.

    With --memory there is no Cassandra: queues and workers share one process, and each line that you type is put as
    a message. Other processes cannot reach these queues, and their messages end with the process.
    """
    from headgate.cli.terminal.progress import show_download
    from headgate.local.first_message import FirstMessage
    from headgate.local.progress import show_downloads
    from headgate.local.stack import Stack, write_first_queue

    if bool(files) == (queue is not None) or (queue is None) != (handler is None):
        raise InvalidRequest("The queue to run is missing", remedy="name FILES, or give both --queue and --handler")
    if queue is not None and handler is not None:
        files = (write_first_queue(queue, handler),)
    if until_handled and payload is None:
        raise InvalidRequest("--until-handled needs a message", remedy="give one with --put")
    if sys.stderr.isatty():
        show_downloads(show_download)
    first = None if payload is None else FirstMessage(payload, then_end=until_handled)
    if memory:
        from headgate.local.memory_stack import run_in_memory

        asyncio.run(run_in_memory(files, first=first))
        return
    asyncio.run(Stack(files, read_environment(), fresh=fresh, first=first).run())


@define_command("init")
@click.argument("file", default="queues.yaml", type=click.Path(path_type=Path))
@click.option("--queue", default="emails", show_default=True, metavar="[NAMESPACE/]NAME", help="Name of the queue.")
@click.option(
    "--handler", default="handlers:handle", show_default=True, metavar="MODULE:FUNCTION", help="Handler of messages."
)
def init(file: Path, *, queue: str, handler: str) -> None:
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
