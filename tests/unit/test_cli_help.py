"""`headgate --help` lists every command and imports none."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.shell_completion import CompletionItem

from headgate.cli.main import COMMANDS, JOINED_SUMMARIES, main

CONTEXT = click.Context(main, info_name="headgate")
LISTED = sorted({*COMMANDS, "bulk", "plan"})
PROGRAM = (
    "import json, sys\n"
    "from headgate.cli.main import main\n"
    "try:\n"
    "    main(sys.argv[1:], prog_name='headgate')\n"
    "finally:\n"
    "    loaded = [name for name in sys.modules if name.startswith('headgate')]\n"
    "    print(json.dumps(sorted(loaded)), file=sys.stderr)\n"
)
LIGHT = ["headgate", "headgate.cli", "headgate.cli.main", "headgate.errors"]


def run_apart(*arguments: str, **environment: str) -> tuple[str, list[str]]:
    """What a process prints, and the modules of ours that it has imported at its end."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), **environment},
    )
    return ran.stdout, json.loads(ran.stderr)


def test_the_help_lists_every_command_and_imports_none() -> None:
    out, loaded = run_apart("--help")
    _, _, commands = out.partition("Commands:\n")
    assert LISTED == [line.split()[0] for line in commands.splitlines()]
    assert set(LIGHT) == set(loaded)


def test_a_command_imports_itself_when_it_is_called() -> None:
    _, loaded = run_apart("validate", "--help")
    assert "headgate.cli.validate" in loaded
    assert "headgate.cli.apply" not in loaded


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_summary_of_a_command_is_its_own_first_sentence(name: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    assert command.get_short_help_str(limit=1_000) == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("name", "place"), [("bulk", "headgate_spark.bulk_program"), ("plan", "headgate_operator.plan_command")]
)
def test_the_summary_of_a_joined_command_is_its_own_first_sentence(name: str, place: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    assert command.get_short_help_str(limit=1_000) == JOINED_SUMMARIES[f"{place}:command"]


def test_the_list_shows_what_each_command_shows_of_itself() -> None:
    formatter = CONTEXT.make_formatter()
    main.format_commands(CONTEXT, formatter)
    expected = CONTEXT.make_formatter()
    click.Group.format_commands(main, CONTEXT, expected)
    assert expected.getvalue() == formatter.getvalue()


def test_shell_completion_offers_the_commands_with_their_summaries() -> None:
    def plain(items: list[CompletionItem]) -> list[tuple[str, str | None]]:
        return [(item.value, item.help) for item in items]

    assert plain(click.Group.shell_complete(main, CONTEXT, "re")) == plain(main.shell_complete(CONTEXT, "re"))
    assert plain(click.Group.shell_complete(main, CONTEXT, "--")) == plain(main.shell_complete(CONTEXT, "--"))


def test_shell_completion_imports_no_command() -> None:
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate re", "COMP_CWORD": "1"}
    out, loaded = run_apart(**words)
    assert ["plain,receive", "plain,redrive", "plain,repair"] == out.split()
    assert set(LIGHT) == set(loaded)
