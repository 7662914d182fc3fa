"""`headgate check`: whether messages come through a queue, to its workers, and into a counter, each once.

It puts messages that ask for one to be added to a key of the counter, and waits until that key has their number. The
queue's worker has `count` as its handler: the update bears a token, so that a message that comes twice counts once.
`helm test` runs it, through a queue and a counter of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click
from pydantic import BaseModel

from headgate.client.connection import Headgate, connect
from headgate.client.sync.blocking import SyncHeadgate, connect_sync
from headgate.command_line.arguments import DURATION, counter_argument, define_command, queue_argument
from headgate.command_line.connection import read_environment
from headgate.command_line.output import Output, output_option
from headgate.errors import EnvironmentProblem, InvalidRequest, OperationRefused, Unavailable

AGAIN_S: Final = 0.5
There = TypeVar("There")


class CheckTimedOut(Unavailable):
    """Messages did not come through."""


class CountedTwice(OperationRefused):
    """More was counted than was put."""


class CheckMessage(BaseModel):
    counter: str
    key: str
    token: str


# ---- the handler, in a worker

_lock = threading.Lock()
_connections: list[SyncHeadgate] = []


def count(message: CheckMessage) -> None:
    """The handler: count this message, once."""
    with _lock:
        if not _connections:
            _connections.append(connect_sync().open())
    _connections[0].counter(message.counter).add(message.key, 1, token=message.token)


# ---- the command


@define_command("check", hidden=True)
@queue_argument
@counter_argument
@click.option(
    "--messages",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=10,
    show_default=True,
    help="Number of messages.",
)
@click.option("--timeout", "within", type=DURATION, default="120s", show_default=True, help="Maximum time.")
@output_option
def check(*, queue: str, counter: str, messages: int, within: timedelta, output: Output) -> None:
    """Test a queue, its workers and a counter.

    Messages are put into the queue. Its worker has the handler headgate.cli.check:count, which adds each to the
    counter, of type sum. `helm test` runs this command.
    """
    options = {"queue": queue, "counter": counter, "messages": messages}
    began_s = time.monotonic()
    asyncio.run(_check(options, began_s + within.total_seconds()))
    took_s = time.monotonic() - began_s
    line = f"{messages} messages passed through {queue}, each counted once: {took_s:.1f} s"
    document = {"queue": queue, "counter": counter, "messages": messages, "took_s": round(took_s, 3)}
    output.show(document, table=lambda: [line], names=[queue])


async def _check(options: dict[str, Any], until_s: float) -> None:
    connection = connect(read_environment())
    await _until_there(connection.open, until_s)  # the keyspace may be made only now
    try:
        await _through(connection, options, until_s)
    finally:
        await connection.close()


async def _through(connection: Headgate, options: dict[str, Any], until_s: float) -> None:
    queue = await _until_there(lambda: connection.queue(options["queue"]), until_s)
    counter = await _until_there(lambda: connection.counter(options["counter"]), until_s)
    key, messages = uuid.uuid4().hex, int(options["messages"])
    messages_put = [CheckMessage(counter=options["counter"], key=key, token=counter.token()) for _ in range(messages)]
    await queue.put_many([each.model_dump() for each in messages_put])
    click.echo(f"put {messages} messages into {options['queue']}", err=True)
    while (value := await counter.value(key)) < messages:
        if time.monotonic() > until_s:
            resource = f"queue/{queue.name.rpartition('/')[2]}"
            raise CheckTimedOut(put=messages, counted=value, remedy=f"see why: kubectl headgate why {resource}")
        await asyncio.sleep(AGAIN_S)
    if value > messages:
        raise CountedTwice(put=messages, counted=value)


async def _until_there(ask: Callable[[], Awaitable[There]], until_s: float) -> There:
    """What it gives, once it is there."""
    while True:
        try:
            return await ask()
        except (InvalidRequest, EnvironmentProblem, Unavailable, OperationRefused) as missing:
            if time.monotonic() > until_s:
                raise CheckTimedOut(
                    cause=str(missing), remedy="see `kubectl get hgq,hgc` and the operator's log"
                ) from None
        await asyncio.sleep(AGAIN_S)
