"""The connection of a command: from the environment, as every process of Headgate reads it, or by global options.

The options stand before the command (`headgate --contact-points 10.0.0.1 stats shop/emails`), once for all commands.
There is no option for the password: every user of a machine can read the arguments of its processes.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from headgate.command_line.exit_codes import ExitCode
from headgate.errors import InvalidRequest
from headgate.store.connection_variables import MEMORY, PREFIX, connection_variables, prefixed

if TYPE_CHECKING:
    from headgate.client.connection import Headgate
    from headgate.client.queue import Queue

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
T = TypeVar("T")

OPTIONS: Final = (
    ("--contact-points", "CONTACT_POINTS", "Cassandra nodes: host[:port], comma-separated."),
    ("--data-center", "DATA_CENTER", "Home data center. Default: the only one."),
    ("--username", "USERNAME", "Role. Its password is HEADGATE_PASSWORD."),
    ("--keyspace", "KEYSPACE", "Keyspace of the catalogue. Default: headgate."),
)


def connection_options(command: Decorated) -> Decorated:
    """The global options, each over the variable of the same name."""
    for option, variable, help_text in reversed(OPTIONS):
        command = click.option(option, variable.lower(), metavar=variable, help=help_text)(command)
    return command


def read_environment() -> dict[str, str]:
    """The environment of this command, with the global options over it."""
    context = click.get_current_context(silent=True)
    options = context.find_root().params if context is not None else {}
    given = {variable: options.get(variable.lower()) for _, variable, _ in OPTIONS}
    named = prefixed({variable: value for variable, value in given.items() if value is not None})
    environment = dict(os.environ) | named
    if connection_variables(environment).get("CONTACT_POINTS", "").startswith(MEMORY):
        raise InvalidRequest(
            "Queues in memory cannot be reached from another process",
            remedy="run `headgate dev --memory`, or connect in your program",
        )
    return environment


def run_connected(work: Callable[[Headgate], Awaitable[T]]) -> T:
    """Connect, work, disconnect. Ctrl-C and SIGTERM cancel the work, which returns its messages to the queue."""
    import asyncio

    from headgate.client.connection import connect
    from headgate.process.event_loop import call_on_sigterm

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  asyncio.run runs tasks
        call_on_sigterm(task.cancel)
        async with connect(read_environment()) as connection:
            return await work(connection)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise SystemExit(ExitCode.INTERRUPTED) from None


def run_on_queue(name: str, work: Callable[[Queue], Awaitable[T]]) -> T:
    async def with_queue(connection: Headgate) -> T:
        return await work(await connection.queue(name))

    return run_connected(with_queue)


__all__ = ["OPTIONS", "PREFIX", "connection_options", "read_environment", "run_connected", "run_on_queue"]
