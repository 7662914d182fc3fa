"""`headgate apply FILE...`: keyspace, tables and catalogue of Queues and Counters, where no Kubernetes does it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from headgate.api.read.loader import load_files
from headgate.api.read.parse import Resource
from headgate.applying.apply import Applied
from headgate.applying.call import OWNER, checked_owner, open_applier
from headgate.cli.documents import applied_document
from headgate.cli.terminal.progress import show_progress
from headgate.command_line.arguments import define_command, files_of, files_option
from headgate.command_line.connection import read_environment
from headgate.command_line.exit_codes import ExitCode, exit_code_for
from headgate.command_line.output import Output, format_resource, output_option
from headgate.errors import InvalidRequest
from headgate.store.cassandra.settings import ConnectionSettings, read_settings
from headgate.store.model.drift import Drift
from headgate.store.schema import SchemaRightsMissing


@define_command("apply")
@files_option
@click.option(
    "--as",
    "owner",
    default=OWNER,
    envvar="HEADGATE_OWNER",
    show_default=True,
    metavar="NAME",
    help="Manager of the resources. [HEADGATE_OWNER]",
)
@click.option("--adopt", is_flag=True, help="Take over resources of another manager.")
@click.option("--dry-run", is_flag=True, help="Print the missing CQL. Change nothing.")
@output_option
def apply(owner: str, *, adopt: bool, dry_run: bool, output: Output, **options: tuple[Path, ...]) -> None:
    """Create Queues and Counters of files.

    FILES are YAML; - is standard input. The keyspace, the tables and the catalogue entries are created where they
    are missing. One line per resource: created, updated, unchanged or refused. A second run completes an interrupted
    one. An existing keyspace is never altered, and nothing is ever dropped.

    Only the manager (--as) that created a resource may change it. --adopt also takes over what was retained when its
    resource was deleted in Kubernetes. Exit code 2 if every resource was refused, 4 if some were, and 1 if a table
    differs from its declaration in a way that only a person can fix.
    """
    files = files_of(options)
    resources = load_files(files)
    if not resources:
        raise InvalidRequest("The files have no Queue and no Counter", files=", ".join(map(str, files)))
    settings = read_settings(read_environment())
    applying = _apply(
        resources, settings, checked_owner(owner, label="--as"), output, adopting=adopt, dry_run=dry_run
    )
    try:
        results = asyncio.run(applying)
    except SchemaRightsMissing as refused:
        click.echo("\n".join(f"{statement};" for statement in refused.cql), err=not output.is_table)
        raise
    refused_count = sum(result.refused for result in results)
    if refused_count:
        raise SystemExit(exit_code_for(len(results) - refused_count, refused_count, if_none=ExitCode.INVALID))
    if any(result.unmended for result in results):
        raise SystemExit(ExitCode.FAILED)


async def _apply(
    resources: Sequence[Resource],
    settings: ConnectionSettings,
    owner: str,
    output: Output,
    *,
    adopting: bool,
    dry_run: bool,
) -> list[Applied]:
    async with open_applier(resources, settings, owner, adopting=adopting) as (applier, patiently):
        if dry_run:
            cql = list(await patiently(partial(applier.print_plan, resources)))
            output.show({"cql": cql}, table=lambda: cql, names=[])
            return []
        _print_drifts("the catalogue", (await applier.prepare()).drifts)
        results: list[Applied] = []
        with show_progress("apply", len(resources), quiet=sys.stdout.isatty()) as progress:
            for resource in resources:
                results.append(await patiently(partial(applier.apply_one, resource)))
                progress.advance()
                _show(results[-1], output)
        return results


def _show(result: Applied, output: Output) -> None:
    """One line; a refusal goes to standard error, one line per reason."""
    name = result.name
    line = None if result.refused else f"{name} {result.outcome}{_facts(result)}"
    if not (result.refused and output.form in ("table", "name")):
        names = format_resource(name.kind, name.namespace, name.name)
        output.show_item(applied_document(result), line=line, name=names)
    if result.refused:
        for note in result.notes:
            click.echo(f"{name} refused: {note}", err=True)
        return
    _print_drifts(str(name), result.drifts)


def _facts(result: Applied) -> str:
    entry = result.entry
    if entry is None:
        return ""
    facts = [f"id {entry.id}"]
    announced = entry.generations.next
    if announced is not None:
        facts.append(
            f"{entry.generations.current.shards} shards, {announced.shards} from generation {announced.number} on"
        )
    return f" ({'; '.join([*facts, *result.notes])})"


def _print_drifts(label: str, drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        click.echo(f"{label}: drift: {drift}", err=True)
