"""Apply resources to Cassandra: the catalogue's keyspace and tables, then for each its entry, tables, lanes, shards.

This module knows neither YAML nor the command line nor Kubernetes; `headgate apply`, `headgate dev` and the operator
call it. Several processes can take each step at once, and again after a crash. The entry decides which creation it
is, tables follow from its id, then lanes, and only then does the entry become active. decide_steps.py decides the
remaining steps from the observed state. This module is the loop that observes, decides and performs.

An error of one resource (another owner, a fixed field) is reported, and the others continue. An error that blocks all
(a missing permission, no schema agreement, a clock out of bounds) is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headgate.api.read.parse import Resource, ResourceInvalid
from headgate.applying import decide_steps as steps
from headgate.applying.desired_state import PlacementDefaults, Wanted, catalogue_keyspace, keyspace_of, wanted_of
from headgate.applying.perform_steps import StepPerformer
from headgate.engines.registry import ENGINE_MODULES, engine_of, tables_of
from headgate.errors import Bug, Conflict, InvalidRequest, OperationRefused
from headgate.store.catalogue.catalogue import Catalogue, Change
from headgate.store.catalogue.decide_generation import ChangeUnderWay
from headgate.store.catalogue.entry import Entry, EntryState, Name
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.model.drift import Drift, unmended
from headgate.store.model.table import Table
from headgate.store.schema import (
    RightsMissing,
    SchemaPlan,
    SchemaPort,
    SchemaReport,
    SchemaRightsMissing,
    ensure,
    plan,
    read_result,
)
from headgate.store.store import Store

ROUNDS_MAX = 8
"""Each round of steps is followed by a new observation and decision. This is more rounds than it ever takes."""


class NeverDone(Bug):
    """Completed steps are requested again."""


@dataclass(frozen=True)
class Applied:
    """The result for one resource."""

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
        """Problems that only a person can fix."""
        return unmended(self.drifts)


@dataclass
class _Course:
    """The work done for one resource so far."""

    change: Change = Change.UNCHANGED
    tables: list[str] = field(default_factory=list)
    fixed: list[Drift] = field(default_factory=list)
    moved: bool = False

    def add(self, step: steps.Step, change: Change | None) -> None:
        if isinstance(step, steps.CreateKeyspace):
            self.tables.append(step.keyspace.name)
        elif isinstance(step, steps.CreateTable):
            self.tables.append(step.table.name)
        elif isinstance(step, steps.FixDrift):
            self.fixed.append(step.drift.fixed())
        elif isinstance(step, steps.Adopt):
            self.moved = True
        if change is Change.CREATED or (change is Change.UPDATED and self.change is Change.UNCHANGED):
            self.change = change

    @property
    def outcome(self) -> str:
        """The result in one word."""
        if self.change is Change.UNCHANGED and (self.tables or self.moved):
            return Change.UPDATED.value
        return self.change.value


@dataclass
class Applier:
    """The connection, the catalogue and the environment of one run."""

    schema: SchemaPort
    catalogue: Catalogue
    store_in: Callable[[str], Store]
    """The store of a keyspace: lanes are created in the keyspace of the tables."""
    surroundings: PlacementDefaults
    engines: Mapping[str, str] = field(default_factory=lambda: ENGINE_MODULES)
    tables_max: int = steps.TABLES_MAX
    adopting: bool = False
    """Whether to take over an entry that has another owner, or was retained."""

    async def prepare(self) -> SchemaReport:
        """The keyspace and the tables of the catalogue, and in them what trees before 0.1 have left."""
        report = await ensure(self.schema, catalogue_keyspace(self.surroundings), CATALOGUE_TABLES)
        await self.catalogue.move_earlier()
        return report

    async def apply(self, resources: Sequence[Resource]) -> list[Applied]:
        """One after the other; `prepare` has been called."""
        return [await self.apply_one(resource) for resource in resources]

    async def apply_one(self, resource: Resource) -> Applied:
        """A rejection of this resource is an answer, not an error."""
        wanted = wanted_of(resource, self.surroundings)
        try:
            return await self._apply(wanted)
        except SchemaRightsMissing:
            raise
        except (OperationRefused, Conflict, InvalidRequest) as refused:
            return Applied(wanted.name, "refused", notes=_lines(refused))

    async def _apply(self, wanted: Wanted) -> Applied:
        """Observe, decide, perform; until no step is left."""
        course = _Course()
        for rounds_left in reversed(range(ROUNDS_MAX)):
            current = await self.read_current(wanted)
            decided = self._decide(wanted, current)
            if not decided.steps:
                return self._build_result(wanted, current, decided, course)
            try:
                await self._perform(decided, current, course)
            except Conflict:
                if not rounds_left:
                    raise
        raise NeverDone(resource=wanted.name, steps=", ".join(type(step).__name__ for step in decided.steps))

    async def read_current(self, wanted: Wanted) -> steps.CurrentState:
        """Its observed state."""
        known = await self.catalogue.find(wanted.name)
        if known is None:
            needs_tables = wanted.place.tables == "dedicated" and bool(self._tables(wanted, None))
            return steps.CurrentState(tables_total=await self.schema.count_tables() if needs_tables else 0)
        tables = self._tables(wanted, known.entry) or ()
        keyspace = keyspace_of(wanted, known.entry.place)
        noted = await self.catalogue.tables_made(keyspace.name) if tables else frozenset()
        standing = await read_result(self.schema, keyspace, tables)
        return steps.CurrentState(known.entry, standing.keyspace_there, standing.there, noted, standing.drifts)

    def _decide(self, wanted: Wanted, current: steps.CurrentState) -> steps.Decided:
        decided = steps.decide_steps(
            wanted,
            current,
            owner=self.catalogue.owner,
            data_center=self.surroundings.data_center,
            now_us=self.catalogue.now_us(),
            adopting=self.adopting and current.entry is not None and _may_be_taken(current.entry),
            tables_max=self.tables_max,
            engines=self.engines,
        )
        if decided.stopped is not None and not isinstance(decided.stopped, ChangeUnderWay):
            raise decided.stopped
        return decided

    async def _perform(self, decided: steps.Decided, current: steps.CurrentState, course: _Course) -> None:
        performer = StepPerformer(self.schema, self.catalogue, self.store_in, self.engines)
        for step in decided.steps:
            try:
                performed = await performer.perform(step)
            except RightsMissing as refused:
                cql = [each.cql for each in decided.steps if isinstance(each, steps.SchemaStep)]
                raise SchemaRightsMissing(cql, str(refused.facts.get("cause", ""))) from refused
            course.add(step, performed.change)
            if performed.entry is not None and current.entry is not None:
                before, after = current.entry, performed.entry
                course.moved |= (before.state, before.generations) != (after.state, after.generations)

    def _build_result(
        self, wanted: Wanted, current: steps.CurrentState, decided: steps.Decided, course: _Course
    ) -> Applied:
        notes: tuple[str, ...] = ()
        if not decided.is_supported:
            engine = engine_of(wanted.resource)
            notes = (f"its tables need a later release: this release does not support {engine}",)
        elif decided.stopped is not None:
            notes = _lines(decided.stopped)
        drifts = (*course.fixed, *decided.by_hand)
        return Applied(wanted.name, course.outcome, current.entry, notes, drifts, tuple(course.tables))

    def _tables(self, wanted: Wanted, entry: Entry | None) -> tuple[Table, ...] | None:
        return tables_of(wanted.resource, entry.id if entry else UUID(int=0), engines=self.engines)

    async def print_plan(self, resources: Sequence[Resource]) -> list[str]:
        """The CQL of the missing objects, and comments where an entry has to exist first. Changes nothing."""
        planned = await plan(self.schema, catalogue_keyspace(self.surroundings), CATALOGUE_TABLES)
        catalogue_there = not planned.keyspaces and not planned.tables
        lines = list(_commented("the catalogue", planned.statements))
        shown = set(planned.statements)
        for resource in resources:
            wanted = wanted_of(resource, self.surroundings)
            known = await self.catalogue.find(wanted.name) if catalogue_there else None
            if known is None and wanted.place.tables == "dedicated":
                if self._tables(wanted, None) is not None:
                    lines.append(
                        f"-- {wanted.name}: its tables are named by the id that `headgate apply` gives it;"
                        " apply, then print again"
                    )
                planned = await plan(self.schema, keyspace_of(wanted, wanted.place), ())
            else:
                planned = await self._plan_tables(wanted, known.entry if known else None)
            fresh = [statement for statement in planned.statements if statement not in shown]
            shown.update(fresh)
            lines += _commented(str(wanted.name), fresh)
        return lines or ["-- nothing is missing"]

    async def _plan_tables(self, wanted: Wanted, entry: Entry | None) -> SchemaPlan:
        place = entry.place if entry else wanted.place
        before = await self.catalogue.tables_made(place.keyspace) if entry else frozenset()
        return await plan(self.schema, keyspace_of(wanted, place), self._tables(wanted, entry) or (), before)


def _may_be_taken(entry: Entry) -> bool:
    """An entry that an operator manages has to be released by the operator first; otherwise both would write it."""
    return entry.state is EntryState.RETAINED or not entry.owner.startswith("operator/")


def _commented(label: str, statements: Collection[str]) -> list[str]:
    return [f"-- {label}", *(f"{statement};" for statement in statements)] if statements else []


def _lines(refused: Exception) -> tuple[str, ...]:
    if isinstance(refused, ResourceInvalid):
        return tuple(str(fault) for fault in refused.faults)
    return tuple(str(refused).splitlines())
