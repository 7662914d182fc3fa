"""`headgate queues`: the names of all queues."""

from __future__ import annotations

from headgate.command_line.arguments import define_command, namespace_option
from headgate.command_line.connection import run_connected
from headgate.command_line.output import Output, output_option


@define_command("queues")
@namespace_option
@output_option
def command(namespace: str | None, output: Output) -> None:
    """List queues."""
    names = sorted(run_connected(lambda connection: connection.queues(namespace)))
    output.show([{"name": name} for name in names], table=lambda: names or ["no queues"], names=names)
