"""The owner of the entry of this name: this resource, none, an adoptable one, or another.

The first resource has it, by the LWT that created the entry. An entry is adopted only by an annotation of the
resource that requests it, and only if its owner has given it up: a retained one, one of a deleted resource of this
cluster, or one of the command line.

Data belong to a namespace by its uid, which the entry's document keeps, and not by its name. So a tenant that gets
the name of a deleted namespace does not get its messages. An administrator may leave them to it, by an annotation of
the Namespace. An entry of the command line has no namespace but the name.

Pure. It knows no tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.api.read.parse import ResourceInvalid
from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import Adopt, Retain, Step
from headgate.applying.desired_state import Wanted, allowed_change
from headgate.store.catalogue.entry import Entry, EntryState
from headgate_operator.model.names import ADOPT, ADOPT_FROM, NAMESPACE_UID, owner_of, owner_parts
from headgate_operator.model.plan import PartialPlan, StoreStep, blocked, missing_input
from headgate_operator.model.world import DecisionMemory, Nothing, ResourceWorld, StoreConnection, StoreView

BY_NAME = "by-name"


def our_owner(world: ResourceWorld) -> str:
    return owner_of(world.settings.cluster, world.uid)


def is_ours(world: ResourceWorld, entry: Entry | None) -> bool:
    """Whether an entry is there that is this resource's."""
    return entry is not None and entry.state is not EntryState.GONE and entry.owner == our_owner(world)


def decide_ownership(
    world: ResourceWorld, store: StoreView, wanted: Wanted, connection: StoreConnection, memory: DecisionMemory
) -> PartialPlan:
    """Continue, adopt first, or stop."""
    entry, present = store.entry, world.resource
    if entry is None or entry.state is EntryState.GONE or present is None:
        return PartialPlan(memory)
    if entry.owner == our_owner(world):
        if entry.state is EntryState.DELETING:
            return blocked(
                memory, Reason.PROGRESSING, f"the previous resource of this name ({entry.id}) is being deleted"
            )
        if entry.state is EntryState.RETAINED:
            return _adopt(world, entry, wanted, connection, memory)
        return PartialPlan(memory)
    asked = present.meta.annotations.get(ADOPT, "")
    if asked not in ("", BY_NAME, str(entry.id)):
        message = f"{ADOPT} asks for {asked}, but the entry of {wanted.name} is {entry.id}; tables cannot be renamed"
        return blocked(memory, Reason.NAME_TAKEN, message)
    lives = _lives(world, store, entry)
    if isinstance(lives, Nothing):
        return missing_input(memory, f"whether {entry.owner} is there")
    if lives:
        message = f"{wanted.name} exists already ({entry.id}) and belongs to {format_owner(entry.owner)}"
        return blocked(memory, Reason.NAME_TAKEN, message)
    if entry.state is EntryState.DELETING:
        return _left_half_deleted(world, entry, connection, memory)
    if not asked:
        message = (
            f"{wanted.name} exists already ({entry.id}) and belonged to {format_owner(entry.owner)};"
            f" to adopt its data, annotate this one with {ADOPT}={entry.id}"
        )
        return blocked(memory, Reason.NAME_TAKEN, message)
    return _adopt_of_namespace(world, entry, wanted, connection, memory)


def format_owner(owner: str) -> str:
    parts = owner_parts(owner)
    if parts is None:
        return owner
    return f"a resource of cluster {parts[0]} with uid {parts[1]}"


def _lives(world: ResourceWorld, store: StoreView, entry: Entry) -> bool | Nothing:
    """Whether another owner has not given it up."""
    parts = owner_parts(entry.owner)
    if entry.state is EntryState.RETAINED or parts is None:
        return False
    if parts[0] != world.settings.cluster:
        return True
    return store.owner_lives


def _left_half_deleted(
    world: ResourceWorld, entry: Entry, connection: StoreConnection, memory: DecisionMemory
) -> PartialPlan:
    """Its resource was let go before all was dropped. One of this cluster is kept as it is; others wait."""
    parts = owner_parts(entry.owner)
    if parts is None or parts[0] != world.settings.cluster:
        return blocked(
            memory, Reason.PROGRESSING, f"the previous resource of this name ({entry.id}) is being deleted"
        )
    step = StoreStep(Retain(entry), connection)
    return PartialPlan(
        memory, effects=(step,), trail=(f"{entry.id} was left during its deletion: the remaining data stay",)
    )


def bind_to_namespace(wanted: Wanted, uid: str) -> Wanted:
    """With the uid of the namespace in the document that is written; other releases keep it as they find it."""
    if not uid:
        return wanted
    metadata = {**wanted.document["metadata"], NAMESPACE_UID: uid}
    return replace(wanted, document={**wanted.document, "metadata": metadata})


def namespace_uid_of(entry: Entry) -> str:
    """The namespace that its data belong to; empty where no operator has written it."""
    metadata = entry.document.get("metadata")
    return str(metadata.get(NAMESPACE_UID) or "") if isinstance(metadata, Mapping) else ""


def _adopt_of_namespace(
    world: ResourceWorld, entry: Entry, wanted: Wanted, connection: StoreConnection, memory: DecisionMemory
) -> PartialPlan:
    """The data of a former resource, if they are this namespace's."""
    bound, namespace = namespace_uid_of(entry), world.namespace
    if bound and not namespace.uid:
        return missing_input(memory, "the namespace")
    if bound and bound != namespace.uid and bound not in namespace.adopts_from:
        message = (
            f"{wanted.name} ({entry.id}) belongs to an earlier namespace of this name ({bound}); an administrator"
            f" leaves its data to this one by the annotation {ADOPT_FROM}={bound} on the Namespace"
        )
        return blocked(memory, Reason.NAME_TAKEN, message)
    return _adopt(world, entry, wanted, connection, memory)


def _adopt(
    world: ResourceWorld, entry: Entry, wanted: Wanted, connection: StoreConnection, memory: DecisionMemory
) -> PartialPlan:
    try:  # what enters a partition key is fixed
        allowed_change(entry.document, wanted.document)
    except ResourceInvalid as invalid:
        return tables_forbid(invalid, memory)
    step: Step = Adopt(entry, our_owner(world), wanted.document)
    return PartialPlan(
        memory,
        effects=(StoreStep(step, connection),),
        trail=(f"adopt {entry.id}, which belonged to {format_owner(entry.owner)}",),
    )


def tables_forbid(invalid: ResourceInvalid, memory: DecisionMemory) -> PartialPlan:
    faults = "; ".join(str(fault) for fault in invalid.faults)
    return blocked(memory, Reason.SPEC_INVALID, f"the existing tables do not allow it: {faults}")
