"""`headgate apply` as a call: `await headgate.apply("queues.yaml")`, or `headgate.apply_sync(...)` without async.

It needs neither an open connection nor a keyspace, since it creates both the keyspace and the catalogue. Resources
are applied one after the other, and one that is refused does not stop the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from headgate.api.read.parse import Resource, parse_resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.desired_state import PlacementDefaults
from headgate.client.sync.background import BackgroundLoop
from headgate.engines.registry import MEMORY_ENGINES
from headgate.errors import InvalidRequest, OperationRefused
from headgate.store.cassandra.settings import (
    ConnectionOptions,
    ConnectionSettings,
    read_session_settings,
    read_settings,
)
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.clock.clock import Clock, ClockNotTrusted
from headgate.store.clock.clock_state import Bounds
from headgate.store.model.drift import ActualTable
from headgate.store.schema import ActualKeyspace

OWNER = "headgate"
OWNER_LENGTH_MAX = 63
CLOCK_TRIES = 10
CLOCK_WITHIN_S = 10.0

Document = Mapping[str, Any]
"""A resource as YAML or JSON has it: apiVersion, kind, metadata, spec."""
Resources = str | Path | Document | Iterable[str | Path | Document]
"""Paths of YAML files, documents, or several of both."""


class ApplyOutcome(Enum):
    """The result for one resource."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome for one resource."""

    kind: str
    name: str
    """`namespace/name`."""
    outcome: ApplyOutcome
    notes: tuple[str, ...] = ()
    """Why the resource was rejected, or which work is left for later."""
    drifts: tuple[str, ...] = ()
    """Differences between its tables and their declaration, one per line."""
    tables: tuple[str, ...] = ()
    """Tables that this call created."""


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The outcomes of one call, in the order of the resources. Of a dry run the statements alone."""

    results: tuple[ApplyResult, ...] = ()
    statements: tuple[str, ...] = ()
    """The CQL that a dry run would have executed, with comments (`-- `)."""

    @property
    def refused(self) -> tuple[ApplyResult, ...]:
        """The resources that were refused."""
        return tuple(each for each in self.results if each.outcome is ApplyOutcome.REFUSED)

    def check(self) -> None:
        """Raise OperationRefused if a resource was refused."""
        if self.refused:
            reasons = "; ".join(f"{each.kind} {each.name}: {', '.join(each.notes)}" for each in self.refused)
            raise OperationRefused("Resources were refused.", resources=reasons)


async def apply(
    resources: Resources,
    *,
    dry_run: bool = False,
    owner: str = OWNER,
    adopt: bool = False,
    environment: Mapping[str, str] | None = None,
    session: Any = None,
    **options: Unpack[ConnectionOptions],
) -> ApplyReport:
    """Create in Cassandra what Queues and Counters need: the keyspace, the tables and their catalogue entries.

    A second call completes an interrupted one. An existing keyspace is never altered, and nothing is dropped. `owner`
    is the name that manages the resources: only the same name changes them again, unless `adopt` is true. A dry run
    changes nothing. The other options are those of `connect`.
    """
    read = read_resources(resources)
    given = os.environ if environment is None else environment
    settings = read_settings(given, options) if session is None else read_session_settings(session, given, options)
    async with open_applier(read, settings, checked_owner(owner), adopting=adopt, driver_session=session) as (
        applier,
        patiently,
    ):
        if dry_run:
            return ApplyReport(statements=tuple(await patiently(partial(applier.print_plan, read))))
        await applier.prepare()
        return ApplyReport(tuple([_result(await patiently(partial(applier.apply_one, each))) for each in read]))


def apply_sync(
    resources: Resources,
    *,
    dry_run: bool = False,
    owner: str = OWNER,
    adopt: bool = False,
    environment: Mapping[str, str] | None = None,
    session: Any = None,
    **options: Unpack[ConnectionOptions],
) -> ApplyReport:
    """As `apply`, with a call that waits."""
    background = BackgroundLoop("headgate: apply")
    try:
        return background.run(
            apply(
                resources,
                dry_run=dry_run,
                owner=owner,
                adopt=adopt,
                environment=environment,
                session=session,
                **options,
            )
        )
    finally:
        background.stop()


def read_resources(resources: Resources) -> tuple[Resource, ...]:
    """The resources of these files and documents, in order; an error with a line for each fault."""
    from headgate.api.read.loader import load_files  # imported in the function, so that documents need no YAML

    several = [resources] if isinstance(resources, str | Path | Mapping) else list(resources)
    read: list[Resource] = []
    for each in several:
        if isinstance(each, Mapping):
            read.append(parse_resource(dict(each)))
        elif isinstance(each, str | Path):
            read += load_files([Path(each)])
        else:
            raise InvalidRequest(
                "Only paths of YAML files and documents can be applied",
                remedy="pass a path or a dict",
                given=type(each).__name__,
            )
    if not read:
        raise InvalidRequest("There is no Queue and no Counter to apply.", given=repr(resources)[:100])
    return tuple(read)


def checked_owner(owner: str, *, label: str = "An owner") -> str:
    """The owner as the catalogue has it: the same for the command and the call."""
    if not owner.isprintable() or not 0 < len(owner) <= OWNER_LENGTH_MAX or any(sign in owner for sign in " /"):
        raise InvalidRequest(
            f"{label} is a name without blanks and slashes", given=repr(owner), length_max=OWNER_LENGTH_MAX
        )
    return f"cli/{owner}"


@asynccontextmanager
async def open_applier(
    resources: Sequence[Resource],
    settings: ConnectionSettings,
    owner: str,
    *,
    adopting: bool = False,
    driver_session: Any = None,
) -> AsyncIterator[tuple[Applier, Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]]]:
    """A connection that may find no keyspace yet, its clock and its applier; and a way to work that waits while the
    clock is in doubt. A repeated call does the remaining steps."""
    if settings.memory is not None:
        yield _build_memory_applier(settings.memory, owner, adopting=adopting), _do_at_once
        return
    from headgate.store.cassandra.node_queries import CassandraTimes
    from headgate.store.cassandra.schema import CassandraSchema
    from headgate.store.cassandra.store import CassandraStore

    store = await CassandraStore.connect(settings, must_exist=False, driver_session=driver_session)
    try:
        schema = CassandraSchema(store)
        surroundings = PlacementDefaults(
            settings.keyspace, store.data_center, await schema.nodes_in(store.data_center)
        )
        skew_us = min(resource.spec.max_clock_skew.us for resource in resources)
        async with Clock(CassandraTimes(store), bounds=Bounds(max_skew_us=skew_us)) as clock:
            catalogue = Catalogue(store, now_us=clock.require, owner=owner)

            async def patiently(work: Callable[[], Awaitable[Any]]) -> Any:
                for _ in range(CLOCK_TRIES - 1):
                    await clock.until_trusted(CLOCK_WITHIN_S)
                    with contextlib.suppress(ClockNotTrusted):
                        return await work()
                await clock.until_trusted(CLOCK_WITHIN_S)
                return await work()

            yield Applier(schema, catalogue, store.in_keyspace, surroundings, adopting=adopting), patiently
    finally:
        await store.close()


def _build_memory_applier(address: str, owner: str, *, adopting: bool) -> Applier:
    """On `memory://` an entry of the catalogue is all that a resource needs."""
    from headgate.client.catalogue.memory_context import KEYSPACE, memory_at
    from headgate.store.memory.store import DATA_CENTER, MemoryStore

    memory = memory_at(address)
    store = MemoryStore(memory.replica)
    surroundings = PlacementDefaults(KEYSPACE, DATA_CENTER, 1)
    catalogue = memory.catalogue(owner)
    schema = NoSchema(DATA_CENTER)
    return Applier(schema, catalogue, lambda _: store, surroundings, engines=MEMORY_ENGINES, adopting=adopting)


async def _do_at_once(work: Callable[[], Awaitable[Any]]) -> Any:
    """No clock is ever in doubt on `memory://`."""
    return await work()


@dataclass(frozen=True)
class NoSchema:
    """The schema of `memory://`, where tables exist by themselves: a `SchemaPort`."""

    data_center: str

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        return ActualKeyspace(name, "NetworkTopologyStrategy", {self.data_center: 1})

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        return {}

    async def count_tables(self) -> int:
        return 0

    async def nodes_in(self, data_center: str) -> int:
        return 1

    async def change(self, cql: str) -> None: ...

    async def agree(self, keyspace: str, tables: Collection[str]) -> None: ...


def _result(applied: Applied) -> ApplyResult:
    name = applied.name
    return ApplyResult(
        name.kind,
        f"{name.namespace}/{name.name}",
        ApplyOutcome(applied.outcome),
        applied.notes,
        tuple(map(str, applied.drifts)),
        applied.tables,
    )
