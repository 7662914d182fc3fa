"""`headgate`: the door of the command line. A command is one file of this package that has a `command`.

To add one: write the file, and name it in COMMANDS with the first sentence of its help. It is imported when it is
called, so that `headgate --help` and completion in a shell are fast and need neither a driver nor a cluster. Others
who stand on the data plane add commands by the entry point group `headgate.commands`: a name, and where its click
command is. Every HeadgateError becomes one line (or one a fault) on stderr and an exit code that tells whose fault it
is; a traceback is a bug of ours.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from headgate.errors import HeadgateError, SpecError, Surroundings


class Listed(NamedTuple):
    """A command as the list shows it, without an import of it."""

    module: str
    summary: str
    """The first sentence of its help; a test compares the two."""


COMMANDS: Final = {
    "apply": Listed(
        "headgate.cli.apply",
        "Make in Cassandra what the Queues and Counters of FILES need: keyspace, tables, and their catalogue "
        "entries.",
    ),
    "cancel": Listed(
        "headgate.cli.cancel",
        "Never deliver the messages ID, where that can still be promised.",
    ),
    "check": Listed(
        "headgate.cli.check",
        "Put messages through a queue to its workers, and see that each is counted once.",
    ),
    "counter": Listed(
        "headgate.cli.counter",
        "Add to counters, and look at what they hold.",
    ),
    "dev": Listed(
        "headgate.cli.dev",
        "Run what FILES declare on this machine: a Cassandra, the queues, a worker for each consumer, repair.",
    ),
    "gc": Listed(
        "headgate.cli.collect",
        "Merge the shards of counters that have ended into tallies, so that reads stay fast.",
    ),
    "init": Listed(
        "headgate.cli.init",
        "Write FILE with a queue, its worker and its dead-letter queue.",
    ),
    "peek": Listed(
        "headgate.cli.peek",
        "Show live messages by the moment they are due, without taking them; also those due later.",
    ),
    "purge": Listed(
        "headgate.cli.purge",
        "Settle everything that is in the queue now, also what is due later.",
    ),
    "receive": Listed(
        "headgate.cli.receive",
        "Receive messages and show them.",
    ),
    "redrive": Listed(
        "headgate.cli.redrive",
        "Put the dead letters that lie in --queue back into the queue they came from, to be tried anew.",
    ),
    "repair": Listed(
        "headgate.cli.repair",
        "Look again at what was passed, put late writes anew, bring generations on.",
    ),
    "send": Listed(
        "headgate.cli.send",
        "Put PAYLOAD into a queue, and print its id.",
    ),
    "stats": Listed(
        "headgate.cli.stats",
        "Count what a queue holds: due, in hands, due later; how old the oldest is; how far repair is.",
    ),
    "top": Listed(
        "headgate.cli.top",
        "Show how all queues stand, what is behind first.",
    ),
    "validate": Listed(
        "headgate.cli.validate",
        "Check the Queues and Counters of FILES (YAML, several documents each).",
    ),
    "where": Listed(
        "headgate.cli.where",
        "Tell where the message ID lies, and what became of it.",
    ),
    "worker": Listed(
        "headgate.cli.worker",
        "Drain a queue: receive its messages, have each handled, settle it.",
    ),
}
JOINED_SUMMARIES: Final = {
    "headgate_operator.plan_command:command": (
        "Show what the operator would do with files."
    ),
    "headgate_spark.bulk_program:command": "Work on many messages at once, by Spark.",
}
"""The summaries of commands that other packages of this distribution join, by their entry point."""

JOINING: Final = "headgate.commands"
"""The entry point group of commands that are not of this package. One of ours keeps its name."""
EXIT_SPEC = 2
"""What was asked for is wrong; also click's own code for a wrong option."""
EXIT_FAILED = 1


class CommandUnusable(Surroundings):
    """This command is not installed completely."""


class Group(click.Group):
    """Commands that are imported when they are called. The list of them and a shell's completion need no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_joined()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            joined = _joined().get(cmd_name)
            return None if joined is None else _load(joined)
        module = COMMANDS[cmd_name].module
        found = import_module(module).command
        assert isinstance(found, click.Command), f"{module} has no command"  # noqa: S101  ours to keep
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = self._summarized(ctx)
        width = formatter.width - 6 - max(len(name) for name, _ in commands)
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=command.get_short_help_str())
            for name, command in self._summarized(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _summarized(self, ctx: click.Context) -> list[tuple[str, click.Command]]:
        """Every command by name: with its summary alone where that is known, else imported."""
        joined = _joined()
        summaries = {name: listed.summary for name, listed in COMMANDS.items()}
        for name, entry in joined.items():
            if entry.value in JOINED_SUMMARIES:
                summaries[name] = JOINED_SUMMARIES[entry.value]
        found = []
        for name in self.list_commands(ctx):
            command = click.Command(name, help=summaries[name]) if name in summaries else self.get_command(ctx, name)
            if command is not None and not command.hidden:
                found.append((name, command))
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            _leave(error)


def _joined() -> dict[str, EntryPoint]:
    """Commands of other packages, by name."""
    return {each.name: each for each in entry_points(group=JOINING) if each.name not in COMMANDS}


def _load(entry: EntryPoint) -> click.Command:
    """One of them. What it lacks is said in a line, and keeps nobody from the list of commands."""
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        return _unusable(entry, str(error))
    return found if isinstance(found, click.Command) else _unusable(entry, f"{entry.value} is no command")


def _unusable(entry: EntryPoint, why: str) -> click.Command:
    distribution = entry.dist.name if entry.dist is not None else "headgate"
    remedy = f"install {distribution} anew, with the extra that `{entry.name}` belongs to"

    def refuse() -> NoReturn:
        raise CommandUnusable(command=entry.name, why=why, remedy=remedy)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(entry.name, context_settings=settings, callback=refuse, help=f"Not usable: {why}.")


def _leave(error: HeadgateError) -> NoReturn:
    for line in str(error).splitlines():
        click.echo(f"headgate: {line}" if not isinstance(error, SpecError) else line, err=True)
    raise SystemExit(EXIT_SPEC if isinstance(error, SpecError) else EXIT_FAILED)


def _version() -> str:
    try:
        return version("headgate")
    except PackageNotFoundError:
        return "unknown"


@click.command(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="headgate")
def main() -> None:
    """Durable queues and counters on Cassandra."""


if __name__ == "__main__":
    main()
