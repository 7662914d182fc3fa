"""`headgate send`: puts messages into a queue, one or a stream of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import click

from headgate.cli.queues import MOMENT, SPAN, connection_options, on_queue, queue_option
from headgate.client.outgoing import Put
from headgate.client.payloads import CONTENT_TYPE
from headgate.client.queue import Queue
from headgate.errors import SpecError

AT_ONCE = 500
JSON = "application/json"


@click.command("send")
@queue_option
@click.argument("payload", required=False)
@click.option(
    "--count", type=click.IntRange(1), default=1, show_default=True, help="So many; {n} in the payload is its number."
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="So many a second. Unset: as fast as it goes."
)
@click.option("--lines", is_flag=True, help="Send each line of standard input, instead of PAYLOAD.")
@click.option("--delay", type=SPAN, help="Deliver it so much later.")
@click.option("--deliver-at", type=MOMENT, help="Deliver it at this moment, as 2030-01-31T09:00:00+01:00.")
@click.option("--group", help="Messages of one group come one after the other.")
@click.option("--once", help="The same key makes one message within onceWindow; {n} is the number.")
@click.option(
    "--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Beside the payload; repeatable."
)
@click.option("--quiet", is_flag=True, help="Do not print the ids.")
@connection_options
def command(**options: Any) -> None:
    """Put PAYLOAD into a queue, and print its id.

    A payload that is JSON is marked as such. Without PAYLOAD it is read from standard input.
    """
    if options["delay"] is not None and options["deliver_at"] is not None:
        raise SpecError("--delay and --deliver-at say the same thing twice", remedy="give one of them")
    if options["lines"] and options["payload"] is not None:
        raise SpecError("--lines reads the payloads from standard input", remedy="leave PAYLOAD out")
    sent = on_queue(options, lambda queue: _send(queue, options))
    if options["count"] > 1 or options["lines"]:
        click.echo(f"sent {sent}", err=True)


async def _send(queue: Queue, options: dict[str, Any]) -> int:
    attributes = dict(_attribute(each) for each in options["attributes"])
    pause_s = 0.0 if options["rate"] is None else 1 / options["rate"]
    at_once = AT_ONCE if not pause_s else max(1, round(options["rate"] / 20))
    loop = asyncio.get_running_loop()
    began_s, sent = loop.time(), 0
    waiting: list[Put] = []

    async def flush() -> None:
        nonlocal sent
        ids = await queue.put_many(waiting)
        sent += len(ids)
        waiting.clear()
        if not options["quiet"]:
            click.echo("\n".join(ids))
        await asyncio.sleep(max(0.0, began_s + sent * pause_s - loop.time()))

    async for number, text in _texts(options):
        waiting.append(_put(text, number, options, attributes))
        if len(waiting) >= at_once:
            await flush()
    if waiting:
        await flush()
    return sent


async def _texts(options: dict[str, Any]) -> AsyncIterator[tuple[int, str]]:
    if options["lines"]:
        for number, line in enumerate(sys.stdin, start=1):
            yield number, line.rstrip("\n")
        return
    payload = options["payload"] if options["payload"] is not None else sys.stdin.read()
    for number in range(1, options["count"] + 1):
        yield number, payload.replace("{n}", str(number)) if options["count"] > 1 else payload


def _put(text: str, number: int, options: dict[str, Any], attributes: dict[str, str]) -> Put:
    delay: timedelta | None = options["delay"]
    deliver_at: datetime | None = options["deliver_at"]
    once = options["once"]
    form = {} if CONTENT_TYPE in attributes or not _is_json(text) else {CONTENT_TYPE: JSON}
    return Put(
        text,
        delay=delay,
        deliver_at=deliver_at,
        group=options["group"],
        once=None if once is None else once.replace("{n}", str(number)),
        attributes={**attributes, **form},
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
    name, found, value = text.partition("=")
    if not found or not name:
        raise SpecError("an attribute is written NAME=VALUE", given=text)
    return name, value
