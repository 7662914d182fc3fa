"""`penstock`: the door of the command line. A command is one file of this package that has a `command`.

To add one: write the file, name it in COMMANDS. It is imported when it is called, so that `penstock --version` needs
neither a driver nor a cluster. Others who stand on the data plane add commands by the entry point group
`penstock.commands`: a name, and where its click command is. Every PenstockError becomes one line (or one a fault) on
stderr and an exit code that tells whose fault it is; a traceback is a bug of ours.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final, NoReturn

import click

from penstock.errors import PenstockError, SpecError, Surroundings

COMMANDS: Final = {
    "apply": "penstock.cli.apply",
    "cancel": "penstock.cli.cancel",
    "check": "penstock.cli.check",
    "counter": "penstock.cli.counter",
    "dev": "penstock.cli.dev",
    "gc": "penstock.cli.collect",
    "peek": "penstock.cli.peek",
    "purge": "penstock.cli.purge",
    "receive": "penstock.cli.receive",
    "redrive": "penstock.cli.redrive",
    "repair": "penstock.cli.repair",
    "send": "penstock.cli.send",
    "stats": "penstock.cli.stats",
    "top": "penstock.cli.top",
    "validate": "penstock.cli.validate",
    "where": "penstock.cli.where",
    "worker": "penstock.cli.worker",
}

JOINING: Final = "penstock.commands"
"""The entry point group of commands that are not of this package. One of ours keeps its name."""
EXIT_SPEC = 2
"""What was asked for is wrong; also click's own code for a wrong option."""
EXIT_FAILED = 1


class CommandUnusable(Surroundings):
    """This command is not installed completely."""


class Group(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_joined()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            joined = _joined().get(cmd_name)
            return None if joined is None else _load(joined)
        found = import_module(COMMANDS[cmd_name]).command
        assert isinstance(found, click.Command), f"{COMMANDS[cmd_name]} has no command"  # noqa: S101  ours to keep
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
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
    distribution = entry.dist.name if entry.dist is not None else "penstock"
    remedy = f"install {distribution} anew, with the extra that `{entry.name}` belongs to"

    def refuse() -> NoReturn:
        raise CommandUnusable(command=entry.name, why=why, remedy=remedy)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(entry.name, context_settings=settings, callback=refuse, help=f"Not usable: {why}.")


def _leave(error: PenstockError) -> NoReturn:
    for line in str(error).splitlines():
        click.echo(f"penstock: {line}" if not isinstance(error, SpecError) else line, err=True)
    raise SystemExit(EXIT_SPEC if isinstance(error, SpecError) else EXIT_FAILED)


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"


@click.command(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="penstock")
def main() -> None:
    """Durable queues and counters on Cassandra."""


if __name__ == "__main__":
    main()
