"""`headgate repair`: one pass of repair over a queue, or over all queues of a namespace with a schedule."""

from __future__ import annotations

import click

from headgate.command_line.arguments import NAME_METAVAR, complete_queue, define_command, namespace_option
from headgate.command_line.output import Output, output_option
from headgate.command_line.passes import PassTarget, run_passes, schedule_option


@define_command("repair")
@click.argument("queue", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_queue)
@namespace_option
@schedule_option
@output_option
def command(queue: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Repair a queue, or those of a namespace.

    Repair finds messages that were written late and delivers them, and completes changes of the number of shards.
    It is harmless to run it twice: one process at a time repairs a queue. With --namespace, a queue that fails does
    not stop the others. Exit code 1 if all failed, 4 if some did.
    """
    from headgate.maintenance.repair_pass import repair_queue, scheduled_queues

    run_passes(PassTarget("repair", "queue", queue, namespace, schedule), output, repair_queue, scheduled_queues)
