"""`penstock`: the door of the command line. A command is one file of this package that has a `command`.

To add one: write the file, name it in COMMANDS. It is imported when it is called, so that `penstock --version` needs
neither a driver nor a cluster. Every PenstockError becomes one line (or one a fault) on stderr and an exit code that
tells whose fault it is; a traceback is a bug of ours.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NoReturn

import click

from penstock.errors import PenstockError, SpecError

COMMANDS: Final = {
    "apply": "penstock.cli.apply",
    "cancel": "penstock.cli.cancel",
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

EXIT_SPEC = 2
"""What was asked for is wrong; also click's own code for a wrong option."""
EXIT_FAILED = 1


class Group(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = import_module(COMMANDS[cmd_name]).command
        assert isinstance(found, click.Command), f"{COMMANDS[cmd_name]} has no command"  # noqa: S101  ours to keep
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            _leave(error)


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
