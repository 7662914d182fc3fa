"""The connection of a command: from the environment, as every process of Headgate reads it, or by options over it.

There is no option for the password: the arguments of a process are everybody's to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headgate.store.connection_variables import PREFIX, prefixed

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    ("--contact-points", "CONTACT_POINTS", "Nodes of your Cassandra, as host[:port], separated by commas."),
    ("--data-center", "DATA_CENTER", "The home data centre. Unset: the only one there is."),
    ("--username", "USERNAME", "The role. Its password is read from HEADGATE_PASSWORD."),
    ("--keyspace", "KEYSPACE", "The keyspace of the catalogue; `headgate` unless set."),
)


def connection_options(command: Command) -> Command:
    """Options for the connection, each over the variables of the same name."""
    for option, variable, says in reversed(OPTIONS):
        command = click.option(option, variable.lower(), help=f"{says} [{PREFIX}{variable}]")(command)
    return command


def environment_with(options: dict[str, Any]) -> dict[str, str]:
    """The environment, with what was given as an option over it."""
    given = {variable: options[variable.lower()] for _, variable, _ in OPTIONS}
    return dict(os.environ) | prefixed({variable: value for variable, value in given.items() if value is not None})
