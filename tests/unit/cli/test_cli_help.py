"""`headgate --help`: grouped, uncut, quick, with a suggestion for a mistyped command; and completion in a shell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headgate.cli.main import ADDED, COMMANDS, SECTIONS, SUMMARY_CHARACTERS_MAX, main
from headgate.command_line.connection import OPTIONS
from headgate_operator.cli.kubectl_plugin import main as plugin

CONTEXT = click.Context(main, info_name="headgate")
ALL = sorted({*COMMANDS, "bulk", "plan"})
LISTED = [name for name in ALL if name != "check"]
PROGRAM = (
    "import json, sys\n"
    "from headgate.cli.main import main\n"
    "try:\n"
    "    main(sys.argv[1:], prog_name='headgate')\n"
    "finally:\n"
    "    print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
)
LIGHT = {
    "headgate",
    "headgate.cli",
    "headgate.command_line",
    "headgate.command_line.connection",
    "headgate.command_line.exit_codes",
    "headgate.cli.main",
    "headgate.errors",
    "headgate.process",
    "headgate.process.version",
    "headgate.store",
    "headgate.store.connection_variables",
}
MODULES_MAX = 230
"""Modules that click and the metadata of the distribution need. The driver alone would add more than that."""


def run_in_process(*arguments: str, **environment: str) -> tuple[str, list[str]]:
    """The output of a process, and the modules that it has imported at its end."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), **environment},
    )
    return ran.stdout, json.loads(ran.stderr)


def every_command(command: click.Command = main, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands, with those below them."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            result = command.get_command(context, below)
            assert result is not None
            yield from every_command(result, f"{name} {below}".strip())
    else:
        yield name, command


COMMANDS_BELOW = [
    *every_command(),
    *((f"kubectl headgate {name}", command) for name, command in every_command(plugin)),
]


def test_the_help_lists_every_command_in_its_section_and_imports_none() -> None:
    out, modules = run_in_process("--help")
    assert [f"{section}:" for section in SECTIONS[:-1]] == [
        line for line in out.splitlines() if re.fullmatch(r"[A-Z]\w+:", line) and line != "Options:"
    ]
    _, _, commands = out.partition("Messages:\n")
    listed = [line.split()[0] for line in commands.splitlines() if line.startswith("  ")]
    assert LISTED == sorted(listed)
    assert LIGHT == {name for name in modules if name.startswith("headgate")}


def test_the_help_imports_few_modules() -> None:
    _, modules = run_in_process("--help")
    assert len(modules) < MODULES_MAX
    assert not {"cassandra", "pydantic", "yaml", "rich"} & set(modules)


@pytest.mark.parametrize("width", [80, 60])
def test_no_summary_is_cut_on_a_narrow_terminal(width: int) -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=width).output
    words = " ".join(shown.split())
    for summary in [each.summary for name, each in COMMANDS.items() if name in LISTED]:
        assert summary in words
    assert "..." not in shown.partition("\n")[2]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_summary_of_a_command_is_its_own_first_line(name: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    assert (COMMANDS[name].summary, COMMANDS[name].hidden) == (
        command.get_short_help_str(limit=1_000),
        command.hidden,
    )


@pytest.mark.parametrize("entry", sorted(ADDED))
def test_the_summary_of_an_added_command_is_its_own_first_line(entry: str) -> None:
    name = "bulk" if "bulk" in entry else "plan"
    command = main.get_command(CONTEXT, name)
    assert command is not None
    assert ADDED[entry].summary == command.get_short_help_str(limit=1_000)


@pytest.mark.parametrize(("name", "command"), COMMANDS_BELOW, ids=[name for name, _ in COMMANDS_BELOW])
def test_first_lines_and_option_help_are_short(name: str, command: click.Command) -> None:
    assert len((command.help or "").splitlines()[0]) <= SUMMARY_CHARACTERS_MAX
    for option in command.params:
        if isinstance(option, click.Option):
            assert 0 < len(option.help or "") <= SUMMARY_CHARACTERS_MAX, option.opts


def test_an_option_has_the_same_type_and_help_on_every_command() -> None:
    meanings: dict[str, dict[tuple[str, str], str]] = {}
    for name, command in COMMANDS_BELOW:
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                kind = option.metavar or str(option.type)
                meanings.setdefault(max(option.opts, key=len), {})[kind, str(option.help)] = name
    assert {} == {
        option: places for option, places in meanings.items() if len(places) > 1 and option not in OF_ITS_OWN
    }


OF_ITS_OWN = {
    "--batch-size",  # of a worker's handler, or of a Spark job: different bounds
    "--context",
    "--handler",
    "--kubeconfig",
    "--limit",  # with a default, or without a limit
    "--name",
    "--namespace",
    "--queue",  # of dev and init
    "--rate",
    "--timeout",
    "--to",
    "--visibility",
}
"""Options that mean the same, with another bound or default."""


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("valdate", "Did you mean validate?"),
        ("staats", "Did you mean stats?"),
        ("redriv", "Did you mean redrive?"),
        ("pt", "Did you mean put?"),
        ("frobnicate", "No such command 'frobnicate'."),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(typed: str, hint: str) -> None:
    done = CliRunner().invoke(main, [typed])
    assert 2 == done.exit_code
    assert hint in done.stderr


def test_a_hidden_command_is_not_suggested() -> None:
    assert "check" not in CliRunner().invoke(main, ["chek"]).stderr


@pytest.mark.parametrize("option", [option for option, _, _ in OPTIONS])
def test_an_option_of_the_connection_after_the_command_is_refused_with_its_place(option: str) -> None:
    done = CliRunner().invoke(main, ["stats", "shop/emails", option, "x"], prog_name="headgate")
    assert 2 == done.exit_code
    assert f"Give it before the command: headgate {option} ... stats" in done.stderr


@pytest.mark.parametrize(("name", "command"), COMMANDS_BELOW, ids=[name for name, _ in COMMANDS_BELOW])
def test_no_command_repeats_the_options_of_the_connection(name: str, command: click.Command) -> None:
    options = {opt for option in command.params if isinstance(option, click.Option) for opt in option.opts}
    assert not options & {option for option, _, _ in OPTIONS}


# ---- completion


def test_a_command_imports_itself_when_it_is_called() -> None:
    _, modules = run_in_process("validate", "--help")
    assert "headgate.cli.validate" in modules
    assert "headgate.cli.apply" not in modules


def test_completion_imports_no_command() -> None:
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate re", "COMP_CWORD": "1"}
    out, modules = run_in_process(**words)
    assert ["plain,receive", "plain,redrive", "plain,repair"] == out.split()
    assert LIGHT == {name for name in modules if name.startswith("headgate")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_for_its_completion(shell: str) -> None:
    done = CliRunner().invoke(main, [], prog_name="headgate", env={"_HEADGATE_COMPLETE": f"{shell}_source"})
    assert 0 == done.exit_code
    assert "_HEADGATE_COMPLETE" in done.output


def test_the_script_of_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = CliRunner().invoke(main, [], prog_name="headgate", env={"_HEADGATE_COMPLETE": "bash_source"}).output
    program = tmp_path / "headgate"
    program.write_text(f"#!{sys.executable}\nfrom headgate.cli.main import main\nmain(prog_name='headgate')\n")
    program.chmod(0o755)
    lines = (
        "complete_line() { COMP_WORDS=($@); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _headgate_completion headgate; ",
        'echo "${COMPREPLY[*]}"; }\n',
        "complete_line headgate que\n",
        "complete_line headgate stats --la\n",
        "complete_line headgate queues -o y\n",
    )
    ran = subprocess.run(
        ["bash", "-c", script + "\n" + "".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert ["queues", "--lanes", "yaml"] == ran.stdout.split(), ran.stderr


def test_names_of_queues_are_completed_and_nothing_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.command_line import arguments

    assert [] == arguments.read_names("queues")
    monkeypatch.setenv("HEADGATE_CONTACT_POINTS", "127.0.0.1:1")
    assert [] == arguments.read_names("queues")

    async def names(kind: str) -> list[str]:
        return {"queues": ["shop/orders", "shop/emails"], "counters": ["shop/views"]}[kind]

    monkeypatch.setattr(arguments, "_read_names", names)
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate stats shop/", "COMP_CWORD": "2"}
    done = CliRunner().invoke(main, [], prog_name="headgate", env=words)
    assert ["plain,shop/emails", "plain,shop/orders"] == done.output.split()
