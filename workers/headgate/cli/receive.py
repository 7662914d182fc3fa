"""`headgate receive`: takes messages out of a queue and shows them."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any

import click

from headgate.cli.queues import SPAN, connection_options, on_queue, queue_option
from headgate.cli.showing import age, payload_line
from headgate.client.message import Message
from headgate.client.queue import Queue
from headgate.engines.contract import Nack, Settle

AT_ONCE = 100


@click.command("receive")
@queue_option
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="At most so many.")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@click.option("--wait", type=SPAN, default="10s", show_default=True, help="Wait so long for the first.")
@click.option("--ack", is_flag=True, help="Settle them. Else they are given back, and come again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, whole.")
@connection_options
def command(**options: Any) -> None:
    """Receive messages and show them.

    Without --ack they are given back at the end, uncounted: a look, but one for which this process takes part in the
    queue's lanes. `headgate peek` looks without taking.
    """
    on_queue(options, lambda queue: _receive(queue, options))


async def _receive(queue: Queue, options: dict[str, Any]) -> None:
    wait: timedelta = options["wait"]
    left = options["limit"]
    open_: list[Message] = []
    try:
        while left > 0 or options["follow"]:
            found = await queue.receive(AT_ONCE if options["follow"] else min(left, AT_ONCE), wait=wait)
            if not found and not options["follow"]:
                break
            left -= len(found)
            for message in found:
                click.echo(_json_line(message) if options["as_json"] else _line(message, queue.now_us()))
            if options["ack"]:
                await queue.ack(found)
            else:
                open_ += found
    finally:
        if open_:
            back: list[Settle] = [Nack(message.receipt, charged=False) for message in open_]
            await asyncio.shield(queue.settle(back))


def _line(message: Message, now_us: int) -> str:
    group = f" group={message.group}" if message.group else ""
    attempt = f" attempt={message.attempt}" if message.attempt > 1 else ""
    return f"{message.id} {age(now_us - message.delivery.due_us)}{group}{attempt} {payload_line(message.payload)}"


def _json_line(message: Message) -> str:
    told: dict[str, Any] = {
        "id": message.id,
        "attempt": message.attempt,
        "due": message.due.isoformat(),
        "put": message.put_at.isoformat(),
        "fencing_token": message.fencing_token,
        "group": message.group,
        "attributes": {
            name: value if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
            for name, value in message.attributes.items()
        },
    }
    try:
        told["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        told["payload_base64"] = base64.b64encode(message.payload).decode()
    return json.dumps(told, ensure_ascii=False)
