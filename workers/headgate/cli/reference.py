"""Writes docs/commands.md from the commands themselves: `python -m headgate.cli.reference [FILE]`. A test compares
them, so the page can not go stale.

It knows how click keeps what a command says of itself, and no command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from headgate.cli.connection import OPTIONS
from headgate.cli.main import main
from headgate.store.connection_variables import PREFIX

_NUMBERS = re.compile(r"(INTEGER|FLOAT)( RANGE)?")
PAGE = Path("docs/commands.md")
HEAD = """# The commands of `headgate`

<!-- Written by `make generate` from the commands themselves; a test compares them. -->

`headgate COMMAND --help` says the same. A worker's options, metrics and probes are explained in [its own
page](workers.md#reference-options-metrics-probes-headers); how queues and counters are declared in [the
reference](reference.md).

**Where Cassandra is** stands in the environment, as for every process of Headgate
([the variables](python.md#before-you-begin)). Most commands take these options over it. The password has no option
(set HEADGATE_PASSWORD), since every user of a machine can read the arguments of its processes.

"""
AFTER = """
Lengths of time are written as in a resource (`500ms`, `90s`, `1h30m`, `14d`), moments as ISO 8601
(`2030-01-31T09:00:00+01:00`; UTC where no zone is given).

**Exit codes**: 0 it is done; 2 what was asked for is wrong (an option, a file, a name); 1 it could not be done now
(no server, too late), or not all of it; 130 interrupted. What is wrong is one line on standard error, with what to
do.
"""


def page() -> str:
    """All of it."""
    context = click.Context(main, info_name="headgate")
    names = main.list_commands(context)
    found = [main.get_command(context, name) for name in names]
    sections = [
        line
        for name, command in zip(names, found, strict=True)
        if command is not None
        for line in _command(command, name, context)
    ]
    connection = _table([(f"`{option}`", f"{says} [{PREFIX}{variable}]") for option, variable, says in OPTIONS])
    commands = ["", "<!-- commands -->", *sections, "<!-- end of commands -->", ""]
    return HEAD + "\n".join(connection) + "\n" + AFTER + "\n".join(commands)


def _command(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from _command(found, below, context)
        return
    yield f"## {context.command_path}"
    yield ""
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    ours = [
        (_signature(option, context), _says(option))
        for option in command.params
        if isinstance(option, click.Option) and option.opts[0] not in {name for name, _, _ in OPTIONS}
    ]
    if ours:
        yield from _table(ours)
        yield ""


def _signature(option: click.Option, context: click.Context) -> str:
    metavar = "" if option.is_flag else f" {_NUMBERS.sub('NUMBER', option.make_metavar(context))}"
    return f"`{option.opts[0]}{metavar}`".replace("|", "\\|")


def _says(option: click.Option) -> str:
    facts = []
    if option.required:
        facts.append("needed")
    if option.show_default and option.default is not None:
        facts.append(f"unset: `{option.default}`")
    said = " ".join((option.help or "").split())
    return f"{said} ({'; '.join(facts)})" if facts else said


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return ["| option | |", "|---|---|", *(f"| {option} | {says} |" for option, says in rows)]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")
