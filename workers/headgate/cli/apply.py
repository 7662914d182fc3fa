"""`headgate apply FILE...`: keyspace, tables and catalogue of Queues and Counters, where no Kubernetes does it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.api.loader import load_files
from headgate.api.parse import Resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.wanted import Surroundings
from headgate.cli.connection import connection_options, environment_with
from headgate.errors import SpecError
from headgate.store.cassandra import CassandraStore
from headgate.store.cassandra_schema import CassandraSchema
from headgate.store.cassandra_settings import ConnectionSettings, read_settings
from headgate.store.cassandra_times import CassandraTimes
from headgate.store.catalogue import Catalogue
from headgate.store.clock import Bounds
from headgate.store.clocks import Clock, ClockNotTrusted
from headgate.store.drift import Drift
from headgate.store.schema import SchemaRightsMissing

OWNER = "headgate"
OWNER_LENGTH_MAX = 63
EXIT_REFUSED = 2
EXIT_DRIFTED = 1
CLOCK_TRIES = 10
CLOCK_WITHIN_S = 10.0

T = TypeVar("T")


@click.command("apply")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--as",
    "owner",
    default=OWNER,
    envvar="HEADGATE_OWNER",
    show_default=True,
    metavar="NAME",
    help="Who manages these resources: only the same name changes them again. [HEADGATE_OWNER]",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Take over what another name manages, or what was kept when its resource was deleted in Kubernetes.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the CQL of what is missing, and change nothing.")
@connection_options
def command(files: tuple[Path, ...], owner: str, *, adopt: bool, only_print: bool, **options: Any) -> None:
    """Make in Cassandra what the Queues and Counters of FILES need: keyspace, tables, and their catalogue entries.

    One line a resource: created, updated, unchanged or refused. Applying again does what is left to do. An existing
    keyspace is never altered, and nothing is ever dropped. Exit code 2 if a resource was refused, 1 if a table is not
    as it should be and only a person can mend that.
    """
    resources = load_files(files)
    if not resources:
        raise SpecError("no Queue and no Counter in there", files=", ".join(map(str, files)))
    settings = read_settings(environment_with(options))
    applying = _apply(resources, settings, _checked_owner(owner), adopting=adopt, only_print=only_print)
    try:
        results = asyncio.run(applying)
    except SchemaRightsMissing as refused:
        click.echo("\n".join(f"{statement};" for statement in refused.cql))
        raise
    if any(result.refused for result in results):
        raise SystemExit(EXIT_REFUSED)
    if any(result.unmended for result in results):
        raise SystemExit(EXIT_DRIFTED)


def _checked_owner(owner: str) -> str:
    if not owner.isprintable() or not 0 < len(owner) <= OWNER_LENGTH_MAX or any(sign in owner for sign in " /"):
        raise SpecError("--as is a name without blanks and slashes", given=repr(owner), length_max=OWNER_LENGTH_MAX)
    return f"cli/{owner}"


async def _apply(
    resources: Sequence[Resource], settings: ConnectionSettings, owner: str, *, adopting: bool, only_print: bool
) -> list[Applied]:
    store = await CassandraStore.connect(settings, must_exist=False)
    try:
        schema = CassandraSchema(store)
        surroundings = Surroundings(settings.keyspace, store.data_center, await schema.nodes_in(store.data_center))
        skew_us = min(resource.spec.max_clock_skew.ms * 1000 for resource in resources)
        async with Clock(CassandraTimes(store), bounds=Bounds(max_skew_us=skew_us)) as clock:
            catalogue = Catalogue(store, now_us=clock.require, owner=owner)
            applier = Applier(schema, catalogue, store.in_keyspace, surroundings, adopting=adopting)
            if only_print:
                for line in await _patiently(clock, partial(applier.print_plan, resources)):
                    click.echo(line)
                return []
            _tell_drifts("the catalogue", (await applier.prepare()).drifts)
            results = []
            for resource in resources:
                results.append(await _patiently(clock, partial(applier.apply_one, resource)))
                _tell(results[-1])
            return results
    finally:
        await store.close()


async def _patiently(clock: Clock, work: Callable[[], Awaitable[T]]) -> T:
    """On a busy machine this process stands still now and then, and has to compare clocks anew: what is begun again
    does what is left."""
    for _ in range(CLOCK_TRIES - 1):
        await clock.until_trusted(CLOCK_WITHIN_S)
        with contextlib.suppress(ClockNotTrusted):
            return await work()
    await clock.until_trusted(CLOCK_WITHIN_S)
    return await work()


def _tell(result: Applied) -> None:
    """One line; a refusal has its reasons behind it, one line each where there are several."""
    if result.refused:
        for note in result.notes:
            click.echo(f"{result.name} refused: {note}", err=True)
        return
    click.echo(f"{result.name} {result.outcome}{_facts(result)}")
    _tell_drifts(str(result.name), result.drifts)


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


def _tell_drifts(label: str, drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        click.echo(f"{label}: drift: {drift}", err=True)
