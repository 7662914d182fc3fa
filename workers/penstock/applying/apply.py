"""Bring resources to Cassandra: the catalogue's keyspace and tables, then for each its entry, tables, lanes, shards.

It knows neither YAML nor the command line nor Kubernetes: `penstock apply`, `penstock dev` and the operator call it.
Each step can be taken by several processes at once, and again after a crash: the entry decides which creation it is,
tables follow from its id, then lanes, and only then the entry says that it is active. Lanes of a next generation are
made before it is announced: whoever hears of one finds them.

What is refused for one resource (another owner, a field that is fixed) is told and the others go on; what stands in
the way of all (no right, no agreement, a clock out of bounds) is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.api.parse import Resource, ResourceInvalid
from penstock.applying.wanted import (
    Surroundings,
    Wanted,
    allowed_change,
    catalogue_keyspace,
    keyspace_of,
    wanted_of,
)
from penstock.engines.registry import CARRIED, Making, engine_of, make_generation, tables_of
from penstock.errors import Conflict, Refused, SpecError
from penstock.store.catalogue import Catalogue, Change
from penstock.store.catalogue_entry import Entry, Name, State
from penstock.store.catalogue_tables import CATALOGUE_TABLES
from penstock.store.decide_generation import ChangeUnderWay, Generation
from penstock.store.drift import Drift, Standing, unmended
from penstock.store.schema import SchemaPlan, SchemaPort, SchemaReport, SchemaRightsMissing, ensure, plan
from penstock.store.store import Store

TABLES_MAX = 300
"""Of all users in a cluster: each costs every node memory, and past a few hundred the cluster suffers."""

_ANY_CREATION = UUID(int=0)


class TooManyTables(Refused):
    """Dedicated tables would bring the cluster past the bound."""


class StorageElsewhere(Refused):
    """Its home data centre is not the one that this connection uses (rule R5)."""


@dataclass(frozen=True)
class Applied:
    """What became of one resource."""

    name: Name
    outcome: str
    """created, updated, unchanged or refused."""
    entry: Entry | None = None
    notes: tuple[str, ...] = ()
    drifts: tuple[Drift, ...] = ()
    tables: tuple[str, ...] = ()
    """Tables made just now."""

    @property
    def refused(self) -> bool:
        """Whether its author has to do something."""
        return self.outcome == "refused"

    @property
    def unmended(self) -> tuple[Drift, ...]:
        """What only a person can mend."""
        return unmended(self.drifts)


@dataclass
class Applier:
    """The connection, the catalogue and the surroundings of one run."""

    schema: SchemaPort
    catalogue: Catalogue
    store_in: Callable[[str], Store]
    """The store of a keyspace: lanes are made where the tables are."""
    surroundings: Surroundings
    carried: Mapping[str, str] = field(default_factory=lambda: CARRIED)
    tables_max: int = TABLES_MAX

    async def prepare(self) -> SchemaReport:
        """The keyspace and the tables of the catalogue."""
        return await ensure(self.schema, catalogue_keyspace(self.surroundings), CATALOGUE_TABLES)

    async def apply(self, resources: Sequence[Resource]) -> list[Applied]:
        """One after the other; `prepare` has been called."""
        return [await self.apply_one(resource) for resource in resources]

    async def apply_one(self, resource: Resource) -> Applied:
        """What is refused for this one is an answer, not an error."""
        wanted = wanted_of(resource, self.surroundings)
        try:
            return await self._apply(wanted)
        except SchemaRightsMissing:
            raise
        except (Refused, Conflict, SpecError) as refused:
            return Applied(wanted.name, "refused", notes=_lines(refused))

    async def _apply(self, wanted: Wanted) -> Applied:
        if wanted.place.data_center != self.surroundings.data_center:
            raise StorageElsewhere(
                home=wanted.place.data_center,
                here=self.surroundings.data_center,
                remedy=f"set DATA_CENTER={wanted.place.data_center} and name contact points there",
            )
        known = await self.catalogue.find(wanted.name)
        if known is not None:
            known.entry.require_home(self.surroundings.data_center)
        else:
            await self._require_room(wanted)
        declared = await self.catalogue.declare(
            wanted.name, wanted.document, place=wanted.place, shards=wanted.shards, check=allowed_change
        )
        tables, drifts, notes = await self._make_tables(wanted, declared.entry)
        usable = all(drift.standing is not Standing.BY_HAND for drift in drifts)
        entry, more = await self._settle(wanted, declared.entry, carried=tables is not None, usable=usable)
        moved_on = (entry.state, entry.generations) != (declared.entry.state, declared.entry.generations)
        if declared.change is Change.UNCHANGED and (tables or moved_on):
            outcome = Change.UPDATED.value
        else:
            outcome = declared.change.value
        return Applied(wanted.name, outcome, entry, (*notes, *more), drifts, tables or ())

    async def _require_room(self, wanted: Wanted) -> None:
        """Before the entry is made, so that nothing of it is left."""
        needed = tables_of(wanted.resource, _ANY_CREATION, carried=self.carried)
        if wanted.place.tables != "dedicated" or not needed:
            return
        there = await self.schema.count_tables()
        if there + len(needed) > self.tables_max:
            raise TooManyTables(
                tables=there,
                needed=len(needed),
                most=self.tables_max,
                remedy="set `storage.tables: shared`, which adds none",
            )

    async def _make_tables(
        self, wanted: Wanted, entry: Entry
    ) -> tuple[tuple[str, ...] | None, tuple[Drift, ...], tuple[str, ...]]:
        """The names of tables made now, or None where nobody knows which are needed."""
        tables = tables_of(wanted.resource, entry.id, carried=self.carried)
        if tables is None:
            note = f"its tables join with a later release: this one does not carry {engine_of(wanted.resource)}"
            return None, (), (note,)
        keyspace = keyspace_of(wanted, entry.place)
        before = await self.catalogue.tables_made(keyspace.name)
        report = await ensure(self.schema, keyspace, tables, before)
        dropped = {drift.table for drift in report.drifts if drift.what == "the table"}
        unnoted = [table.name for table in tables if table.name not in before and table.name not in dropped]
        await self.catalogue.note_tables(keyspace.name, unnoted)
        return report.created, report.drifts, ()

    async def _settle(
        self, wanted: Wanted, entry: Entry, *, carried: bool, usable: bool
    ) -> tuple[Entry, tuple[str, ...]]:
        """Say that it is active once its tables and lanes are as they should be, and bring the number of shards."""

        async def prepare(standing: Entry, generation: Generation) -> None:
            making = Making(self.store_in(standing.place.keyspace), self.catalogue.now_us, self.catalogue.new_uuid)
            await make_generation(wanted.resource, standing, generation, making, carried=self.carried)

        if carried and not usable:
            return entry, ()
        if carried and entry.state is State.MAKING:
            for window in entry.generations.windows():
                await prepare(entry, Generation(window.number, window.shards, window.from_us))
            entry = await self.catalogue.set_state(entry, State.ACTIVE)
        if not wanted.makes_generations:
            return entry, ()
        try:
            entry = await self.catalogue.reshard(entry, wanted.shards, skew_us=wanted.skew_us, prepare=prepare)
        except ChangeUnderWay as under_way:
            return entry, _lines(under_way)
        return entry, ()

    async def print_plan(self, resources: Sequence[Resource]) -> list[str]:
        """The CQL of what is missing, and comments where an entry has to be there first. Changes nothing."""
        planned = await plan(self.schema, catalogue_keyspace(self.surroundings), CATALOGUE_TABLES)
        catalogue_there = not planned.keyspaces and not planned.tables
        lines = list(_commented("the catalogue", planned.statements))
        seen = set(planned.statements)
        for resource in resources:
            wanted = wanted_of(resource, self.surroundings)
            known = await self.catalogue.find(wanted.name) if catalogue_there else None
            statements: Collection[str] = ()
            if known is None and wanted.place.tables == "dedicated":
                if tables_of(resource, _ANY_CREATION, carried=self.carried) is not None:
                    lines.append(
                        f"-- {wanted.label}: its tables are named by the id that `penstock apply` gives it;"
                        " apply, then print again"
                    )
                keyspace = await plan(self.schema, keyspace_of(wanted, wanted.place), ())
                statements = keyspace.statements
            else:
                statements = (await self._plan_tables(wanted, known.entry if known else None)).statements
            fresh = [statement for statement in statements if statement not in seen]
            seen.update(fresh)
            lines += _commented(wanted.label, fresh)
        return lines or ["-- nothing is missing"]

    async def _plan_tables(self, wanted: Wanted, entry: Entry | None) -> SchemaPlan:
        place = entry.place if entry else wanted.place
        tables = tables_of(wanted.resource, entry.id if entry else _ANY_CREATION, carried=self.carried)
        before = await self.catalogue.tables_made(place.keyspace) if entry else frozenset()
        return await plan(self.schema, keyspace_of(wanted, place), tables or (), before)


def _commented(label: str, statements: Collection[str]) -> list[str]:
    return [f"-- {label}", *(f"{statement};" for statement in statements)] if statements else []


def _lines(refused: Exception) -> tuple[str, ...]:
    if isinstance(refused, ResourceInvalid):
        return tuple(str(fault) for fault in refused.faults)
    return tuple(str(refused).splitlines())
