"""`headgate peek`: shows messages without taking them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headgate.cli.documents import peeked_document, reason_of
from headgate.client.model.times import age
from headgate.client.queue import LIMIT_MAX, Queue
from headgate.command_line.arguments import define_command, limit_option, queue_argument, since_option
from headgate.command_line.connection import run_on_queue
from headgate.command_line.output import Output, output_option
from headgate.command_line.showing import payload_line, table
from headgate.engines.contract import Peeked

REASON_CHARACTERS = 120
PAYLOAD_CHARACTERS = 60
EMPTY = "no messages"


@define_command("peek")
@queue_argument
@limit_option(maximum=LIMIT_MAX)
@since_option
@output_option
def command(*, queue: str, limit: int, since: datetime | None, output: Output) -> None:
    """Show messages without taking them.

    They are in the order in which they are due; delayed messages are among them. The table shows the end of a
    payload's reason; `-o json` shows payloads and reasons in full.
    """

    async def peek(opened: Queue) -> tuple[list[Peeked], int]:
        return await opened.read_peeked(limit, since=since), opened.now_us()

    messages, now_us = run_on_queue(queue, peek)
    output.show(
        [peeked_document(each) for each in messages],
        table=lambda: format_table(messages, now_us) if messages else [EMPTY],
        names=[each.message_id for each in messages],
    )


def format_table(messages: Sequence[Peeked], now_us: int) -> list[str]:
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
            payload_line(each.payload, PAYLOAD_CHARACTERS),
            *([reason.splitlines()[-1][:REASON_CHARACTERS] if reason else "-"] if has_reasons else []),
        )
        for each, reason in zip(messages, reasons, strict=True)
    ]
    return table((*heads, "reason") if has_reasons else heads, rows)
