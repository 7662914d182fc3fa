"""`headgate dev FILE...`: a whole stack on one machine, without Kubernetes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from headgate.cli.connection import connection_options, environment_with


@click.command("dev")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Begin with an empty Cassandra.")
@connection_options
def command(files: tuple[Path, ...], *, fresh: bool, **options: Any) -> None:
    """Run what FILES declare on this machine: a Cassandra, the queues, a worker for each consumer, repair.

    Handlers are imported from the current directory. Where HEADGATE_CONTACT_POINTS is set that Cassandra is used,
    else one is started; its data stay for the next time. A file that is changed is applied again; where the code of
    a handler is changed, its worker is begun anew.
    """
    from headgate.local.stack import Stack

    asyncio.run(Stack(files, environment_with(options), fresh=fresh).run())
