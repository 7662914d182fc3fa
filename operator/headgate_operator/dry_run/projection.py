"""All changes that the operator would make for some resources, from decision to decision, without making them.

    ahead = PlanProjection(worlds, namespaces, now_us)
    while ahead.turn():
        pass                # or, with a cluster: answer the questions in `ahead.asks`
    ahead.done              # the changes, in their order

It decides as the operator does, by `decide/resource.py` and `decide/namespace.py`, key after key, and imagines the
result (effects_on_world.py). The operator works on many keys at once; here one follows the other, which is one of the
possible orders. Times that are close (a status that is held back for a second) are skipped.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid5

from headgate.applying.decide_steps import DeclareEntry
from headgate.errors import Bug
from headgate.expiry import SECOND_US
from headgate.store.catalogue.entry import EntryState
from headgate_operator.decide.namespace import build_namespace_identity, decide_namespace
from headgate_operator.decide.resource import decide
from headgate_operator.dry_run.effects_on_world import Schema, after
from headgate_operator.model.names import Key, namespace_key
from headgate_operator.model.plan import Effect, PatchStatus, ReconcilePlan, StoreStep
from headgate_operator.model.world import (
    ChildName,
    DecisionMemory,
    JobGroup,
    NamespaceState,
    NamespaceWorld,
    Nothing,
    PresentResource,
    ResourceWorld,
    StoreConnection,
    StoreView,
)

TURNS_MAX: Final = 2_000
SOON_US: Final = 10 * SECOND_US
_IDS: Final = UUID("8a9c1a3c-3f62-5a55-9a55-3d5f0b6d1c52")


@dataclass(frozen=True)
class PlannedEffect:
    key: Key
    effect: Effect


@dataclass
class PlanProjection:
    worlds: dict[Key, ResourceWorld]
    namespaces: dict[str, NamespaceWorld]
    now_us: int
    memories: dict[Key, DecisionMemory] = field(default_factory=dict)
    done: list[PlannedEffect] = field(default_factory=list)
    trails: dict[Key, list[str]] = field(default_factory=dict)
    plans: dict[Key, ReconcilePlan] = field(default_factory=dict)
    """The last decision of each key."""
    asks: dict[Key, frozenset[ChildName]] = field(default_factory=dict)
    """Names that the last turn needs to be free; they count as free unless answered otherwise (`answer`)."""
    new_ids: dict[UUID, Key] = field(default_factory=dict)
    """Placeholders of the ids of new entries, with their owners."""
    _schemas: dict[str, Schema] = field(default_factory=dict)
    _turns: int = 0

    def __post_init__(self) -> None:
        for key, world in [*self.worlds.items()]:
            self.add(key, world)

    def add(self, key: Key, world: ResourceWorld) -> None:
        self.worlds[key] = world
        connection, store = world.connection, world.store
        if isinstance(connection, StoreConnection) and isinstance(store, StoreView):
            schema = self._schemas.get(connection.digest, Schema())
            self._schemas[connection.digest] = schema.with_view(connection.keyspace, _keyspace(world), store)

    def answer(self, key: Key, taken: Mapping[ChildName, str]) -> None:
        """The owners of the objects that have these names; the other names are free."""
        around = self._around(key)
        self._set(key, replace(around, checked=around.checked - {*taken}, foreign={**around.foreign, **taken}))

    def turn(self) -> bool:
        """The next decision that has anything to it; whether there was one."""
        self.asks = {}
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise Bug("The plan does not end", keys=", ".join(key.path for key in self.worlds))
        for key in [*self.worlds, *map(namespace_key, self.namespaces)]:
            plan = self._namespace(key) if key.kind == "Namespace" else self._resource(key)
            self.plans[key] = plan
            if not plan.is_settled:
                if plan.ask:
                    self.asks[key] = plan.ask
                self._perform(key, plan)
                return True
        return self._wait()

    # ---- within

    def _resource(self, key: Key) -> ReconcilePlan:
        plan = decide(self._current(key), self.memories.get(key, DecisionMemory()), self.now_us)
        self.memories[key] = plan.memory
        trail = self.trails.setdefault(key, [])
        trail += [sentence for sentence in plan.trail if sentence not in trail]
        return plan

    def _current(self, key: Key) -> ResourceWorld:
        """As it is now, with what other keys have made."""
        world = self.worlds[key]
        connection, store = world.connection, world.store
        if isinstance(connection, StoreConnection) and isinstance(store, StoreView):
            schema = self._schemas[connection.digest]
            world = replace(world, store=schema.shown(connection.keyspace, _keyspace(world), store))
        stand = self._stand(key.namespace)
        return world if stand is None else replace(world, namespace=stand)

    def _stand(self, namespace: str) -> NamespaceState | None:
        if namespace not in self.namespaces:
            return None
        plan = self.plans.get(namespace_key(namespace))
        known = plan.namespace if plan else None
        return known or build_namespace_identity(self.namespaces[namespace])

    def _namespace(self, key: Key) -> ReconcilePlan:
        world = self.namespaces[key.namespace]
        fresh = [fresh_world for each, fresh_world in self.worlds.items() if each.namespace == key.namespace]
        return decide_namespace(_wanting(world, fresh), self.now_us, self.memories.get(key, DecisionMemory()))

    def _around(self, key: Key) -> ResourceWorld | NamespaceWorld:
        return self.namespaces[key.namespace] if key.kind == "Namespace" else self.worlds[key]

    def _set(self, key: Key, around: ResourceWorld | NamespaceWorld) -> None:
        if isinstance(around, NamespaceWorld):
            self.namespaces[key.namespace] = around
        else:
            self.worlds[key] = around

    def _perform(self, key: Key, plan: ReconcilePlan) -> None:
        around = self._around(key)
        around = replace(around, checked=around.checked | plan.ask)
        for effect in plan.effects:
            around = after(around, effect, self.now_us, new_id=self._new_id(key, effect))
            self._share(effect)
        self._set(key, around)
        self.done += [PlannedEffect(key, effect) for effect in plan.effects]

    def _new_id(self, key: Key, effect: Effect) -> UUID:
        id_ = uuid5(_IDS, key.path)
        if isinstance(effect, StoreStep) and isinstance(effect.step, DeclareEntry):
            self.new_ids[id_] = key
        return id_

    def _share(self, effect: Effect) -> None:
        if isinstance(effect, StoreStep):
            digest = effect.connection.digest
            self._schemas[digest] = self._schemas[digest].after(effect.step)

    def _wait(self) -> bool:
        """Continue at the next time of a decision, if it is close and something is left to do."""
        owing = [key for key in self.worlds if not self._is_reported(key)]
        times = [at_us for key in owing if (at_us := self.plans[key].again_at_us) is not None]
        if not times or min(times) <= self.now_us or min(times) > self.now_us + SOON_US:
            return False
        self.now_us = min(times)
        return True

    def _is_reported(self, key: Key) -> bool:
        present = self.worlds[key].resource
        if present is None:
            return True
        status = present.document.get("status") or {}
        return bool(status.get("observedGeneration") == present.meta.generation) and any(
            isinstance(one.effect, PatchStatus) and one.key == key for one in self.done
        )


def _keyspace(world: ResourceWorld) -> str:
    store, connection, present = world.store, world.connection, world.resource
    if isinstance(store, StoreView) and store.entry is not None:
        return store.entry.place.keyspace
    keyspace = None
    if isinstance(present, PresentResource) and not isinstance(present.parsed, tuple):
        keyspace = present.parsed.spec.storage.keyspace
    return keyspace or (connection.keyspace if isinstance(connection, StoreConnection) else "")


def _wanting(world: NamespaceWorld, resources: Iterable[ResourceWorld]) -> NamespaceWorld:
    """With what these resources need of it beside all others."""
    groups = world.groups
    for each in resources:
        present = each.resource
        if present is None or isinstance(present.parsed, tuple):
            continue
        if not each.settings.supports(present.parsed):
            continue
        is_active = _is_active(each)
        if is_active and not isinstance(groups, Nothing):
            groups = groups | {JobGroup.of(present.parsed, each.settings)}
        spec = present.parsed.spec
        world = replace(
            world,
            groups=groups,
            wants_workers=world.wants_workers or is_active or bool(getattr(spec, "consumers", None)),
            wants_copy=world.wants_copy or spec.storage.connection_secret is None,
            wants_spark=world.wants_spark or bool(getattr(spec, "bulk", None)),
        )
    return world


def _is_active(world: ResourceWorld) -> bool:
    store = world.store
    return isinstance(store, StoreView) and store.entry is not None and store.entry.state is EntryState.ACTIVE
