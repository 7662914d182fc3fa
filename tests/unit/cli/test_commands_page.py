"""docs/commands.md agrees with the help of the commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headgate.cli.main import COMMANDS, main
from headgate.cli.reference import PAGE, page

ROOT = Path(__file__).parents[3]


WRITTEN = (ROOT / PAGE).read_text(encoding="utf-8")


def test_the_page_is_as_the_commands_are() -> None:
    assert page(WRITTEN) == WRITTEN, "make generate"


def test_a_page_that_is_out_of_date_is_written_again() -> None:
    old = (
        WRITTEN.replace("## headgate put\n", "## headgate send\n")
        .replace("| 130 |", "| 131 |")
        .replace("Home data", "A")
    )
    assert old != WRITTEN
    assert page(old) == WRITTEN


@pytest.mark.parametrize("name", sorted(name for name, each in COMMANDS.items() if not each.hidden))
def test_every_command_is_on_it_and_names_what_it_is_for_and_what_each_option_does(name: str) -> None:
    context = click.Context(main, info_name="headgate")
    command = main.get_command(context, name)
    assert command is not None
    assert f"## headgate {name}" in page(WRITTEN)
    result = command.commands.values() if isinstance(command, click.Group) else [command]
    for each in result:
        assert each.help, each.name
        options = [option for option in each.params if isinstance(option, click.Option)]
        assert [] == [option.name for option in options if not option.help], each.name
