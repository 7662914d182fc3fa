"""A plan as plain JSON, and that JSON as lines for a person. The leader makes the first, `headgate plan` both.

    {"effects": [{"of", "message", "cql"?, "object"?, "manager"?}],
     "ends": [{"of", "ready", "message", "stalled", "open": [...]}],
     "waits": [...], "unknown": [...]}

Invented values (the id of an entry that does not exist yet) are in angle brackets, and the content of Secrets is
hidden. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import yaml

from headgate.applying import decide_steps as steps
from headgate.applying.decide_steps import CreateTable
from headgate.store.catalogue.decide_generation import shards_in_force
from headgate.store.model.cql import table_id
from headgate_operator.decide.status import condition_of, status_of
from headgate_operator.dry_run.projection import PlanProjection
from headgate_operator.model.names import APPLIED, FINALIZER, MANAGER, Key
from headgate_operator.model.plan import (
    ApplyObject,
    DeleteObject,
    Effect,
    Emit,
    PatchStatus,
    StopLane,
    StoreStep,
    format_names,
)

PlanDocument = Mapping[str, Any]
UNMADE: Final = str(UUID(int=0))
"""The uid of a resource that does not exist yet."""
PARTS: Final = ("order", "cql", "objects")
WIDTH: Final = 118


def build_plan_document(ahead: PlanProjection, unknown: Iterable[str] = ()) -> dict[str, Any]:
    plan = {
        "effects": [_effect(one.key, one.effect) for one in ahead.done if not isinstance(one.effect, Emit)],
        "ends": [_end(key, ahead) for key in ahead.worlds],
        "unknown": [*unknown],
    }
    text = json.dumps(plan)
    for made_up, shown in _made_up(ahead).items():
        text = text.replace(made_up, shown)
    named: dict[str, Any] = json.loads(text)
    return named


def _effect(key: Key, effect: Effect) -> dict[str, Any]:
    fields: dict[str, Any] = {"of": _path(key), "message": words(effect)}
    if isinstance(effect, StoreStep):
        cql = getattr(effect.step, "cql", None)
        return fields | ({"cql": cql} if cql else {})
    if isinstance(effect, ApplyObject):
        return fields | {"object": _shown(effect.document), "manager": effect.manager}
    return fields


def _path(key: Key) -> str:
    return f"namespace {key.name}" if key.kind == "Namespace" else f"{key.kind.lower()} {key.namespace}/{key.name}"


def build_unknown_document(key: Key, message: str) -> dict[str, Any]:
    end = {"of": _path(key), "ready": False, "message": f"unknown: {message}", "stalled": False, "open": []}
    return {"effects": [], "ends": [end], "unknown": []}


def _shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """The object as it is applied, except the content of a Secret and a digest of unknown values."""
    shown = dict(document)
    if document["kind"] == "Secret":
        shown["data"] = "<content of the operator's own Secret>"
    annotations = document["metadata"].get("annotations") or {}
    text = json.dumps(shown)
    if APPLIED in annotations and ("<" in text or UNMADE in text):
        shown_annotations = {**annotations, APPLIED: "<digest of this document>"}
        shown["metadata"] = {**document["metadata"], "annotations": shown_annotations}
    return shown


def _end(key: Key, ahead: PlanProjection) -> dict[str, Any]:
    present = ahead.worlds[key].resource
    status = {} if present is None else status_of(present)
    stalled = condition_of(status, "Stalled")
    opened = [
        f"{one['type']}: {one['reason']}: {one['message']}"
        for one in status.get("conditions") or ()
        if one["status"] == "False" and one["type"] not in ("Ready", "Reconciling", "Stalled")
    ]
    is_reported = bool(condition_of(status, "Ready"))
    trail = ahead.trails.get(key) or ["no decision"]
    ready = condition_of(status, "Ready") or {}
    return {
        "of": _path(key),
        "ready": ready.get("status") == "True",
        "message": ready_words(status) if is_reported else f"unknown: {trail[-1]}",
        "stalled": stalled is not None,
        "open": opened,
    }


def _made_up(ahead: PlanProjection) -> dict[str, str]:
    """Invented ids of new entries and values derived from them, each with the text that is shown instead."""
    shown = {UNMADE: "<uid>"}
    for id_, key in ahead.new_ids.items():
        shown[id_.hex] = shown[str(id_)] = f"<id of {key.name}>"
        for one in ahead.done:
            step = one.effect.step if isinstance(one.effect, StoreStep) else None
            if isinstance(step, CreateTable) and id_.hex in step.table.name:
                shown[str(table_id(step.keyspace, step.table.name))] = "<follows from the table's name>"
    for one in ahead.done:
        name = _name_by_image(one.effect)
        if name:
            shown[name] = f"{name.rpartition('-')[0]}-<8 letters>"
    return shown


def _name_by_image(effect: Effect) -> str:
    """The name of a CronJob that depends on an unknown image."""
    if not isinstance(effect, ApplyObject) or effect.document["kind"] != "CronJob":
        return ""
    return str(effect.document["metadata"]["name"]) if "<" in json.dumps(effect.document["spec"]) else ""


# ---- lines


def lines(plan: PlanDocument, head: str, parts: Sequence[str] = PARTS) -> Iterator[str]:
    """For a person: the changes in order, then the CQL and the objects in full."""
    effects: Sequence[PlanDocument] = plan["effects"]
    if "order" in parts:
        yield head
        yield from _order(effects)
        yield from _ends(plan)
    if "cql" in parts:
        yield from _headed(len(parts) > 1, "-- the statements", _cql(effects))
    if "objects" in parts:
        yield from _headed(len(parts) > 1, "# the objects", _objects(effects))


def _order(effects: Sequence[PlanDocument]) -> Iterator[str]:
    of = ""
    for number, effect in enumerate(effects, 1):
        if effect["of"] != of:
            of = effect["of"]
            yield ""
            yield of
        yield f"{number:>4}. {effect['message']}"
    if not effects:
        yield ""
        yield "no change needed"


def _ends(plan: PlanDocument) -> Iterator[str]:
    yield ""
    yield "result"
    for end in plan["ends"]:
        yield f"  {end['of']}: {end['message']}"
        yield from (f"    {each}" for each in end["open"] if each.partition(": ")[2] not in end["message"])
    if plan["unknown"]:
        yield ""
        yield "unknown without a cluster"
        yield from (f"  - {sentence}" for sentence in plan["unknown"])


def _headed(is_one_of_many: bool, title: str, body: Iterable[str]) -> Iterator[str]:
    written = [*body]
    if is_one_of_many and written:
        yield ""
        yield title
    yield from written


def _cql(effects: Sequence[PlanDocument]) -> Iterator[str]:
    of = ""
    for effect in effects:
        if "cql" in effect:
            if effect["of"] != of:
                of = effect["of"]
                yield f"-- {of}"
            yield f"{effect['cql']};"


def _objects(effects: Sequence[PlanDocument]) -> Iterator[str]:
    for effect in effects:
        if "object" in effect:
            if effect.get("manager", "headgate") != "headgate":
                yield f"# under the field manager {effect['manager']}"
            yield "---"
            yield yaml.dump(
                effect["object"], Dumper=_Plain, sort_keys=False, width=WIDTH, allow_unicode=True
            ).rstrip()


class _Plain(yaml.SafeDumper):
    """Without anchors, so that each object is complete."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# ---- effects in words


def words(effect: Effect) -> str:
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
    ready = condition_of(status, "Ready") or {}
    if ready.get("status") == "True":
        return "Ready"
    return f"not Ready, {ready.get('reason', 'Progressing')}: {ready.get('message', '')}"


def step_words(step: steps.Step) -> str:
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
