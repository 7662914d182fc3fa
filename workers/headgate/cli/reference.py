"""Writes docs/commands.md from the commands themselves: `python -m headgate.cli.reference [FILE]`. A test compares
them, so the page is never out of date.

It knows how click keeps a command's help, and no command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from headgate.cli.documents import FIELDS
from headgate.cli.main import COMMANDS, SECTIONS, main
from headgate.command_line.connection import OPTIONS
from headgate.command_line.exit_codes import ExitCode
from headgate.store.connection_variables import PREFIX

PAGE = Path("docs/commands.md")
HEAD = """# The commands of `headgate`

<!-- Written by `make generate` from the commands themselves; a test compares them. -->

This page is for users of the command line. It lists each command with its options, output and exit codes.
`headgate COMMAND --help` prints the same. A worker's options, metrics and probes are [explained with
workers](workers.md#reference-options-metrics-probes-headers); how queues and counters are declared is in [the
reference](reference.md).

## For all commands

**A queue or a counter is an argument**, NAMESPACE/NAME: `headgate stats shop/emails`. HEADGATE_QUEUE and
HEADGATE_COUNTER name the default. With such a default, a first argument of the form NAMESPACE/NAME still names the
queue. Only `dev` and `init`, whose arguments are files, have an option `--queue`.

**The connection** is in the environment, as for every process of Headgate
([the variables](python.md#before-you-begin)), or in options before the command:
`headgate --contact-points 10.0.0.1 stats shop/emails`. The password has no option (set HEADGATE_PASSWORD), because
every user of a machine can read the arguments of its processes.

"""
VALUES = """
**Durations** are written as in a resource (`500ms`, `90s`, `1h30m`, `14d`), **rates** as `50/s`, `600/m` or `1000/h`,
and **times** as ISO 8601 (`2030-01-31T09:00:00+01:00`; UTC without a zone). `--since` and `--until` also take an age
(`24h`).

"""
OUTPUT = """
## Output

`-o` is the format of a result on standard output. Progress and errors are on standard error.

- `table`: for people. It may change.
- `json`: one document per line, with the fields below. Times are ISO 8601 in UTC, durations are seconds. Fields may
  be added; none is renamed or removed.
- `yaml`: the same documents.
- `name`: ids of messages, names of queues and counters, or `queue/shop/emails` where both kinds occur.

A command on several messages prints one document per message; `validate`, `stats`, `top`, `redrive` and `purge`
print one document, and `peek`, `queues`, `counter list` and `counter top` print one list.

"""
COMPLETION = """
## Shell completion

Commands, options and their values are completed, and the names of queues and counters where the catalogue answers
within a second and a half. Put the line of your shell into its startup file:

```sh
eval "$(_HEADGATE_COMPLETE=bash_source headgate)"   # ~/.bashrc (bash 4.4 or newer)
eval "$(_HEADGATE_COMPLETE=zsh_source headgate)"    # ~/.zshrc
```

For fish: `_HEADGATE_COMPLETE=fish_source headgate > ~/.config/fish/completions/headgate.fish`

"""
TOP = """
## Keys of `headgate top`

On a terminal, with the extra `cli` installed (`pip install 'headgate[cli]'`), `headgate top` is a screen of its own.
Otherwise it prints a JSON document per interval.

| key | |
|---|---|
| up, down (k, j) | select a queue |
| enter | open the queue: its lanes, owners and leases |
| esc, left | return to the list |
| b, a, f, r, n | sort by backlog, age, messages in flight, rate, name |
| q, Ctrl-C | quit |
"""
NEXT = """
Next: [on call](start-on-call.md), or [the SDK](python.md), which has the same verbs.
"""


def page() -> str:
    """All of it."""
    context = click.Context(main, info_name="headgate")
    names = sorted(main.list_commands(context), key=_place)
    sections = [
        line
        for name in names
        if (command := main.get_command(context, name)) is not None and not command.hidden
        for line in _command(command, name, context)
    ]
    connection = _table([(f"`{option}`", f"{text} [{PREFIX}{variable}]") for option, variable, text in OPTIONS])
    return (
        HEAD
        + "\n".join(connection)
        + "\n"
        + VALUES
        + "**Exit codes**\n\n"
        + "\n".join(_codes())
        + "\n"
        + OUTPUT
        + "\n".join(_documents())
        + "\n"
        + COMPLETION.rstrip()
        + "\n"
        + TOP
        + "\n<!-- commands -->\n"
        + "\n".join(sections).rstrip()
        + "\n<!-- end of commands -->\n"
        + NEXT
    )


def _place(name: str) -> tuple[int, int]:
    """The place of a command: that of `headgate --help`."""
    if name not in COMMANDS:
        return SECTIONS.index("Check" if name == "plan" else "Spark"), len(COMMANDS)
    return SECTIONS.index(COMMANDS[name].section), list(COMMANDS).index(name)


def _codes() -> Iterator[str]:
    yield "| code | meaning |"
    yield "|---|---|"
    for code in ExitCode:
        yield f"| {code.value} | {code.meaning} |"


def _documents() -> Iterator[str]:
    for command, fields in FIELDS.items():
        yield f"`{command}`"
        yield ""
        yield from _fields(fields)
        yield ""


def _fields(fields: Mapping[str, str]) -> Iterator[str]:
    yield "| field | |"
    yield "|---|---|"
    for name, text in fields.items():
        yield f"| `{name}` | {text} |"


def _command(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            subcommand = command.get_command(context, below)
            if subcommand is not None:
                yield from _command(subcommand, below, context)
        return
    yield f"## {context.command_path}"
    yield ""
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    options = [
        (_signature(option, context), _help(option)) for option in command.params if isinstance(option, click.Option)
    ]
    if options:
        yield from _table(options)
        yield ""


def _signature(option: click.Option, context: click.Context) -> str:
    metavar = "" if option.is_flag else f" {option.make_metavar(context)}"
    return f"`{', '.join(option.opts)}{metavar}`".replace("|", "\\|")


def _help(option: click.Option) -> str:
    text = " ".join((option.help or "").split())
    facts = ["Required."] if option.required else []
    if option.show_default and option.default is not None:
        facts.append(f"Default: `{option.default}`.")
    return " ".join([text, *facts])


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return ["| option | |", "|---|---|", *(f"| {option} | {text} |" for option, text in rows)]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")
