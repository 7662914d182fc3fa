"""Arguments and options that mean the same on every command: queues, times, durations, files; and the command class.

Each is defined once: its name, its type and its help. A queue or a counter is a positional argument, NAMESPACE/NAME;
HEADGATE_QUEUE and HEADGATE_COUNTER name the one that is meant where the argument is missing. This module imports no
driver and no SDK, so that help and completion stay fast.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from headgate.api.values.units import Duration
from headgate.command_line.connection import OPTIONS as CONNECTION_OPTIONS
from headgate.errors import HeadgateError
from headgate.store.connection_variables import variable_names

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

NAME_METAVAR: Final = "NAMESPACE/NAME"
FALLBACKS: Final = {"queue": "HEADGATE_QUEUE", "counter": "HEADGATE_COUNTER"}
"""The variable that names the queue or the counter where the argument is missing."""
COMPLETE_WITHIN_S: Final = 1.5
COMPLETIONS_MAX: Final = 500
_RATE: Final = re.compile(r"([1-9][0-9]{0,6})/([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}
_FULL_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


# ---- types


class DurationType(click.ParamType[timedelta]):
    """A duration, written as in a resource: `500ms`, `90s`, `1h30m`, `14d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        duration_ms = Duration.parse(str(value))
        if duration_ms is None:
            self.fail(f"{value!r} is not a duration such as 500ms, 90s, 1h30m or 14d", param, ctx)
        return timedelta(milliseconds=duration_ms)


class TimeType(click.ParamType[datetime]):
    """A time, as ISO 8601 with its time zone; where `ages` count, also an age such as 24h."""

    name = "time"

    def __init__(self, *, ages: bool = False) -> None:
        self._ages = ages

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        age_ms = Duration.parse(str(value)) if self._ages else None
        if age_ms is not None:
            return datetime.now(UTC) - timedelta(milliseconds=age_ms)
        try:
            time = datetime.fromisoformat(str(value))
        except ValueError:
            or_age = " or an age such as 24h" if self._ages else ""
            self.fail(f"{value!r} is not a time such as 2030-01-31T09:00:00+01:00{or_age}", param, ctx)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class RateType(click.ParamType[float]):
    """A rate, written as in a resource: `50/s`, `600/m`, `1000/h`. Its value is messages per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _RATE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a rate such as 50/s, 600/m or 1000/h", param, ctx)
        return int(match[1]) / _SECONDS[match[2]]


DURATION: Final = DurationType()
RATE: Final = RateType()
FUTURE_TIME: Final = TimeType()
PAST_TIME: Final = TimeType(ages=True)


# ---- the command class


class Command(click.Command):
    """A command whose queue or counter may come from the environment."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, self._with_fallback(ctx, args))
        except click.NoSuchOption as error:
            if error.option_name not in {option for option, _, _ in CONNECTION_OPTIONS}:
                raise
            place = f"{ctx.find_root().info_name} {error.option_name} ... {ctx.info_name}"
            message = f"No such option {error.option_name!r}. Give it before the command: {place}"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def _with_fallback(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with the queue of the environment in front where they have none."""
        arguments = [each for each in self.params if isinstance(each, click.Argument)]
        name = arguments[0].name if arguments else None
        default = os.environ.get(FALLBACKS[name], "").strip() if name in FALLBACKS else ""
        if (
            name is None
            or not default
            or ctx.resilient_parsing
            or any(each in ctx.help_option_names for each in args)
        ):
            return args
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        if values.get("namespace"):
            return args  # repair and gc: every queue of that namespace
        first = values.get(str(name))
        if isinstance(first, str) and (len(arguments) == 1 or _FULL_NAME.fullmatch(first)):
            return args
        return [default, *args]


define_command: Final = partial(click.command, cls=Command)


class Group(click.Group):
    command_class = Command


# ---- arguments


def queue_argument(command: Decorated) -> Decorated:
    return click.argument("queue", metavar=NAME_METAVAR, shell_complete=complete_queue)(command)


def counter_argument(command: Decorated) -> Decorated:
    return click.argument("counter", metavar=NAME_METAVAR, shell_complete=complete_counter)(command)


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of queues, where the catalogue answers at once."""
    return [CompletionItem(name) for name in read_names("queues") if name.startswith(incomplete)]


def complete_counter(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of counters, where the catalogue answers at once."""
    return [CompletionItem(name) for name in read_names("counters") if name.startswith(incomplete)]


def read_names(kind: str) -> list[str]:
    """The names of queues or counters, sorted. A completion never prints an error and never blocks the shell: without
    a connection in the environment, or where Cassandra does not answer in time, there are none."""
    if "CONTACT_POINTS" not in variable_names(os.environ):
        return []
    logging.disable(logging.CRITICAL)
    try:
        return sorted(asyncio.run(_read_names(kind)))[:COMPLETIONS_MAX]
    except (HeadgateError, TimeoutError, OSError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _read_names(kind: str) -> list[str]:
    from headgate.client.connection import connect

    async with asyncio.timeout(COMPLETE_WITHIN_S), connect(dict(os.environ)) as connection:
        return await (connection.queues() if kind == "queues" else connection.counters())


# ---- options that several commands have

filename_option = click.option(
    "-f",
    "--filename",
    "named",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="File to read. - is standard input.",
)


def files_option(command: Decorated) -> Decorated:
    """FILES, or -f FILE as for kubectl; `files_of` has both."""
    as_argument = click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
    return filename_option(as_argument(command))


def files_of(options: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files of `files_option`; at least one."""
    paths = (*options["named"], *options["files"])
    if not paths:
        raise click.UsageError("Missing argument 'FILES...', or option '-f'.")
    return paths


def limit_option(default: int | None = 10, maximum: int | None = None) -> Callable[[Decorated], Decorated]:
    """--limit; without a default there is no limit."""
    help_text = "Maximum number." if default is not None else "Maximum number. Default: no limit."
    kind = click.IntRange(1, maximum)
    return click.option(
        "--limit", type=kind, metavar="N", default=default, show_default=default is not None, help=help_text
    )


since_option = click.option(
    "--since", type=PAST_TIME, metavar="TIME", help="Start: an ISO time, or an age such as 24h."
)
until_option = click.option(
    "--until", type=PAST_TIME, metavar="TIME", help="End (exclusive): an ISO time, or an age."
)
namespace_option = click.option("--namespace", metavar="NAMESPACE", help="Only this namespace.")
yes_option = click.option("--yes", is_flag=True, help="Confirmation without a question.")
target_option = click.option(
    "--to",
    metavar=NAME_METAVAR,
    shell_complete=complete_queue,
    help="Target queue. Default: its source queue.",
)
