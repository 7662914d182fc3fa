"""Effects in words, for the readers of a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.applying import decide_steps as steps
from headgate.store.catalogue.decide_generation import shards_in_force
from headgate_operator.decide.status import condition_of
from headgate_operator.model.effects import ApplyObject, DeleteObject, Effect, Emit, PatchStatus, StopLane, StoreStep
from headgate_operator.model.names import FINALIZER, MANAGER
from headgate_operator.model.partial_plan import format_names


def words(effect: Effect) -> str:
    """One line."""
    match effect:
        case StoreStep(step=step):
            return step_words(step)
        case ApplyObject():
            return _applied(effect)
        case DeleteObject(kind=kind, name=name):
            return f"delete {kind} {name}"
        case PatchStatus(status=status):
            return f"write the status: {ready_words(status)}"
        case StopLane(lane=lane, epoch=epoch):
            return f"order the owner of lane {lane} (epoch {epoch}) to stop"
        case Emit(reason=reason, note=note):
            return f"write an event: {reason}: {note}"


def ready_words(status: Mapping[str, Any]) -> str:
    """The first line of a status."""
    ready = condition_of(status, "Ready") or {}
    if ready.get("status") == "True":
        return "Ready"
    return f"not Ready, {ready.get('reason', 'Progressing')}: {ready.get('message', '')}"


def step_words(step: steps.Step) -> str:
    """A step in Cassandra."""
    match step:
        case steps.CreateKeyspace(keyspace=keyspace):
            return f"create keyspace {keyspace.name}"
        case steps.CreateTable(keyspace=keyspace, table=table):
            return f"create table {keyspace}.{table.name}: {table.purpose}"
        case steps.NoteTables(names=names):
            return f"wait until every node serves these {len(names)} tables, and note them as created"
        case steps.FixDrift(drift=drift):
            return f"fix {drift}"
        case steps.DropTable(keyspace=keyspace, name=name):
            return f"drop table {keyspace}.{name}"
        case steps.MakeLanes(entry=entry, generation=generation):
            return (
                f"create {_count(generation.shards, 'lane')} for generation {generation.number} of {entry.name.name}"
            )
        case steps.DeclareEntry():
            return _declared(step)
        case steps.ForgetRows():
            return "remove its rows from the shared tables"
        case _:
            return _entry_words(step)


def _declared(step: steps.DeclareEntry) -> str:
    place = step.place
    tables = "tables of its own" if place.tables == "dedicated" else "the shared tables"
    shards = f"{_count(step.shards, 'shard')}, " if step.name.kind == "Queue" else ""
    return (
        f"write its spec into the catalogue: {shards}{tables} in keyspace {place.keyspace}, home {place.data_center}"
    )


def _entry_words(step: steps.Step) -> str:
    match step:
        case steps.Activate():
            return "mark its entry as active, so that it can be used"
        case steps.Announce(entry=entry, number=number, shards=shards):
            before = shards_in_force(entry.generations)
            return f"announce generation {number}: {_count(shards, 'shard')} instead of {before}"
        case steps.MakeSure():
            return "write the time after which no put uses the previous generation"
        case steps.Turn():
            return "make the announced generation current"
        case steps.Adopt(entry=entry):
            return f"adopt the entry {entry.id}, which belonged to {entry.owner}"
        case steps.Retain():
            return "mark its entry as retained: its data stay, and nothing uses them"
        case steps.MarkDeleting():
            return "mark its entry as being deleted"
        case steps.Forget():
            return "release its name"
    return type(step).__name__


def _applied(effect: ApplyObject) -> str:
    document = effect.document
    metadata, kind = document["metadata"], document["kind"]
    if kind in ("Queue", "Counter"):
        has = FINALIZER in (metadata.get("finalizers") or ())
        return f"add the finalizer {FINALIZER}" if has else f"remove the finalizer {FINALIZER}"
    if effect.manager != MANAGER:
        return f"pass the replicas of {kind} {metadata['name']} to {effect.manager}"
    verb = "change" if "uid" in metadata else "create"
    about = _about(document)
    return f"{verb} {kind} {metadata['name']}{f': {about}' if about else ''}"


def _about(document: Mapping[str, Any]) -> str:
    spec = document.get("spec") or {}
    match document["kind"]:
        case "Deployment":
            images = format_names(each["image"] for each in _containers(spec["template"]["spec"]))
            replicas = spec.get("replicas")
            return f"{'unchanged replicas' if replicas is None else _count(replicas, 'replica')} of {images}"
        case "CronJob":
            command = _containers(spec["jobTemplate"]["spec"]["template"]["spec"])[0]["command"]
            return f"{' '.join(command[:2])} at {spec['schedule']}"
        case "Secret":
            return "the connection, copied from the operator's namespace"
    return ""


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
