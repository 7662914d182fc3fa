"""The results of decisions, for people: the last decisions of each key with their inputs, for `/why` and
`kubectl headgate why`, and the failing conditions of all resources, for metrics.

Decisions are kept as plain JSON and no values of ours, so that an old one holds nothing else in memory. Conditions
are noted at each decision, so that a scrape reads known values and parses nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from headgate_operator.model.names import Key
from headgate_operator.model.plan import PatchStatus, ReconcilePlan, StoreStep
from headgate_operator.model.world import NamespaceWorld, ResourceWorld

KEPT: Final = 20
KEYS_MAX: Final = 5_000
TEXT_MAX: Final = 4_000
_PLAIN: Final = frozenset((str, int, float, bool))
SECRET_KEYS: Final = frozenset({"receipt_key", "data", "stringData", "password"})


class DecisionLog:
    def __init__(self, *, kept: int = KEPT, keys_max: int = KEYS_MAX) -> None:
        self._kept = kept
        self._keys_max = keys_max
        self._of: OrderedDict[Key, deque[bytes]] = OrderedDict()

    def add(
        self, key: Key, at_us: int, world: ResourceWorld | NamespaceWorld, plan: ReconcilePlan, *, outcome: str = ""
    ) -> None:
        """Keep one; a plan without effects that equals the one before it is not kept again."""
        decision = {
            "effects": [effect_words(effect) for effect in plan.effects],
            "asks": sorted(f"{child.kind} {child.name}" for child in plan.ask),
            "trail": list(plan.trail),
        }
        lines = self._of.setdefault(key, deque(maxlen=self._kept))
        self._of.move_to_end(key)
        if not plan.effects and lines and _is_same(lines[-1], decision):
            return
        entry = {
            "at_us": at_us,
            **decision,
            "again_at_us": plan.again_at_us,
            "outcome": outcome,
            "rested_on": _inputs(world),
        }
        lines.append(json.dumps(entry, default=str, separators=(",", ":")).encode())
        while len(self._of) > self._keys_max:
            self._of.popitem(last=False)

    def of(self, key: Key) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._of.get(key, ())]

    def forget(self, key: Key) -> None:
        self._of.pop(key, None)


def effect_words(effect: object) -> str:
    if isinstance(effect, StoreStep):
        return f"{type(effect.step).__name__} {_about(effect.step)}".strip()
    return f"{type(effect).__name__} {_about(effect)}".strip()


def plain(value: object) -> Any:
    """A value of ours as JSON, without what is secret."""
    if value is None or type(value) in _PLAIN:
        return value
    type_: Any = type(value)
    names = _fields(type_)
    if names is not None:
        fields = ((name, getattr(value, name)) for name in names if name not in SECRET_KEYS)
        return {name: plain(each) for name, each in fields if each is not None}
    if isinstance(value, Mapping):
        return {_word(key): plain(each) for key, each in value.items() if _word(key) not in SECRET_KEYS}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in (value if isinstance(value, list | tuple) else sorted(value, key=str))]
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float | bool) else str(value)


@cache
def _fields(type_: Any) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(type_)) if dataclasses.is_dataclass(type_) else None


def _word(key: object) -> str:
    if type(key) is str:
        return key
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        return " ".join(str(part) for part in dataclasses.astuple(key))
    return str(key)


def _about(effect: object) -> str:
    document = getattr(effect, "document", None)
    if isinstance(document, Mapping) and "metadata" in document:
        return f"{document['kind']} {document['metadata']['name']}"
    for name in ("table", "keyspace"):
        value = getattr(effect, name, None)
        if value is not None and hasattr(value, "name"):
            return str(value.name)
    for name in ("name", "names", "number", "lane", "reason", "key"):
        value = getattr(effect, name, None)
        if value is not None:
            return ", ".join(value) if isinstance(value, tuple) else str(value)
    return ""


def _inputs(world: ResourceWorld | NamespaceWorld) -> Any:
    """The inputs of a decision, without documents, which are in the cluster."""
    if isinstance(world, NamespaceWorld):
        return {"live": sorted(f"{child.kind} {child.name}" for child in world.live), "groups": plain(world.groups)}
    present = world.resource
    return {
        "generation": None if present is None else present.meta.generation,
        "deleting": present is not None and present.meta.deleting_since_us is not None,
        "namespace": plain(world.namespace),
        "live": {f"{child.kind} {child.name}": _live(document) for child, document in world.live.items()},
        "foreign": plain(world.foreign),
        "connection": plain(world.connection),
        "store": _cut(plain(world.store)),
        "figures": plain(world.figures),
        "lanes": plain(world.lanes),
        "passes": plain(world.passes),
        "runs": plain(world.runs),
        "pods": plain(world.pods),
    }


def _live(document: Mapping[str, Any]) -> Any:
    return {
        "resourceVersion": document["metadata"].get("resourceVersion"),
        "replicas": (document.get("spec") or {}).get("replicas"),
        "ready": (document.get("status") or {}).get("readyReplicas"),
    }


def _cut(value: Any) -> Any:
    text = json.dumps(value, default=str)
    return value if len(text) <= TEXT_MAX else text[:TEXT_MAX]


def _is_same(line: bytes, decision: Mapping[str, Any]) -> bool:
    known = json.loads(line)
    return all(known[name] == value for name, value in decision.items())


BAD_WHEN_TRUE: Final = frozenset(("Reconciling", "Stalled"))
READY: Final = "Ready"


@dataclass(frozen=True)
class ResourceConditions:
    ready: str
    """True, False or Unknown."""
    problems: tuple[tuple[str, str], ...]
    """(condition, reason) of each failing condition."""


class ConditionMetrics:
    def __init__(self) -> None:
        self._conditions: dict[Key, ResourceConditions] = {}

    def note(self, key: Key, world: ResourceWorld, plan: ReconcilePlan) -> None:
        """Note the status of this decision, or else the present one."""
        if world.resource is None:
            self._conditions.pop(key, None)
            return
        status: Mapping[str, Any] = world.resource.document.get("status") or {}
        for effect in plan.effects:
            if isinstance(effect, PatchStatus):
                status = effect.status
        self._conditions[key] = conditions_in(status)

    def forget(self, key: Key) -> None:
        self._conditions.pop(key, None)

    def problems(self) -> Iterator[tuple[Key, str, str]]:
        for key, conditions in self._conditions.items():
            for condition, reason in conditions.problems:
                yield key, condition, reason

    def counted(self) -> Mapping[tuple[str, str], int]:
        return Counter((key.kind, conditions.ready) for key, conditions in self._conditions.items())


def conditions_in(status: Mapping[str, Any]) -> ResourceConditions:
    ready, problems = "Unknown", []
    for each in status.get("conditions") or ():
        condition, holds = str(each["type"]), str(each["status"])
        if condition == READY:
            ready = holds
        if holds == ("True" if condition in BAD_WHEN_TRUE else "False"):
            problems.append((condition, str(each.get("reason", ""))))
    return ResourceConditions(ready, tuple(problems))
