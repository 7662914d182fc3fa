"""`headgate`: the entry of the command line. The commands are in the modules of this package, by the sections of
`headgate --help`.

To add one: write it, and name it in COMMANDS with the first line of its help. It is imported when it is called, so
that `headgate --help` and a shell's completion are fast and need neither a driver nor a cluster. Other packages of
the distribution add commands by the entry point group `headgate.commands`: a name, and its click command. Every
HeadgateError becomes one line on standard error (or one per fault) and an exit code; a traceback is a bug.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from headgate.command_line.connection import connection_options
from headgate.command_line.exit_codes import exit_code_of
from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest
from headgate.process.version import read_version

SUMMARY_CHARACTERS_MAX: Final = 45
SIMILARITY_MIN: Final = 0.65
JOINING: Final = "headgate.commands"
"""The entry point group of commands of other packages. A command of this package keeps its name."""


class Listed(NamedTuple):
    """A command as `headgate --help` lists it, without an import of it."""

    section: str
    summary: str
    """The first line of its help, at most 45 characters; a test compares the two."""
    place: str = ""
    """Module and name, in this package; empty for a command that another package adds."""
    hidden: bool = False


SECTIONS: Final = ("Messages", "Queues", "Run", "Check", "Counters", "Maintenance", "Spark", "Other")
COMMANDS: Final = {
    "put": Listed("Messages", "Put a message into a queue, print its id.", "messages:put"),
    "receive": Listed("Messages", "Receive messages and show them.", "messages:receive"),
    "peek": Listed("Messages", "Show messages without taking them.", "messages:peek"),
    "locate": Listed("Messages", "Show the state and place of a message.", "messages:locate"),
    "cancel": Listed("Messages", "Cancel delayed messages before they are due.", "messages:cancel"),
    "apply": Listed("Queues", "Create Queues and Counters of files.", "apply:apply"),
    "queues": Listed("Queues", "List queues.", "queues:queues"),
    "stats": Listed("Queues", "Count the messages of a queue.", "queues:stats"),
    "top": Listed("Queues", "Watch all queues, the longest backlog first.", "top:top"),
    "redrive": Listed("Queues", "Move dead letters back to their source.", "queues:redrive"),
    "purge": Listed("Queues", "Delete all messages of a queue.", "queues:purge"),
    "worker": Listed("Run", "Run a handler for each message.", "worker:worker"),
    "dev": Listed("Run", "Run queues on this machine, with a Cassandra.", "dev:dev"),
    "init": Listed("Run", "Write a first file for headgate dev.", "dev:init"),
    "validate": Listed("Check", "Check Queues and Counters in files.", "validate:validate"),
    "check": Listed("Check", "Test a queue, its workers and a counter.", "check:check", hidden=True),
    "counter": Listed("Counters", "Add to counters and read them.", "counter:counter_group"),
    "repair": Listed("Maintenance", "Repair a queue, or those of a namespace.", "maintenance:repair"),
    "gc": Listed("Maintenance", "Compact a counter, or those of a namespace.", "maintenance:collect"),
}
ADDED: Final = {
    "headgate_operator.cli.plan:command": Listed("Check", "Show what the operator would do with files."),
    "headgate_spark.bulk_program:command": Listed("Spark", "Work on many messages at once."),
}
"""Commands that other packages of this distribution add, by their entry point."""


class CommandUnusable(EnvironmentProblem):
    """This command is not installed completely."""


class CommandGroup(click.Group):
    """Commands that are imported when they are called. Their list and a shell's completion need no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_added()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = EntryPoint(cmd_name, f"headgate.cli.{COMMANDS[cmd_name].place}", JOINING).load()
            return command
        entry = _added().get(cmd_name)
        return None if entry is None else _load(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or not name:
            return super().resolve_command(ctx, args)
        hidden = {name for name, each in COMMANDS.items() if each.hidden}
        close = [each for each in difflib.get_close_matches(name, known, cutoff=SIMILARITY_MIN) if each not in hidden]
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = self._listed(ctx)
        name_width = max(len(name) for name in commands)
        for section in SECTIONS:
            rows = [
                (name.ljust(name_width), each.summary) for name, each in commands.items() if each.section == section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=listed.summary)
            for name, listed in sorted(self._listed(ctx).items())
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _listed(self, ctx: click.Context) -> dict[str, Listed]:
        """Every command that is not hidden, in the order of the list; imported only where it is not known."""
        listed = {name: each for name, each in COMMANDS.items() if not each.hidden}
        for name, entry in _added().items():
            if entry.value in ADDED:
                listed[name] = ADDED[entry.value]
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                listed[name] = Listed("Other", command.get_short_help_str(SUMMARY_CHARACTERS_MAX))
        return listed

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            leave(error)


def _added() -> dict[str, EntryPoint]:
    """Commands of other packages, by name."""
    return {each.name: each for each in entry_points(group=JOINING) if each.name not in COMMANDS}


def _load(entry: EntryPoint) -> click.Command:
    """A command of another package. If it cannot be imported, it prints the reason when it is called."""
    try:
        command = entry.load()
        reason = f"{entry.value} is no command"
    except (ImportError, AttributeError) as error:
        command, reason = None, str(error)
    if isinstance(command, click.Command):
        return command
    distribution = entry.dist.name if entry.dist is not None else "headgate"
    remedy = f"install {distribution} again, with the extra for `{entry.name}`"

    def refuse() -> NoReturn:
        raise CommandUnusable(command=entry.name, reason=reason, remedy=remedy)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(entry.name, context_settings=settings, callback=refuse, help=f"Not usable: {reason}.")


def leave(error: HeadgateError) -> NoReturn:
    """End the process with the error's line and exit code."""
    for line in str(error).splitlines():
        click.echo(f"headgate: {line}" if not isinstance(error, InvalidRequest) else line, err=True)
    raise SystemExit(exit_code_of(error))


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@connection_options
@click.version_option(read_version(), prog_name="headgate")
def main(**options: str | None) -> None:
    """Durable queues and counters on Cassandra.

    A queue or counter is NAMESPACE/NAME, such as shop/emails. HEADGATE_QUEUE and HEADGATE_COUNTER are the defaults.
    Each option below has a variable: HEADGATE_CONTACT_POINTS and so on.
    """


if __name__ == "__main__":
    main()
