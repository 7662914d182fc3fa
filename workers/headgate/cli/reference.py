"""Writes docs/commands.md with what the commands themselves know: `python -m headgate.cli.reference [FILE]`.

That is the help of each command, the options of the connection, and the exit codes. The rest of the page is written
by hand. A test compares both parts with the code, so the page is never out of date.

It knows how click keeps a command's help, and no command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from headgate.cli.main import COMMANDS, SECTIONS, main
from headgate.command_line.connection import OPTIONS
from headgate.command_line.exit_codes import ExitCode
from headgate.store.connection_variables import PREFIX

PAGE = Path("docs/commands.md")


def page(before: str) -> str:
    """The page, with all that is generated in it written again."""
    context = click.Context(main, info_name="headgate")
    commands = [
        line
        for name in sorted(main.list_commands(context), key=_place)
        if (command := main.get_command(context, name)) is not None and not command.hidden
        for line in _command(command, name, context)
    ]
    connection = _table("option", "", [(f"`{option}`", f"{text} [{PREFIX}{name}]") for option, name, text in OPTIONS])
    codes = _table("code", "meaning", [(str(code.value), code.meaning) for code in ExitCode])
    text = _replace_table(_replace_table(before, connection), codes)
    head, _, rest = text.partition("\n<!-- commands -->\n")
    _, end, tail = rest.partition("\n<!-- end of commands -->\n")
    return head + "\n<!-- commands -->\n" + "\n".join(commands).rstrip() + end + tail


def _replace_table(text: str, table: list[str]) -> str:
    """In place of the first table with that head."""
    table_before = re.escape(f"{table[0]}\n{table[1]}\n") + r"(\|.*\n)*"
    return re.sub(table_before, lambda _: "\n".join(table) + "\n", text, count=1)


def _place(name: str) -> tuple[int, int]:
    """The place of a command: that of `headgate --help`."""
    if name not in COMMANDS:
        return SECTIONS.index("Check" if name == "plan" else "Spark"), len(COMMANDS)
    return SECTIONS.index(COMMANDS[name].section), list(COMMANDS).index(name)


def _command(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            subcommand = command.get_command(context, below)
            if subcommand is not None:
                yield from _command(subcommand, below, context)
        return
    yield from (f"## {context.command_path}", "")
    yield from (f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    options = [
        (_signature(option, context), _help(option)) for option in command.params if isinstance(option, click.Option)
    ]
    if options:
        yield from (*_table("option", "", options), "")


def _signature(option: click.Option, context: click.Context) -> str:
    metavar = "" if option.is_flag else f" {option.make_metavar(context)}"
    return f"`{', '.join(option.opts)}{metavar}`".replace("|", "\\|")


def _help(option: click.Option) -> str:
    text = " ".join((option.help or "").split())
    facts = ["Required."] if option.required else []
    if option.show_default and option.default is not None:
        facts.append(f"Default: `{option.default}`.")
    return " ".join([text, *facts])


def _table(first: str, second: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    heads = f"| {first} | {second} |" if second else f"| {first} | |"
    return [heads, "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
