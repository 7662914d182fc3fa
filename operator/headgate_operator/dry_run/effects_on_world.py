"""The world after an effect, imagined, so that a plan can be completed without a change.

It imagines what the next decision reads: applied objects exist as applied, requested workers are ready, steps in the
store succeed. Ids that exist only after a creation are passed in.

Pure. The tests' simulations do not use this: they have an API server and a store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from headgate.applying import decide_steps as steps
from headgate.store.catalogue.decide_generation import decide_next, decide_sure, first, turned
from headgate.store.catalogue.entry import Entry, EntryState
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import GROUP, MANAGER
from headgate_operator.model.plan import ApplyObject, DeleteObject, Effect, PatchStatus, StoreStep
from headgate_operator.model.world import (
    BulkRun,
    ChildName,
    NamespaceWorld,
    PresentResource,
    ResourceWorld,
    StoreView,
)


@dataclass(frozen=True)
class Schema:
    """The shared state of all resources of one Cassandra."""

    keyspaces: frozenset[str] = frozenset()
    there: frozenset[tuple[str, str]] = frozenset()
    """(keyspace, table)."""
    noted: frozenset[tuple[str, str]] = frozenset()
    total: int = 0

    def after(self, step: steps.Step) -> Schema:
        """With what a step changes of it."""
        match step:
            case steps.CreateKeyspace(keyspace=keyspace):
                return replace(self, keyspaces=self.keyspaces | {keyspace.name})
            case steps.CreateTable(keyspace=keyspace, table=table):
                return replace(self, there=self.there | {(keyspace, table.name)}, total=self.total + 1)
            case steps.NoteTables(keyspace=keyspace, names=names):
                return replace(self, noted=self.noted | {(keyspace, name) for name in names})
            case steps.DropTable(keyspace=keyspace, name=name):
                return replace(self, there=self.there - {(keyspace, name)}, total=self.total - 1)
        return self

    def with_view(self, catalogue: str, keyspace: str, view: StoreView) -> Schema:
        """With what was read of it for one resource."""
        own = {(catalogue, table.name) for table in CATALOGUE_TABLES} if view.catalogue_there else set()
        names = {catalogue} if view.catalogue_there else set()
        return Schema(
            self.keyspaces | names | ({keyspace} if view.keyspace_there else set()),
            self.there | own | {(keyspace, name) for name in view.tables_there},
            self.noted | {(keyspace, name) for name in view.tables_made},
            max(self.total, view.tables_total),
        )

    def shown(self, catalogue: str, keyspace: str, view: StoreView) -> StoreView:
        """As one resource sees it."""
        return replace(
            view,
            catalogue_there=all((catalogue, table.name) in self.there for table in CATALOGUE_TABLES),
            keyspace_there=keyspace in self.keyspaces,
            tables_there=frozenset(name for each, name in self.there if each == keyspace),
            tables_made=frozenset(name for each, name in self.noted if each == keyspace),
            tables_total=self.total,
        )


World = ResourceWorld | NamespaceWorld


def after(world: World, effect: Effect, now_us: int, *, new_id: UUID) -> World:
    """The world of a key after an effect of its own; the shared part of the store is in `Schema`."""
    match effect:
        case StoreStep(step=step) if isinstance(world, ResourceWorld):
            return _after_step(world, step, now_us, new_id)
        case ApplyObject() if effect.document["kind"] in ("Queue", "Counter") and isinstance(world, ResourceWorld):
            return _with_finalizers(world, tuple(effect.document["metadata"].get("finalizers") or ()))
        case ApplyObject(document=document):
            child = _child(document)
            live = {**world.live, child: applied(world.live.get(child), effect)}
            if isinstance(world, NamespaceWorld):
                return replace(world, live=live)
            return replace(world, live=live, runs=(*world.runs, *_run(world, document)))
        case DeleteObject(kind=kind, name=name):
            gone = ChildName(kind, name)
            live = {each: it for each, it in world.live.items() if each != gone}
            if isinstance(world, NamespaceWorld):
                return replace(world, live=live)
            runs = tuple(run for run in world.runs if kind != "SparkApplication" or run.name != name)
            return replace(world, live=live, runs=runs)
        case PatchStatus(status=status) if isinstance(world, ResourceWorld) and world.resource is not None:
            present = world.resource
            return replace(world, resource=replace(present, document={**present.document, "status": status}))
    return world


def applied(live: Document | None, effect: ApplyObject) -> Document:
    """An object after it was applied, without the owners of its fields."""
    document = effect.document
    before = live or {"metadata": {"uid": f"<uid of {document['metadata']['name']}>"}, "spec": {}}
    metadata = {**document["metadata"], "uid": before["metadata"]["uid"], "generation": 1}
    if effect.manager != MANAGER:
        kept = {name: part for name, part in before["metadata"].items() if name != "managedFields"}
        return {**before, "metadata": kept, "spec": {**before["spec"], **document.get("spec", {})}}
    made = {**document, "metadata": metadata}
    if document["kind"] == "Deployment":
        replicas = document["spec"].get("replicas", before["spec"].get("replicas", 1))
        made["spec"] = {**document["spec"], "replicas": replicas}
        running = {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas}
        made["status"] = {"observedGeneration": 1, **running}
    return made


def _child(document: Document) -> ChildName:
    return ChildName(document["kind"], document["metadata"]["name"])


def _with_finalizers(world: ResourceWorld, finalizers: tuple[str, ...]) -> ResourceWorld:
    present = world.resource
    if not isinstance(present, PresentResource):
        return world
    return replace(world, resource=replace(present, meta=replace(present.meta, finalizers=finalizers)))


def _run(world: ResourceWorld, document: Document) -> tuple[BulkRun, ...]:
    name = document["metadata"]["name"]
    if document["kind"] != "SparkApplication" or any(run.name == name for run in world.runs):
        return ()
    bulk = document["metadata"]["labels"][f"{GROUP}/bulk"]
    return (BulkRun(bulk, name, f"<uid of {name}>", int(name.rpartition("-")[2], 36), "Pending"),)


def _after_step(world: ResourceWorld, step: steps.Step, now_us: int, new_id: UUID) -> ResourceWorld:
    store = world.store
    if not isinstance(store, StoreView):
        return world
    if isinstance(step, steps.FixDrift):
        return replace(world, store=replace(store, drifts=tuple(one for one in store.drifts if one != step.drift)))
    return replace(world, store=replace(store, entry=_entry(store.entry, step, now_us, new_id)))


def _entry(entry: Entry | None, step: steps.Step, now_us: int, new_id: UUID) -> Entry | None:
    if isinstance(step, steps.DeclareEntry):
        if entry is None or entry.state is EntryState.GONE:
            made = first(step.shards)
            return Entry(step.name, new_id, step.owner, EntryState.MAKING, 1, step.document, step.place, made, now_us)
        return replace(entry, document=step.document, revision=entry.revision + 1)
    if entry is None:
        return None
    known = entry.generations
    match step:
        case steps.Activate() | steps.Retain() | steps.MarkDeleting() | steps.Forget():
            return replace(entry, state=step.state, changed_us=now_us)
        case steps.Adopt(owner=owner, document=document):
            state = EntryState.ACTIVE if entry.state is EntryState.RETAINED else entry.state
            return replace(entry, owner=owner, document=document, state=state)
        case steps.Announce(shards=shards, skew_us=skew_us):
            announced = decide_next(known, shards, now_us=now_us, skew_us=skew_us)
            return replace(entry, generations=replace(known, next=announced))
        case steps.MakeSure(skew_us=skew_us) if known.next is not None:
            sure_us = decide_sure(known.next, acknowledged_us=now_us, skew_us=skew_us)
            return replace(entry, generations=replace(known, sure_us=sure_us))
        case steps.Turn():
            return replace(entry, generations=turned(known))
    return entry
