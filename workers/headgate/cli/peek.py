"""`headgate peek`: looks at messages without taking them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from headgate.cli.queues import MOMENT, connection_options, on_queue, queue_option
from headgate.cli.showing import age, payload_line, table
from headgate.client.queue import LIMIT_MAX, Queue
from headgate.client.redriving import DIED_OF
from headgate.engines.contract import Peeked

REASON_CHARACTERS = 120


@click.command("peek")
@queue_option
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=10, show_default=True, help="At most so many.")
@click.option("--since", type=MOMENT, help="From this moment on. Unset: from the oldest that is not settled.")
@connection_options
def command(**options: Any) -> None:
    """Show live messages by the moment they are due, without taking them; also those due later."""
    for line in on_queue(options, lambda queue: _peek(queue, options)):
        click.echo(line)


async def _peek(queue: Queue, options: dict[str, Any]) -> list[str]:
    found = await queue.read_peeked(options["limit"], since=options["since"])
    now_us = queue.now_us()
    if not found:
        return ["nothing waits"]
    return shown(found, now_us)


def shown(found: Sequence[Peeked], now_us: int) -> list[str]:
    """A line a message; of dead letters with the end of what they died of, where the error itself stands."""
    heads = ("id", "standing", "due since", "attempts", "group", "payload")
    reasons = [str(each.attributes.get(DIED_OF, "")).strip() for each in found]
    rows = [
        (
            each.message_id,
            each.standing.value,
            age(now_us - each.due_us),
            each.attempt,
            each.group or "-",
            payload_line(each.payload, 60),
            *([reason.splitlines()[-1][:REASON_CHARACTERS] if reason else "-"] if any(reasons) else []),
        )
        for each, reason in zip(found, reasons, strict=True)
    ]
    return table((*heads, "died of") if any(reasons) else heads, rows)
