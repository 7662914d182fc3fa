"""Commands on single messages: put, receive, peek, locate and cancel."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from headgate.cli.documents import location_document, peeked_document, reason_of, received_document
from headgate.cli.terminal.progress import show_progress
from headgate.client.message import Message
from headgate.client.model.outgoing import Put
from headgate.client.model.payloads import CONTENT_TYPE
from headgate.client.model.times import age, format_time
from headgate.client.queue import LIMIT_MAX, Queue
from headgate.command_line.arguments import (
    DURATION,
    FUTURE_TIME,
    RATE,
    define_command,
    filename_option,
    limit_option,
    queue_argument,
    since_option,
)
from headgate.command_line.connection import run_on_queue
from headgate.command_line.exit_codes import ExitCode, exit_code_for
from headgate.command_line.output import Output, format_payload, format_table, output_option
from headgate.engines.contract import MessageLocation, MessageState, NackDelivery, Peeked, Settle
from headgate.errors import EnvironmentProblem, InvalidRequest

PUT_AT_ONCE = 500
PUT_STEPS_PER_S = 20
RECEIVED_AT_ONCE = 100
REASON_CHARACTERS = 120
PAYLOAD_CHARACTERS = 60
JSON = "application/json"


# ---- put


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
def put(*, queue: str, output: Output, **options: Any) -> None:
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
        count = run_on_queue(queue, lambda opened: _put_all(opened, options, output, progress.advance))
    if is_stream:
        click.echo(f"put {count}", err=True)


async def _put_all(queue: Queue, options: dict[str, Any], output: Output, advance: Callable[[int], None]) -> int:
    attributes = dict(_parse_attribute(each) for each in options["attributes"])
    pause_s = 0.0 if options["rate"] is None else 1 / options["rate"]
    at_once = PUT_AT_ONCE if not pause_s else max(1, round(options["rate"] / PUT_STEPS_PER_S))
    loop = asyncio.get_running_loop()
    began_s, count = loop.time(), 0
    waiting: list[Put] = []

    async def flush() -> None:
        nonlocal count
        ids = await queue.put_many(waiting, timeout=options["timeout"])
        for number, id_ in enumerate(ids, start=count + 1):
            if not options["quiet"]:
                output.show_item({"id": id_, "number": number}, line=id_, name=id_)
        count += len(ids)
        advance(len(ids))
        waiting.clear()
        await asyncio.sleep(max(0.0, began_s + count * pause_s - loop.time()))

    for number, text in enumerate(_texts(options), start=1):
        waiting.append(_message(text, number, options, attributes))
        if len(waiting) >= at_once:
            await flush()
    if waiting:
        await flush()
    return count


def _texts(options: dict[str, Any]) -> Iterator[str]:
    """The payloads, in which {n} is not replaced yet."""
    files = options["named"] or (Path("-"),)
    if options["lines"]:
        yield from (line.rstrip("\n") for path in files for line in _lines(path))
        return
    given = options["payload"]
    for payload in [given] if given is not None else ["".join(_lines(path)) for path in files]:
        for _ in range(options["count"]):
            yield payload


def _lines(path: Path) -> Iterator[str]:
    try:
        with click.open_file(str(path), encoding="utf-8") as file:
            yield from file
    except FileNotFoundError:
        raise InvalidRequest("The file does not exist", file=path, remedy="check its path") from None
    except OSError as error:
        raise EnvironmentProblem("The file cannot be read", file=path, reason=error.strerror) from None


def _message(text: str, number: int, options: dict[str, Any], attributes: dict[str, str]) -> Put:
    if options["count"] > 1 and not options["lines"]:
        text = text.replace("{n}", str(number))
    once = options["once"]
    return Put(
        text,
        delay=options["delay"],
        deliver_at=options["deliver_at"],
        group=options["group"],
        once=None if once is None else once.replace("{n}", str(number)),
        attributes=attributes
        if CONTENT_TYPE in attributes or not _is_json(text)
        else {**attributes, CONTENT_TYPE: JSON},
    )


def _parse_attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest("An attribute is written NAME=VALUE", given=text)
    return name, value


def _is_json(text: str) -> bool:
    if text[:1] not in '{["':
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# ---- receive


@define_command("receive")
@queue_argument
@limit_option()
@click.option("--follow", is_flag=True, help="Continue until interrupted.")
@click.option("--wait", type=DURATION, default="10s", show_default=True, help="Time to wait for the first.")
@click.option("--ack", is_flag=True, help="Ack the messages. Default: return them.")
@output_option
def receive(*, queue: str, output: Output, **options: Any) -> None:
    """Receive messages and show them.

    WARNING: while it runs, this process takes lanes from the workers of the queue. Use `headgate peek` to read
    messages without that.

    Without --ack the messages are returned at the end, and the delivery does not count.
    """
    run_on_queue(queue, lambda opened: _receive(opened, options, output))


async def _receive(queue: Queue, options: dict[str, Any], output: Output) -> None:
    wait: timedelta = options["wait"]
    left = options["limit"]
    unsettled: list[Message] = []
    try:
        while left > 0 or options["follow"]:
            limit = RECEIVED_AT_ONCE if options["follow"] else min(left, RECEIVED_AT_ONCE)
            messages = await queue.receive(limit, wait=wait)
            if not messages and not options["follow"]:
                break
            left -= len(messages)
            for message in messages:
                line = _format_received(message, queue.now_us())
                output.show_item(received_document(message), line=line, name=message.id)
            if options["ack"]:
                await queue.ack(messages)
            else:
                unsettled += messages
    finally:
        if unsettled:
            settles: list[Settle] = [NackDelivery(message.receipt, charged=False) for message in unsettled]
            await asyncio.shield(queue.settle(settles))


def _format_received(message: Message, now_us: int) -> str:
    group = f" group={message.group}" if message.group else ""
    attempt = f" attempt={message.attempt}" if message.attempt > 1 else ""
    return f"{message.id} {age(now_us - message.delivery.due_us)}{group}{attempt} {format_payload(message.payload)}"


# ---- peek


@define_command("peek")
@queue_argument
@limit_option(maximum=LIMIT_MAX)
@since_option
@output_option
def peek(*, queue: str, limit: int, since: datetime | None, output: Output) -> None:
    """Show messages without taking them.

    They are in the order in which they are due; delayed messages are among them. The table shows the end of a
    payload's reason; `-o json` shows payloads and reasons in full.
    """

    async def read(opened: Queue) -> tuple[list[Peeked], int]:
        return await opened.read_peeked(limit, since=since), opened.now_us()

    messages, now_us = run_on_queue(queue, read)
    output.show(
        [peeked_document(each) for each in messages],
        table=lambda: format_peeked(messages, now_us) if messages else ["no messages"],
        names=[each.message_id for each in messages],
    )


def format_peeked(messages: Sequence[Peeked], now_us: int) -> list[str]:
    """A line per message; dead letters have the last line of their reason, where the error is."""
    heads = ("id", "state", "due since", "attempts", "group", "payload")
    reasons = [reason_of(each) for each in messages]
    has_reasons = any(reasons)
    rows = [
        (
            each.message_id,
            each.standing.value,
            age(now_us - each.due_us),
            each.attempt,
            each.group or "-",
            format_payload(each.payload, PAYLOAD_CHARACTERS),
            *([reason.splitlines()[-1][:REASON_CHARACTERS] if reason else "-"] if has_reasons else []),
        )
        for each, reason in zip(messages, reasons, strict=True)
    ]
    return format_table((*heads, "reason") if has_reasons else heads, rows)


# ---- locate, cancel


@define_command("locate")
@queue_argument
@click.argument("message_id", metavar="ID")
@output_option
def locate(queue: str, message_id: str, output: Output) -> None:
    """Show the state and place of a message.

    Exit code 3 if the queue has no such message.
    """
    location = run_on_queue(queue, lambda opened: opened.read_location(message_id))
    exists = location.fate is not MessageState.NOT_FOUND
    names = [message_id] if exists else []
    output.show(location_document(location), table=lambda: _format_location(location), names=names)
    if not exists:
        raise SystemExit(ExitCode.NOT_FOUND)


def _format_location(location: MessageLocation) -> list[str]:
    lines = [location.fate.value]
    if location.due_us:
        lines.append(f"due {format_time(location.due_us)}")
    if location.attempt:
        lines.append(f"received {location.attempt} times, as far as recorded")
    if location.hidden_until_us:
        lines.append(f"hidden until {format_time(location.hidden_until_us)}")
    for number, place in enumerate(location.places):
        lines.append(f"{'first place' if number == 0 else 'later place'} {place}")
    return lines


@define_command("cancel")
@queue_argument
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@output_option
def cancel(queue: str, message_ids: tuple[str, ...], output: Output) -> None:
    """Cancel delayed messages before they are due.

    Exit code 1 if it was too late for all of them, 4 if it was too late for some.
    """

    async def cancel_all(opened: Queue) -> int:
        count = 0
        for id_ in message_ids:
            is_cancelled = await opened.cancel(id_)
            count += is_cancelled
            line = f"{id_} {'cancelled' if is_cancelled else 'too late'}"
            output.show_item({"id": id_, "cancelled": is_cancelled}, line=line, name=id_)
        return count

    count = run_on_queue(queue, cancel_all)
    if count < len(message_ids):
        raise SystemExit(exit_code_for(count, len(message_ids) - count))
