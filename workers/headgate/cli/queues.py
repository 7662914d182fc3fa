"""What the commands that work on queues share: one connection for the length of a command, and options that mean the
same everywhere.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from headgate.api.durations import parse_duration_ms
from headgate.cli.connection import connection_options, environment_with
from headgate.client.connection import Headgate, connect
from headgate.client.queue import Queue

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")

EXIT_INTERRUPTED = 130


class SpanType(click.ParamType[timedelta]):
    """A length of time, written as in a resource: `500ms`, `90s`, `1h30m`, `14d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found_ms = parse_duration_ms(str(value))
        if found_ms is None:
            self.fail(f"{value!r} is not a duration such as 500ms, 90s, 1h30m or 14d", param, ctx)
        return timedelta(milliseconds=found_ms)


class MomentType(click.ParamType[datetime]):
    """A moment, as ISO 8601 with its time zone."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a moment such as 2030-01-31T09:00:00+01:00", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


SPAN = SpanType()
MOMENT = MomentType()


def queue_option(command: Command) -> Command:
    """--queue, which most need."""
    return click.option("--queue", required=True, metavar="NAMESPACE/NAME", help="The queue.")(command)


def on_connection(options: dict[str, Any], work: Callable[[Headgate], Awaitable[T]]) -> T:
    """Connect, work, disconnect. Ctrl-C and SIGTERM end the work in good order: what is open goes back."""

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  asyncio.run runs tasks
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, task.cancel)
        async with connect(environment_with(options)) as connection:
            return await work(connection)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise SystemExit(EXIT_INTERRUPTED) from None


def on_queue(options: dict[str, Any], work: Callable[[Queue], Awaitable[T]]) -> T:
    """As `on_connection`, with the queue that --queue names."""

    async def with_queue(connection: Headgate) -> T:
        return await work(await connection.queue(options["queue"]))

    return on_connection(options, with_queue)


__all__ = ["MOMENT", "SPAN", "connection_options", "on_connection", "on_queue", "queue_option"]
