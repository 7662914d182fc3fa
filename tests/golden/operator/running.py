"""Golden files of the operator's decisions: the input is a resource and a change, the output are effects, statements
and status.

A case has its resource (`spec`), whether it was settled before (`settled`, with `before` as its former spec, or
specs), and the change (`but`). `python -m tests.golden.operator --write` writes the result (`then`) up to the fixed
point, and a person reviews it in the diff. Times are ages (`-40s`), or as in Kubernetes. Documents and CQL are shown
if the case is `whole`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import yaml

from headgate.api.resources.reasons import Reason
from headgate.api.values.units import Duration
from headgate.engines.summary.decide_marks import LaterMark
from headgate.store.catalogue.decide_generation import Generation, Generations
from headgate.store.catalogue.entry import EntryState
from headgate.store.model.drift import Drift, DriftStatus
from headgate_operator.manifests.document_diff import stamp_of
from headgate_operator.model.names import Key
from headgate_operator.model.plan import (
    ApplyObject,
    DeleteObject,
    Effect,
    Emit,
    PatchStatus,
    ReconcilePlan,
    StopLane,
    StoreStep,
)
from headgate_operator.model.world import (
    UNKNOWN,
    BulkRun,
    ChildName,
    DecisionMemory,
    LaneHealth,
    LaneProblem,
    LastApply,
    NamespaceState,
    Passes,
    PodStatus,
    QueueLoad,
    ResourceFailure,
    Sibling,
)
from tests.kit.operator_world import NOW_US, UID, TinyWorld, reported_at, resource_document

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*.yaml"))
Case = dict[str, Any]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_case(path: Path) -> Case:
    """One file."""
    case = yaml.load(path.read_text(), Loader=_LOADER)  # noqa: S506 - a safe one
    assert isinstance(case, dict), path
    return case


def run(case: Case) -> tuple[TinyWorld, list[ReconcilePlan], int]:
    """The world at its fixed point, the plans that led there, and when it began."""
    world = world_of(case)
    born_us = world.now_us
    until_us = born_us + _length_us(case["until"]) if "until" in case else 0
    return world, world.settle(until_us), born_us


def outcome(case: Case) -> dict[str, Any]:
    """The decisions and their results, up to the fixed point."""
    return described_by(case, *run(case))


def described_by(case: Case, world: TinyWorld, plans: list[ReconcilePlan], born_us: int) -> dict[str, Any]:
    """The same, as it is written."""
    whole = bool(case.get("whole"))
    entries: dict[str, Any] = {"decisions": list(_decisions(plans, whole=whole))}
    statements = [line for plan in plans for line in _statements(plan)]
    if statements and whole:
        entries["statements"] = statements
    if world.now_us != born_us:
        entries["after"] = f"{(world.now_us - born_us) / 1_000_000:g}s"
    if world.document is not None and "status" in world.document:
        entries["status"] = world.document["status"]
    return entries


def world_of(case: Case) -> TinyWorld:
    """The world in which the case is decided."""
    kind = case.get("kind", "Queue")
    specs = [*_listed(case.get("before", [])), case["spec"]]
    world = TinyWorld(resource_document(kind, specs[0]), Key(kind, "shop", "emails"))
    if case.get("settled"):
        world.settle()
        world.now_us += 60_000_000
    for spec in specs[1:-1]:
        world.edit(spec)
        world.settle()
        world.now_us += 60_000_000
    if len(specs) > 1:
        world.edit(specs[-1])
    change(world, case.get("but", {}))
    return world


def _listed(part: Any) -> list[Any]:
    return part if isinstance(part, list) else [part]


# ---- what is otherwise


def change(world: TinyWorld, but: Mapping[str, Any]) -> None:
    """Make the world so."""
    for name, message in but.items():
        _CHANGES[name](world, message)


def _after(world: TinyWorld, message: str) -> None:
    world.now_us += _length_us(message)


def _metadata(world: TinyWorld, message: Mapping[str, Any]) -> None:
    assert world.document is not None
    message = dict(message)
    if "deleted" in message:
        world.document["metadata"]["deletionTimestamp"] = reported_at(_time_us(world, message.pop("deleted")))
    world.document["metadata"].update(message)


def _status(world: TinyWorld, message: Mapping[str, Any]) -> None:
    """Former conditions: type -> [status, reason, since]."""
    assert world.document is not None
    status = world.document.setdefault("status", {"observedGeneration": 1, "conditions": []})
    for type_, (state, reason, since) in message.items():
        others = [one for one in status["conditions"] if one["type"] != type_]
        values = {
            "type": type_,
            "status": state,
            "observedGeneration": 1,
            "reason": reason,
            "message": "as before",
        }
        status["conditions"] = [*others, values | {"lastTransitionTime": reported_at(_time_us(world, since))}]


def _gone(world: TinyWorld, message: bool) -> None:
    assert message
    world.document = None


def _entry(world: TinyWorld, message: Mapping[str, Any] | None) -> None:
    if message is None:
        world.entry = None
        return
    if world.entry is None:
        world.make_entry()
    assert world.entry is not None
    entry = replace(world.entry, **{name: message[name] for name in ("owner",) if name in message})
    entry = replace(entry, state=EntryState(message.get("state", entry.state.value)))
    if "id" in message:
        entry = replace(entry, id=UUID(message["id"]))
    if "changed" in message:
        entry = replace(entry, changed_us=_time_us(world, message["changed"]))
    if "spec" in message:
        entry = replace(entry, document={**entry.document, "spec": {**entry.spec, **message["spec"]}})
    if "next" in message:
        number, shards, from_, sure = message["next"]
        announced = Generation(number, shards, _time_us(world, from_))
        sure_us = None if sure is None else _time_us(world, sure)
        entry = replace(entry, generations=Generations(entry.generations.current, announced, sure_us))
        world.lanes_made.add((number, shards))
    world.entry = entry
    world.owner_lives = UNKNOWN if message.get("owner_lives") == "unknown" else bool(message.get("owner_lives"))


def _tables(world: TinyWorld, message: Mapping[str, Any]) -> None:
    if message.get("shared"):
        world.there |= world.tables()
        world.noted |= world.tables()
    for end in message.get("dropped", ()):
        world.there = {name for name in world.there if not name.endswith(end)}
    for end in message.get("missing", ()):
        world.there = {name for name in world.there if not name.endswith(end)}
        world.noted = {name for name in world.noted if not name.endswith(end)}
    world.tables_total = message.get("total", world.tables_total)
    world.catalogue_there = message.get("catalogue", True)
    world.keyspace_there = message.get("keyspace", True)
    world.drifts = tuple(_drift(world, **each) for each in message.get("drifts", ()))


def _drift(world: TinyWorld, table: str, what: str, wanted: str, actual: str, cql: str | None = None) -> Drift:
    name = next(name for name in sorted(world.there) if name.endswith(table))
    standing = DriftStatus.MENDABLE if cql else DriftStatus.BY_HAND
    return Drift(name, what, wanted, actual, standing, cql and cql.format(name))


def _unread(world: TinyWorld, message: object) -> Any:
    return UNKNOWN if message == "unknown" else _failures(world, message)


def _failures(world: TinyWorld, message: Any) -> ResourceFailure:
    since_us = _time_us(world, message["since"]) if "since" in message else 0
    return ResourceFailure(Reason(message["reason"]), message["message"], since_us)


def _live(world: TinyWorld, message: Mapping[str, Any]) -> None:
    for start in message.get("delete", ()):
        for child in [child for child in world.live if f"{child.kind}/{child.name}".startswith(start)]:
            del world.live[child]
            world.checked.discard(child)
    for start, part in message.get("edit", {}).items():
        for child, document in world.live.items():
            if f"{child.kind}/{child.name}".startswith(start):
                _merge(document, part)


def _merge(node: dict[str, Any], part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping) and isinstance(node.get(name), dict):
            _merge(node[name], value)
        else:
            node[name] = copy.deepcopy(value)


def _foreign(world: TinyWorld, message: Mapping[str, str]) -> None:
    for place, owner_value in message.items():
        kind, name = place.split("/")
        world.foreign[ChildName(kind, name)] = owner_value


def _refused(world: TinyWorld, message: Mapping[str, str]) -> None:
    """The server's answer to the first apply of the wanted objects."""
    plan = next(plan for plan in _ahead(world) if any(isinstance(effect, ApplyObject) for effect in plan.effects))
    for effect in plan.effects:
        if isinstance(effect, ApplyObject) and effect.document["kind"] in message:
            document = effect.document
            child = ChildName(document["kind"], document["metadata"]["name"])
            words = message[document["kind"]]
            world.answers[child] = LastApply(stamp_of(document) or "", None, words, world.now_us)
            world.checked.add(child)


def _ahead(world: TinyWorld) -> Iterator[ReconcilePlan]:
    trial = copy.deepcopy(world)
    while True:
        plan = trial.decide()
        yield plan
        trial.perform(plan)


def _siblings(world: TinyWorld, message: Any) -> None:
    world.siblings = (
        UNKNOWN
        if message == "unknown"
        else {name: Sibling(name, tuple(leads_to)) for name, leads_to in message.items()}
    )


def _figures(world: TinyWorld, message: Any) -> None:
    if message == "unknown":
        world.figures = UNKNOWN
        return
    later = tuple(LaterMark(_time_us(world, due), _time_us(world, until)) for due, until in message.get("later", ()))
    read = _time_us(world, message.get("read", "0s"))
    world.reads_on = bool(message.get("reads_on"))
    world.figures = _made(world, QueueLoad, {**message, "at_us": read, "later": later}, skip=("read", "reads_on"))


def _lanes(world: TinyWorld, message: Mapping[str, Any]) -> None:
    failures = {
        name: tuple(LaneProblem(*each) for each in message.get(name, ()))
        for name in ("unprocessed", "suspicious", "held")
    }
    world.lanes = LaneHealth(world.now_us, message.get("total", 4), message.get("leased", 4), **failures)


def _runs(world: TinyWorld, message: list[Mapping[str, Any]]) -> None:
    world.runs = tuple(
        _made(world, BulkRun, {"uid": f"uid-{each['name']}", "minute": number, **each})
        for number, each in enumerate(message, start=1)
    )


def _passes(world: TinyWorld, message: Mapping[str, Any]) -> Passes:
    return cast(Passes, _made(world, Passes, message))


def _pod(message: Mapping[str, Any]) -> PodStatus:
    return PodStatus(**message)


def _made(world: TinyWorld, kind: Callable[..., Any], message: Mapping[str, Any], skip: tuple[str, ...] = ()) -> Any:
    """A value of that kind; fields that end with _us may be written as ages."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    cells = {name: value for name, value in message.items() if name not in skip}
    assert set(cells) <= known, f"{set(cells) - known} are no fields of {kind}"
    return kind(
        **{
            name: _time_us(world, value) if name.endswith("_us") and isinstance(value, str) else value
            for name, value in cells.items()
        }
    )


def _began(world: TinyWorld, message: str) -> None:
    began_us = _time_us(world, message)
    world.memory = DecisionMemory(uid=UID, generation=1, began_us=began_us, busy_since_us=began_us)


def _started(world: TinyWorld, message: bool) -> None:
    """All due runs have started."""
    assert message
    world.settle()


def _forgotten(world: TinyWorld, message: bool) -> None:
    """The process was restarted."""
    assert message
    world.memory = DecisionMemory()


_CHANGES: Mapping[str, Callable[[TinyWorld, Any], None]] = {
    "after": _after,
    "began": _began,
    "forgotten": _forgotten,
    "started": _started,
    "metadata": _metadata,
    "conditions": _status,
    "gone": _gone,
    "entry": _entry,
    "tables": _tables,
    "store": lambda world, given: setattr(world, "unread_store", _unread(world, given)),
    "connection": lambda world, given: setattr(
        world, "connection", _connection(world, given) if "data_center" in given else _unread(world, given)
    ),
    "step": lambda world, given: setattr(world, "step_failure", _failures(world, given)),
    "namespace": lambda world, given: setattr(world, "namespace", _namespace(world, given)),
    "live": _live,
    "foreign": _foreign,
    "refused": _refused,
    "siblings": _siblings,
    "figures": _figures,
    "lanes": _lanes,
    "passes": lambda world, given: setattr(world, "passes", UNKNOWN if given == "unknown" else _passes(world, given)),
    "pods": lambda world, given: setattr(world, "pods", tuple(_pod(each) for each in given)),
    "runs": _runs,
    "spark_operator": lambda world, given: setattr(world, "spark_operator", given),
    "workers_ready": lambda world, given: setattr(world, "ready_max", given),
    "engines": lambda world, given: setattr(world, "settings", replace(world.settings, supported=frozenset(given))),
}


def _connection(world: TinyWorld, message: Mapping[str, Any]) -> Any:
    return replace(world.connection, **message)  # type: ignore[type-var]


def _namespace(world: TinyWorld, message: Mapping[str, Any]) -> NamespaceState:
    cells = {name: value for name, value in message.items() if name != "trouble"}
    failure = _failures(world, message["trouble"]) if "trouble" in message else None
    return NamespaceState(**{"ready": True, **cells}, failure=failure)


def _time_us(world: TinyWorld, text: str) -> int:
    """`-40s` is 40 seconds ago, `+2m` is in two minutes, `birth+3m` three minutes after it was made."""
    base_us, text = (NOW_US, text.removeprefix("birth")) if text.startswith("birth") else (world.now_us, text)
    if not text:
        return base_us
    sign = -1 if text.startswith("-") else 1
    return base_us + sign * _length_us(text.lstrip("+-"))


def _length_us(text: str) -> int:
    length_ms = Duration.parse(text)
    assert length_ms is not None, text
    return length_ms * 1000


# ---- as it is written


def _decisions(plans: list[ReconcilePlan], *, whole: bool) -> Iterator[dict[str, Any]]:
    for plan in plans:
        document: dict[str, Any] = {"trail": list(plan.trail)}
        if plan.ask:
            document["asks"] = [f"{child.kind}/{child.name}" for child in sorted(plan.ask)]
        if plan.effects:
            document["effects"] = [effect_of(effect, whole=whole) for effect in plan.effects]
        if plan.left_behind:
            document["notes"] = {"left_behind": 1}
        yield document


def effect_of(effect: Effect, *, whole: bool) -> Any:
    """An effect as plain YAML; documents and CQL only where the case is about them."""
    match effect:
        case StoreStep(step=step):
            values = {each.name: getattr(step, each.name) for each in fields(step)}
            numbers = {name: value for name, value in values.items() if isinstance(value, int)}
            about = next((values[name] for name in _ABOUT if name in values), None)
            named = f" {getattr(about, 'name', None) or getattr(about, 'number', None) or about}" if about else ""
            return {"store": f"{type(step).__name__}{named}", **numbers}
        case ApplyObject(document=document, manager=manager, force=force):
            how = {} if force else {"force": False}
            by = {} if manager == "headgate" else {"manager": manager}
            return {"apply": _plain(document) if whole else _short(document), **by, **how}
        case DeleteObject(kind=kind, name=name, uid=uid, propagation=propagation):
            return {"delete": f"{kind}/{name}", "uid": uid, "propagation": propagation}
        case PatchStatus(status=status):
            return {"status": {one["type"]: f"{one['status']} {one['reason']}" for one in status["conditions"]}}
        case StopLane(lane=lane, epoch=epoch):
            return {"stop": lane, "epoch": epoch}
        case Emit(reason=reason, note=note, type=type_):
            return {"event": reason, "type": type_, "note": note}


_ABOUT = ("table", "name", "keyspace", "generation")


def _short(document: Mapping[str, Any]) -> dict[str, Any]:
    """The important fields of a document that another case shows whole."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    decoded: dict[str, Any] = {"object": f"{document['kind']}/{metadata['name']}"}
    decoded |= {name: metadata[name] for name in ("uid", "finalizers") if name in metadata}
    if document["kind"] == "Deployment":
        decoded["replicas"] = spec.get("replicas", "left out")
    return decoded


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _statements(plan: ReconcilePlan) -> Iterator[str]:
    """The CQL of a plan; an entry is written by LWT."""
    for effect in plan.effects:
        if isinstance(effect, StoreStep):
            cql = getattr(effect.step, "cql", None)
            yield cql or f"-- {type(effect.step).__name__}, by LWT"


class _Written(yaml.SafeDumper):
    """Without anchors, and words of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written(case: Case) -> str:
    """The whole file, with what follows."""
    given = {name: part for name, part in case.items() if name != "then"}
    return yaml.dump(
        {**given, "then": outcome(case)}, Dumper=_Written, sort_keys=False, width=118, allow_unicode=True
    )
