"""`headgate receive`: takes messages out of a queue and shows them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import click

from headgate.cli.documents import received_document
from headgate.client.message import Message
from headgate.client.model.times import age
from headgate.client.queue import Queue
from headgate.command_line.arguments import DURATION, define_command, limit_option, queue_argument
from headgate.command_line.connection import run_on_queue
from headgate.command_line.output import Output, output_option
from headgate.command_line.showing import payload_line
from headgate.engines.contract import NackDelivery, Settle

AT_ONCE = 100


@define_command("receive")
@queue_argument
@limit_option()
@click.option("--follow", is_flag=True, help="Continue until interrupted.")
@click.option("--wait", type=DURATION, default="10s", show_default=True, help="Time to wait for the first.")
@click.option("--ack", is_flag=True, help="Ack the messages. Default: return them.")
@output_option
def command(*, queue: str, output: Output, **options: Any) -> None:
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
            messages = await queue.receive(AT_ONCE if options["follow"] else min(left, AT_ONCE), wait=wait)
            if not messages and not options["follow"]:
                break
            left -= len(messages)
            for message in messages:
                _show(message, queue.now_us(), output)
            if options["ack"]:
                await queue.ack(messages)
            else:
                unsettled += messages
    finally:
        if unsettled:
            settles: list[Settle] = [NackDelivery(message.receipt, charged=False) for message in unsettled]
            await asyncio.shield(queue.settle(settles))


def _show(message: Message, now_us: int, output: Output) -> None:
    output.show_item(received_document(message), table=lambda: [_line(message, now_us)], name=message.id)


def _line(message: Message, now_us: int) -> str:
    group = f" group={message.group}" if message.group else ""
    attempt = f" attempt={message.attempt}" if message.attempt > 1 else ""
    return f"{message.id} {age(now_us - message.delivery.due_us)}{group}{attempt} {payload_line(message.payload)}"
