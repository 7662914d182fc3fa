"""`headgate repair` and `headgate gc`: one pass over a queue or a counter, or over those of a namespace with a
schedule.
"""

from __future__ import annotations

import click

from headgate.command_line.arguments import (
    NAME_METAVAR,
    complete_counter,
    complete_queue,
    define_command,
    namespace_option,
)
from headgate.command_line.output import Output, output_option
from headgate.command_line.passes import PassTarget, run_passes, schedule_option
from headgate.maintenance.passes import collect_counter, repair_queue, scheduled_counters, scheduled_queues


@define_command("repair")
@click.argument("queue", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_queue)
@namespace_option
@schedule_option
@output_option
def repair(queue: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Repair a queue, or those of a namespace.

    Repair finds messages that were written late and delivers them, and completes changes of the number of shards.
    It is harmless to run it twice: one process at a time repairs a queue. With --namespace, a queue that fails does
    not stop the others. Exit code 1 if all failed, 4 if some did.
    """
    run_passes(PassTarget("repair", "queue", queue, namespace, schedule), output, repair_queue, scheduled_queues)


@define_command("gc")
@click.argument("counter", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_counter)
@namespace_option
@schedule_option
@output_option
def collect(counter: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Compact a counter, or those of a namespace.

    Shards of counters that have ended are merged into tallies, so that reads stay fast. No value changes. It is
    harmless to run it twice, also at the same time; an interrupted pass is resumed. Keys for which a replica does
    not answer are skipped and counted, and the next pass tries them again.

    Exit code 1 if a counter could not be compacted (gc.after is not above a node's hint window, or a full pass is
    overdue), 4 if some could not.
    """
    run_passes(PassTarget("gc", "counter", counter, namespace, schedule), output, collect_counter, scheduled_counters)
