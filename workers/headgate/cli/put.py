"""`headgate put`: puts messages into a queue, one or a stream of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from headgate.cli.terminal.progress import Progress, show_progress
from headgate.client.model.outgoing import Put
from headgate.client.model.payloads import CONTENT_TYPE
from headgate.client.queue import Queue
from headgate.command_line.arguments import (
    DURATION,
    FUTURE_TIME,
    RATE,
    define_command,
    filename_option,
    queue_argument,
)
from headgate.command_line.connection import run_on_queue
from headgate.command_line.output import Output, output_option
from headgate.errors import EnvironmentProblem, InvalidRequest

AT_ONCE = 500
STEPS_PER_S = 20
JSON = "application/json"


@define_command("put")
@queue_argument
@click.argument("payload", required=False)
@click.option(
    "--count", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Number of messages."
)
@click.option("--rate", type=RATE, help="Maximum rate, such as 50/s.")
@filename_option
@click.option("--lines", is_flag=True, help="Make each line a message.")
@click.option("--delay", type=DURATION, help="Time until it is due.")
@click.option("--deliver-at", type=FUTURE_TIME, help="Time at which it is due.")
@click.option("--group", help="Group, whose messages are in order.")
@click.option("--once", metavar="KEY", help="Idempotency key within onceWindow.")
@click.option("--timeout", type=DURATION, help="Maximum time of a put. Default: see below.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Attribute. Repeatable.")
@click.option("--quiet", is_flag=True, help="No ids on standard output.")
@output_option
def command(*, queue: str, output: Output, **options: Any) -> None:
    """Put a message into a queue, print its id.

    The message is PAYLOAD, a file (-f), or standard input. JSON is marked as such. With --count, {n} in the payload
    and in the key is the number of the message, from 1.

    Without --timeout, a message that cannot be sent is tried for 10s, and one without an answer for another 10s.
    """
    if options["delay"] is not None and options["deliver_at"] is not None:
        raise InvalidRequest("--delay and --deliver-at exclude each other", remedy="give one of them")
    if options["payload"] is not None and (options["lines"] or options["named"]):
        raise InvalidRequest(
            "A payload is an argument, or comes from a file", remedy="omit PAYLOAD, or --lines and -f"
        )
    is_stream = options["count"] > 1 or options["lines"] or len(options["named"]) > 1
    total = None if options["lines"] else options["count"] * max(1, len(options["named"]))
    is_bar_hidden = not is_stream or (sys.stdout.isatty() and not options["quiet"])
    with show_progress("put", total, quiet=is_bar_hidden) as progress:
        count = run_on_queue(queue, lambda opened: _put_all(opened, options, output, progress))
    if is_stream:
        click.echo(f"put {count}", err=True)


async def _put_all(queue: Queue, options: dict[str, Any], output: Output, progress: Progress) -> int:
    attributes = dict(_attribute(each) for each in options["attributes"])
    pause_s = 0.0 if options["rate"] is None else 1 / options["rate"]
    at_once = AT_ONCE if not pause_s else max(1, round(options["rate"] / STEPS_PER_S))
    loop = asyncio.get_running_loop()
    began_s, count = loop.time(), 0
    waiting: list[Put] = []

    async def flush() -> None:
        nonlocal count
        ids = await queue.put_many(waiting, timeout=options["timeout"])
        for number, id_ in enumerate(ids, start=count + 1):
            if not options["quiet"]:
                _show(id_, number, output)
        count += len(ids)
        progress.advance(len(ids))
        waiting.clear()
        await asyncio.sleep(max(0.0, began_s + count * pause_s - loop.time()))

    for number, text in _texts(options):
        waiting.append(_message(text, number, options, attributes))
        if len(waiting) >= at_once:
            await flush()
    if waiting:
        await flush()
    return count


def _show(id_: str, number: int, output: Output) -> None:
    output.show_item({"id": id_, "number": number}, table=lambda: [id_], name=id_)


def _texts(options: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """The payloads, numbered from 1."""
    if options["lines"]:
        lines = (line for path in options["named"] or (Path("-"),) for line in _lines(path))
        yield from enumerate(lines, start=1)
        return
    if options["payload"] is not None:
        payloads = [options["payload"]]
    else:
        payloads = ["".join(_lines(path, keep_ends=True)) for path in options["named"] or (Path("-"),)]
    number = 0
    for payload in payloads:
        for _ in range(options["count"]):
            number += 1
            yield number, payload.replace("{n}", str(number)) if options["count"] > 1 else payload


def _lines(path: Path, *, keep_ends: bool = False) -> Iterator[str]:
    try:
        with click.open_file(str(path), encoding="utf-8") as file:
            for line in file:
                yield line if keep_ends else line.rstrip("\n")
    except FileNotFoundError:
        raise InvalidRequest("The file does not exist", file=path, remedy="check its path") from None
    except OSError as error:
        raise EnvironmentProblem("The file cannot be read", file=path, reason=error.strerror) from None


def _message(text: str, number: int, options: dict[str, Any], attributes: dict[str, str]) -> Put:
    delay: timedelta | None = options["delay"]
    deliver_at: datetime | None = options["deliver_at"]
    once = options["once"]
    content_type = {} if CONTENT_TYPE in attributes or not _is_json(text) else {CONTENT_TYPE: JSON}
    return Put(
        text,
        delay=delay,
        deliver_at=deliver_at,
        group=options["group"],
        once=None if once is None else once.replace("{n}", str(number)),
        attributes={**attributes, **content_type},
    )


def _is_json(text: str) -> bool:
    if text[:1] not in '{["':
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest("An attribute is written NAME=VALUE", given=text)
    return name, value
