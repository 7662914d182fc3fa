"""`headgate redrive`: moves dead letters back into their source queues."""

from __future__ import annotations

from collections import Counter

import click

from headgate.cli.documents import redriven_document
from headgate.cli.terminal.progress import show_progress
from headgate.client.message import Received
from headgate.client.queue import Queue
from headgate.client.redriving import DEATH_REASON, RedriveResult, SkipReason
from headgate.command_line.arguments import define_command, limit_option, queue_argument, target_option
from headgate.command_line.connection import run_on_queue
from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.output import Output, output_option


@define_command("redrive")
@queue_argument
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message. Repeatable.")
@click.option("--reason", metavar="TEXT", help="Only messages with TEXT in their reason.")
@target_option
@limit_option(default=None)
@output_option
def command(
    *, queue: str, ids: tuple[str, ...], reason: str | None, to: str | None, limit: int | None, output: Output
) -> None:
    """Move dead letters back to their source.

    NAMESPACE/NAME is the dead-letter queue. Each message is moved once, also if the command is interrupted and
    started again. A message without a source queue stays, unless --to names a target. `-o name` prints the ids of
    messages that stay. Exit code 3 if none of the ids is in the queue, 4 if some messages stay.
    """

    async def redrive(opened: Queue) -> RedriveResult:
        total = len(ids) or (None if reason else await _count(opened, limit))
        with show_progress("redrive", total) as progress:
            return await opened.redrive(
                ids=ids or None,
                matching=None if reason is None else lambda message: has_reason(message, reason),
                to=to,
                limit=limit,
                on_moved=progress.advance,
            )

    result = run_on_queue(queue, redrive)
    output.show(
        redriven_document(queue, result),
        table=lambda: format_lines(result),
        names=[each.message_id for each in result.skipped],
    )
    if result.skipped or not result.complete:
        raise SystemExit(_exit_code(result))


async def _count(queue: Queue, limit: int | None) -> int:
    stats = await queue.read_stats()
    waiting = stats.backlog + stats.in_flight
    return waiting if limit is None else min(limit, waiting)


def has_reason(message: Received, text: str) -> bool:
    """Whether the reason of a dead letter contains a text, in any case."""
    return text.casefold() in str(message.attributes.get(DEATH_REASON, "")).casefold()


def format_lines(result: RedriveResult) -> list[str]:
    """The number of messages moved, and of those that stay by their reason."""
    lines = [f"moved {result.moved}"]
    for reason, count in Counter(each.reason for each in result.skipped).items():
        lines.append(f"skipped {count}: {reason.value}")
    if not result.complete:
        lines.append("stopped: too many messages stay; run it again, or redrive by --id")
    return lines


def _exit_code(result: RedriveResult) -> ExitCode:
    if result.moved:
        return ExitCode.PARTLY_DONE
    is_absent = all(each.reason is SkipReason.NOT_FOUND for each in result.skipped)
    return ExitCode.NOT_FOUND if result.skipped and is_absent else ExitCode.PARTLY_DONE
