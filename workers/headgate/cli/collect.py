"""`headgate gc`: one pass of the collector over a counter, or over all counters of a namespace with a schedule."""

from __future__ import annotations

import click

from headgate.command_line.arguments import NAME_METAVAR, complete_counter, define_command, namespace_option
from headgate.command_line.output import Output, output_option
from headgate.command_line.passes import PassTarget, run_passes, schedule_option


@define_command("gc")
@click.argument("counter", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_counter)
@namespace_option
@schedule_option
@output_option
def command(counter: str | None, namespace: str | None, schedule: str | None, output: Output) -> None:
    """Compact a counter, or those of a namespace.

    Shards of counters that have ended are merged into tallies, so that reads stay fast. No value changes. It is
    harmless to run it twice, also at the same time; an interrupted pass is resumed. Keys for which a replica does
    not answer are skipped and counted, and the next pass tries them again.

    Exit code 1 if a counter could not be compacted (gc.after is not above a node's hint window, or a full pass is
    overdue), 4 if some could not.
    """
    from headgate.maintenance.collection_pass import collect_counter, scheduled_counters

    run_passes(PassTarget("gc", "counter", counter, namespace, schedule), output, collect_counter, scheduled_counters)
