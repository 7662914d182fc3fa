"""Performs the steps of decide_steps.py: each by one call of the schema, the catalogue or the engine's module.

It decides nothing. A step that comes too late (the entry has changed, its name belongs to another creation) raises a
Conflict and has changed nothing; the caller observes again. An entry loses tables or rows only if a serial read shows
it as being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.applying import decide_steps as steps
from headgate.applying.desired_state import allowed_change
from headgate.engines.registry import ENGINE_MODULES, Making, stored_record
from headgate.store.catalogue.catalogue import Catalogue, Change
from headgate.store.catalogue.entry import Entry, EntryState
from headgate.store.schema import SchemaPort
from headgate.store.store import Store


@dataclass(frozen=True)
class Performed:
    """The entry after a step that changed it, and the outcome of a declaration."""

    entry: Entry | None = None
    change: Change | None = None


@dataclass
class StepPerformer:
    """Everything that steps need of one connection."""

    schema: SchemaPort
    catalogue: Catalogue
    """Of any owner: steps name the owner they act for."""
    store_in: Callable[[str], Store]
    """The store of a keyspace: rows are created in the keyspace of the tables."""
    engines: Mapping[str, str] = field(default_factory=lambda: ENGINE_MODULES)

    async def perform(self, step: steps.Step) -> Performed:
        """Take one step. RightsMissing, Conflict, Refused and Unavailable pass through."""
        match step:
            case steps.CreateKeyspace():
                # Cassandra rejects IF NOT EXISTS from a role whose permissions end at its keyspace.
                if await self.schema.read_keyspace(step.keyspace.name) is None:
                    await self.schema.change(step.cql)
            case steps.CreateTable() | steps.FixDrift():
                await self.schema.change(step.cql)
            case steps.NoteTables():
                await self.schema.agree(step.keyspace, step.names)
                await self.catalogue.note_tables(step.keyspace, step.names)
            case steps.MakeLanes() | steps.ForgetRows():
                await self._change_rows(step)
            case steps.DropTable():
                await self._require_deleting(step.entry)
                await self.schema.change(step.cql)
            case steps.DeclareEntry():
                declared = await self.catalogue.for_owner(step.owner).declare(
                    step.name, step.document, place=step.place, shards=step.shards, check=allowed_change
                )
                return Performed(declared.entry, declared.change)
            case steps.Adopt():
                adopting = self.catalogue.for_owner(step.owner)
                return Performed(await adopting.adopt(step.entry, step.document, check=allowed_change))
            case _:
                return Performed(await self._change_entry(step))
        return Performed()

    async def _change_entry(self, step: steps.StateStep | steps.GenerationStep) -> Entry:
        catalogue = self.catalogue.for_owner(step.entry.owner)
        match step:
            case steps.Announce():
                return await catalogue.announce(step.entry, step.number, step.shards, skew_us=step.skew_us)
            case steps.MakeSure():
                return await catalogue.make_sure(step.entry, skew_us=step.skew_us)
            case steps.Turn():
                return await catalogue.turn(step.entry, skew_us=step.skew_us)
            case steps.Activate() | steps.Retain() | steps.MarkDeleting() | steps.Forget():
                return await catalogue.set_state(step.entry, step.state)

    async def _require_deleting(self, entry: Entry) -> None:
        await self.catalogue.require_state(entry, EntryState.DELETING)

    async def _change_rows(self, step: steps.MakeLanes | steps.ForgetRows) -> None:
        """Those that an engine's record creates, or removes."""
        entry = step.entry
        record = stored_record(step.engine, engines=self.engines)
        making = Making(self.store_in(entry.place.keyspace), self.catalogue.now_us, self.catalogue.new_uuid)
        if isinstance(step, steps.ForgetRows):
            await self._require_deleting(entry)
            if record is not None and record.forget_rows is not None:
                await record.forget_rows(entry, making)
        elif record is not None and record.make_generation is not None:
            await record.make_generation(entry, step.generation, making)
