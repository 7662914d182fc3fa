"""A tiny world for the operator's decisions: what a plan wants is done at once, and the next decision sees it.

No server, no store, no time of its own: one resource, its children, its entry. What is done to them is the least that
a cluster and Cassandra would do, so that a test can ask for the fixed point. Whole simulations, with an
API server and crashes, are elsewhere (tests/simulation).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headgate.api.read.parse import check_resource
from headgate.applying import decide_steps as steps
from headgate.applying.desired_state import PlacementDefaults, wanted_of
from headgate.engines.registry import ENGINE_MODULES, tables_of
from headgate.expiry import SECOND_US
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import Entry, EntryState
from headgate.store.model.drift import Drift
from headgate_operator.decide.resource import decide
from headgate_operator.dry_run.effects_on_world import after
from headgate_operator.model.names import FINALIZER, MANAGER, Key, application_name, owner_of
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
    LastApply,
    Meta,
    NamespaceState,
    OperatorSettings,
    Passes,
    PodStatus,
    PresentResource,
    QueueLoad,
    ResourceFailure,
    ResourceWorld,
    Sibling,
    StoreConnection,
    StoreView,
    Unread,
)

NOW_US = int(datetime(2026, 11, 18, 9, 0, tzinfo=UTC).timestamp()) * SECOND_US
CLUSTER = "c1"
UID = "u1"
ENTRY_ID = UUID("11111111-2222-4333-8444-555555555555")
CONNECTION = StoreConnection("headgate-connection", "d1", "headgate", "dc1", 3, is_copy=True)
SETTINGS = OperatorSettings(
    cluster=CLUSTER,
    version="0.9.0",
    image="headgate:0.9.0",
    spark_image="headgate-spark:0.9.0",
    supported=frozenset(ENGINE_MODULES),
)
EMAILS = Key("Queue", "shop", "emails")
READY = NamespaceState(ready=True)
NO_PASSES = Passes()
ROUNDS_MAX = 24


def reported_at(at_us: int) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(at_us // SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def resource_document(kind: str, spec: Mapping[str, Any], *, name: str = "emails") -> dict[str, Any]:
    """A resource as the API server has it."""
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": reported_at(NOW_US),
        },
        "spec": copy.deepcopy(dict(spec)),
    }


@dataclass
class TinyWorld:
    """All that one decision sees, and what becomes of it."""

    document: dict[str, Any] | None
    key: Key = EMAILS
    now_us: int = NOW_US
    settings: OperatorSettings = SETTINGS
    namespace: NamespaceState = READY
    live: dict[ChildName, dict[str, Any]] = field(default_factory=dict)
    foreign: dict[ChildName, str] = field(default_factory=dict)
    checked: set[ChildName] = field(default_factory=set)
    answers: dict[ChildName, LastApply] = field(default_factory=dict)
    siblings: dict[str, Sibling] | Unread = field(default_factory=dict)
    connection: StoreConnection | ResourceFailure | Unread = CONNECTION
    unread_store: ResourceFailure | Unread | None = None
    """Replaces the answers of the store."""
    step_failure: ResourceFailure | None = None
    figures: QueueLoad | Unread = UNKNOWN
    reads_on: bool = False
    """Whether the figures are read again all the time, and stay the same."""
    lanes: LaneHealth | Unread = UNKNOWN
    passes: Passes | Unread = NO_PASSES
    runs: tuple[BulkRun, ...] = ()
    pods: tuple[PodStatus, ...] = ()
    spark_operator: bool = True
    ready_max: int = 1000
    """This number of the requested workers becomes ready at once."""
    memory: DecisionMemory = field(default_factory=DecisionMemory)

    entry: Entry | None = None
    owner_lives: bool | Unread = False
    keyspace_there: bool = True
    catalogue_there: bool = True
    there: set[str] = field(default_factory=set)
    noted: set[str] = field(default_factory=set)
    drifts: tuple[Drift, ...] = ()
    tables_total: int = 40
    lanes_made: set[tuple[int, int]] = field(default_factory=set)
    """(generation, shards) whose lanes are there."""
    dropped: list[str] = field(default_factory=list)
    events: list[Emit] = field(default_factory=list)
    stops: list[StopLane] = field(default_factory=list)

    # ---- seen

    def world(self) -> ResourceWorld:
        """As `observe` would give it."""
        return ResourceWorld(
            key=self.key,
            settings=self.settings,
            resource=self._present(),
            namespace=self.namespace,
            live=copy.deepcopy(self.live),
            foreign=dict(self.foreign),
            checked=frozenset(self.checked),
            answers=dict(self.answers),
            siblings=UNKNOWN if isinstance(self.siblings, type(UNKNOWN)) else dict(self.siblings),
            connection=self.connection,
            store=self.unread_store if self.unread_store is not None else self._store(),
            step_failure=self.step_failure,
            figures=replace(self.figures, at_us=self.now_us)
            if self.reads_on and isinstance(self.figures, QueueLoad)
            else self.figures,
            lanes=self.lanes,
            passes=self.passes,
            runs=self._runs(),
            pods=self.pods,
            spark_operator=self.spark_operator,
        )

    def decide(self) -> ReconcilePlan:
        """The plan for now."""
        return decide(self.world(), self.memory, self.now_us)

    def _present(self) -> PresentResource | None:
        if self.document is None:
            return None
        metadata = self.document["metadata"]
        result = check_resource({name: part for name, part in self.document.items() if name != "status"})
        meta = Meta(
            uid=metadata["uid"],
            generation=metadata["generation"],
            created_us=_read(metadata["creationTimestamp"]),
            deleting_since_us=_read(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
            finalizers=tuple(metadata.get("finalizers", ())),
            annotations=dict(metadata.get("annotations", {})),
        )
        return PresentResource(
            copy.deepcopy(self.document), meta, tuple(result) if isinstance(result, list) else result
        )

    def _store(self) -> StoreView:
        return StoreView(
            entry=self.entry if self.entry and self.entry.state is not EntryState.GONE else None,
            owner_lives=self.owner_lives,
            tables_made=frozenset(self.noted),
            tables_there=frozenset(self.there),
            tables_total=self.tables_total,
            drifts=self.drifts,
            catalogue_there=self.catalogue_there,
            keyspace_there=self.keyspace_there,
        )

    def _runs(self) -> tuple[BulkRun, ...]:
        values = {run.name for run in self.runs}
        fresh = (
            BulkRun(
                bulk=document["metadata"]["labels"]["headgate.io/bulk"],
                name=child.name,
                uid=document["metadata"]["uid"],
                minute=int(child.name.rpartition("-")[2], 36),
                state="Pending",
            )
            for child, document in self.live.items()
            if child.kind == "SparkApplication" and child.name not in values
        )
        return (*self.runs, *fresh)

    # ---- done

    def settle(self, until_us: int = 0, rounds_max: int = ROUNDS_MAX) -> list[ReconcilePlan]:
        """Decide and perform until nothing is left to do: now, and up to a given time. A status that is held back is
        waited for. It ends as well where the same is tried again and again, which only a refused step may be."""
        plans: list[ReconcilePlan] = []
        for _ in range(rounds_max):
            plan = self.decide()
            plans.append(plan)
            self.perform(plan)
            if not plan.is_settled:
                if self.step_failure is not None and len(plans) > 1 and plan.effects == plans[-2].effects:
                    return plans
                continue
            again_us = plan.again_at_us
            soon_us = self.now_us + 5 * SECOND_US if self.owes_status() else 0
            if again_us is None or again_us > max(until_us, soon_us):
                return plans
            self.now_us = max(self.now_us, again_us)
        raise AssertionError(f"it does not settle: {plans[-1].trail}")

    def owes_status(self) -> bool:
        """Whether a status is owed of this generation."""
        if self.document is None:
            return False
        report = self.document.get("status", {}).get("observedGeneration")
        return bool(report != self.document["metadata"]["generation"])

    def perform(self, plan: ReconcilePlan) -> None:
        """All of it, in order."""
        self.memory = plan.memory
        self.checked |= plan.ask
        for effect in plan.effects:
            self.do(effect)

    def do(self, effect: Effect) -> None:
        """One effect."""
        match effect:
            case StoreStep():
                if self.step_failure is None:
                    self._step(effect)
            case ApplyObject():
                self._apply(effect)
            case DeleteObject(kind=kind, name=name):
                self.live.pop(ChildName(kind, name), None)
                self.runs = tuple(run for run in self.runs if kind != "SparkApplication" or run.name != name)
            case PatchStatus(uid=uid, status=status):
                if self.document is not None and self.document["metadata"]["uid"] == uid:
                    self.document["status"] = copy.deepcopy(dict(status))
            case StopLane():
                self.stops.append(effect)
            case Emit():
                self.events.append(effect)

    def _step(self, effect: StoreStep) -> None:
        match step := effect.step:
            case steps.CreateKeyspace():
                self.keyspace_there = True
            case steps.CreateTable(table=table):
                self.catalogue_there = True
                assert table.name not in self.noted, "an existing table is created again"
                self.there.add(table.name)
            case steps.NoteTables(names=names):
                assert set(names) <= self.there, "what is not there is noted"
                self.noted |= set(names)
            case steps.DropTable(name=name):
                self.there.discard(name)
                self.dropped.append(name)
            case steps.ForgetRows():
                self.dropped.append("rows")
            case steps.MakeLanes(generation=generation):
                self.lanes_made.add((generation.number, generation.shards))
            case _:
                self._check_entry(step)
                self._imagine(effect)

    def _imagine(self, effect: StoreStep) -> None:
        """The entry and its tables as the product's dry run has them after the step."""
        world = replace(self.world(), store=self._store())
        view = after(world, effect, self.now_us, new_id=ENTRY_ID).store
        assert isinstance(view, StoreView)
        self.entry, self.drifts = view.entry, view.drifts

    def _check_entry(self, step: steps.Step) -> None:
        """That the step is one that the catalogue would take now."""
        entry = self.entry
        match step:
            case steps.DeclareEntry(owner=owner):
                free = entry is None or entry.state is EntryState.GONE
                assert free or (entry and entry.owner == owner), "somebody else's entry is changed"
                return
            case steps.FixDrift():
                return
        assert entry is not None, f"{step} of an entry that is not there"
        match step:
            case steps.Activate():
                lanes = {(window.number, window.shards) for window in entry.generations.windows()}
                assert lanes <= self.lanes_made or step.entry.name.kind == "Counter"
            case steps.Announce(number=number, shards=shards):
                assert (number, shards) in self.lanes_made, "lanes come before their generation is announced"

    def _apply(self, effect: ApplyObject) -> None:
        message = copy.deepcopy(dict(effect.document))
        metadata = message["metadata"]
        if message["kind"] in ("Queue", "Counter"):
            assert self.document is not None
            if metadata["uid"] == self.document["metadata"]["uid"]:
                self._set_finalizers(metadata.get("finalizers", []))
            return
        child = ChildName(message["kind"], metadata["name"])
        standing = self.live.get(child)
        if standing is None and ("uid" in metadata or child not in self.checked):
            raise AssertionError(f"{child} is applied without a check")
        if standing is not None and metadata.get("uid") != standing["metadata"]["uid"]:
            raise AssertionError(f"{child} is applied without its uid")
        self.live[child] = _merged(standing, message, effect.manager, uid=f"uid-{len(self.checked)}-{child.name}")
        self._control(child)

    def _set_finalizers(self, finalizers: list[str]) -> None:
        """These alone; without any, what is being deleted goes."""
        assert self.document is not None
        metadata = self.document["metadata"]
        metadata["finalizers"] = finalizers
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            self.document = None
            self.live.clear()

    def _control(self, child: ChildName) -> None:
        """The work of the cluster's controllers on a child."""
        if child.kind != "Deployment":
            return
        live = self.live[child]
        replicas = live["spec"].get("replicas", 1)
        live["spec"]["replicas"] = replicas
        live["status"] = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": min(replicas, self.ready_max),
        }

    # ---- changed from outside

    def edit(self, spec: Mapping[str, Any]) -> None:
        """The author changes the spec."""
        assert self.document is not None
        self.document["spec"] = copy.deepcopy(dict(spec))
        self.document["metadata"]["generation"] += 1

    def delete(self) -> None:
        """Somebody deletes the resource."""
        assert self.document is not None
        self.document["metadata"]["deletionTimestamp"] = reported_at(self.now_us)

    def tables(self) -> set[str]:
        """The tables that its creation needs."""
        present = self._present()
        assert present is not None and not isinstance(present.parsed, tuple)
        return {table.name for table in tables_of(present.parsed, ENTRY_ID) or ()}

    def make_entry(
        self, *, owner: str = "", state: EntryState = EntryState.ACTIVE, shards: int | None = None
    ) -> None:
        """An entry that stands already, with its tables."""
        present = self._present()
        assert present is not None and not isinstance(present.parsed, tuple)
        wanted = wanted_of(present.parsed, PlacementDefaults("headgate", "dc1", 3))
        shards = wanted.shards if shards is None else shards
        owner = owner or owner_of(CLUSTER, UID)
        self.entry = Entry(wanted.name, ENTRY_ID, owner, state, 1, wanted.document, wanted.place, first(shards), 0)
        self.there |= self.tables()
        self.noted |= self.tables()
        self.lanes_made.add((1, shards))


def _merged(standing: dict[str, Any] | None, message: dict[str, Any], manager: str, *, uid: str) -> dict[str, Any]:
    """Apply a manager's fields to the object; only for replicas does it matter which managers set them."""
    before = standing or {"metadata": {"uid": uid, "generation": 0, "managedFields": []}, "spec": {}}
    replicas = before["spec"].get("replicas")
    managers = {entry["manager"] for entry in before["metadata"]["managedFields"]} - {manager}
    after = copy.deepcopy(before) | {"apiVersion": message["apiVersion"], "kind": message["kind"]}
    if manager == MANAGER:
        after = message
        after.setdefault("spec", {})
    if "replicas" in message.get("spec", {}):
        replicas = message["spec"]["replicas"]
        managers.add(manager)
    elif not managers:
        replicas = 1 if standing is not None else None
    if message["kind"] == "Deployment" and replicas is not None:
        after["spec"]["replicas"] = replicas
    changed = standing is None or before["spec"] != after["spec"]
    after["metadata"] = {
        **after["metadata"],
        "uid": before["metadata"]["uid"],
        "generation": before["metadata"]["generation"] + changed,
        "managedFields": [
            {"manager": each, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            for each in sorted(managers)
        ],
    }
    return after


def _read(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * SECOND_US


def has_finalizer(world: TinyWorld) -> bool:
    """Whether our finalizer is on the resource."""
    return world.document is not None and FINALIZER in world.document["metadata"].get("finalizers", ())


__all__ = ["NOW_US", "TinyWorld", "application_name", "has_finalizer", "resource_document"]
