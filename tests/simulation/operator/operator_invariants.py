"""Invariants of a cluster and its store once an operator has had its time; and at all times before.

docs/internals/protocols/operator.md, "The simulation". Each returns the sentences of what does not hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from headgate.engines.registry import tables_of_entry
from headgate.engines.timeline.model.from_catalogue import tables_of_entry as timeline_tables
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Entry, EntryState, Name, StoragePlace
from headgate.store.clock.clock import Clock
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import (
    COUNTER,
    CRON_JOB,
    DEPLOYMENT,
    LEASE,
    NAMESPACE,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
from headgate_operator.model.names import FINALIZER, owner_parts
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulated_store.store import SimulatedTime
from tests.simulation.operator.operator_scene import KEYSPACE, SYSTEM, Running, Scene, condition

STRANGER = Name("Queue", "shop", "strangers")
STATUS_EVERY_S = 4.5
NEAR_S = 35.0
"""A status that is due is written within seconds, and workers go after half a minute without work."""
CHILDREN = (DEPLOYMENT, POD_DISRUPTION_BUDGET, CRON_JOB, SERVICE_ACCOUNT, ROLE_BINDING, SECRET)


class Judge:
    """Checks a scene."""

    def __init__(self, scene: Scene, *, clocks_are_steady: bool = True) -> None:
        self.scene = scene
        self.clocks_are_steady = clocks_are_steady
        self._planted: Entry | None = None

    async def plant(self) -> None:
        """An entry of somebody else's, which nobody may change."""
        process = self.scene.world.process("planter")

        async def work() -> Entry:
            from headgate.store.catalogue.tables import CATALOGUE_TABLES

            schema = self.scene.schema
            schema.keyspaces.add(KEYSPACE)
            schema.tables.setdefault(KEYSPACE, {}).update({table.name: table for table in CATALOGUE_TABLES})
            store = SimulatedStore(self.scene.ring, process)
            async with Clock(store, source=SimulatedTime(process)) as clock:
                catalogue = Catalogue(
                    store,
                    now_us=clock.require,
                    owner="operator/another-cluster/uid",
                    new_uuid=process.uuid,
                    new_key=lambda: process.rng.randbytes(32),
                )
                declared = await catalogue.declare(
                    STRANGER, {"spec": {}}, place=StoragePlace("dc1", KEYSPACE, "shared"), shards=1
                )
                return declared.entry

        self._planted = await process.start(work())

    # ---- is it over

    async def until_settled(self, within_s: float) -> list[str]:
        """Wait until nothing is to be done and nothing waits; what is left to be done after that time."""
        deadline_s = self.scene.world.now_s() + within_s
        while True:
            left = await self._left()
            if not left:
                return []
            if self.scene.world.now_s() > deadline_s:
                return [f"not settled: {line}" for line in left]
            await asyncio.sleep(3.0)

    async def _left(self) -> list[str]:
        leader = self._leader()
        if leader is None or leader.operator is None or not leader.operator.listed.is_set():
            return ["nobody leads"]
        operator = leader.operator
        left = [f"{each} is being deleted" for each in self._deleted()]
        left += [f"{name} has {condition(each)}" for name, each in self._resources() if _is_moving(each)]
        left += [f"{name} was not heard of yet" for name in self._unheard(leader)]
        if not operator.queue.is_idle():
            left.append("keys wait")
        time_s = operator.queue.next_due_in_s()
        if not left and time_s is not None and time_s < NEAR_S:
            left.append("a point in time is near")
        if left:
            return left
        for key in list(operator.cache.keys()):
            _, plan = await leader.process.start(operator.reconciler.plan(key))
            if not plan.is_settled:
                left.append(f"{key}: {[*plan.trail][:5]} {plan.effects[:2]}")
        if left:
            return left
        entries = await self._entries()
        left = [
            f"{each.name} is between generations"
            for each in entries
            if each.generations.next is not None and each.state is EntryState.ACTIVE
        ]
        return left + [line for line in self._of_entries(entries) if "is no more" in line]

    def _unheard(self, leader: Running) -> Iterator[str]:
        """Changes that the leader's watches have not delivered: one may hang for 70 s before it is noticed."""
        assert leader.operator is not None
        for kind in (QUEUE, COUNTER, DEPLOYMENT, POD_DISRUPTION_BUDGET, CRON_JOB, SERVICE_ACCOUNT):
            for document in self.scene.all(kind):
                metadata = document["metadata"]
                ours = (metadata.get("labels") or {}).get("app.kubernetes.io/managed-by") == "headgate"
                observation = leader.operator.cache.version_of(metadata["uid"])
                has_been = observation is not None  # and may have lost our label since
                if (ours or has_been or kind in (QUEUE, COUNTER)) and observation != metadata["resourceVersion"]:
                    yield f"{kind.kind} {metadata['name']}"
            there = {document["metadata"]["uid"] for document in self.scene.all(kind)}
            for uid in leader.operator.cache.uids_of(kind.kind):
                if uid not in there:
                    yield f"the end of {kind.kind} {uid}"

    def _leader(self) -> Running | None:
        for one in self.scene.operators:
            if one.is_running and (one.leading is None or one.leading.may_act()):
                return one
        return None

    def _deleted(self) -> Iterator[str]:
        for kind in (QUEUE, COUNTER, *CHILDREN, NAMESPACE):
            for document in self.scene.all(kind):
                if document["metadata"].get("deletionTimestamp"):
                    yield f"{kind.kind} {document['metadata']['name']}"

    def _resources(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for kind in (QUEUE, COUNTER):
            for document in self.scene.all(kind):
                metadata = document["metadata"]
                yield f"{kind.kind} {metadata['namespace']}/{metadata['name']}", document

    # ---- what holds

    def quiet(self, since_s: float) -> list[str]:
        """No write but the Lease's, since a given time."""
        return [
            f"{at_s:.1f} {source} {request}: {_reported(request)}"
            for at_s, source, request in self.scene.api.requests
            if at_s > since_s and source.startswith("operator") and request.kind is not LEASE
        ]

    async def violations(self) -> list[str]:
        """Everything that does not hold."""
        entries = await self._entries()
        matches = [*self._strays(), *self._statuses(), *self._pauses(), *self._replicas()]
        matches += self.paces() if self.clocks_are_steady else ()
        matches += self._of_entries(entries)
        matches += await self._lanes(entries)
        matches += self._data(entries)
        return matches

    def _strays(self) -> Iterator[str]:
        alive = {each["metadata"]["uid"] for _, each in self._resources()}
        with_resources = {each["metadata"]["namespace"] for _, each in self._resources()}
        for kind in CHILDREN:
            for document in self.scene.all(kind):
                metadata = document["metadata"]
                if (metadata.get("labels") or {}).get("app.kubernetes.io/managed-by") != "headgate":
                    continue
                owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
                if owners and not set(owners) & alive:
                    yield f"{kind.kind} {metadata['name']} of a resource that is no more"
                if not owners and metadata["namespace"] not in with_resources:
                    yield f"{kind.kind} {metadata['name']} in {metadata['namespace']}, which has no resources"
        for name, document in self._resources():
            wants = document["spec"].get("deletionPolicy") == "Delete"
            if (FINALIZER in (document["metadata"].get("finalizers") or ())) and not wants:
                yield f"{name} has our finalizer under Retain"

    def _statuses(self) -> Iterator[str]:
        for name, document in self._resources():
            metadata, status = document["metadata"], document.get("status") or {}
            if status.get("observedGeneration") != metadata["generation"]:
                yield f"{name}: Generation {metadata['generation']}, observed {status.get('observedGeneration')}"
            ready = condition(document)
            if ready is None:
                yield f"{name} has no status"
            elif ready[0] == "True":
                yield from self._as_ready(name, document)

    def _as_ready(self, name: str, document: dict[str, Any]) -> Iterator[str]:
        """The invariants that Ready implies."""
        uid, namespace = document["metadata"]["uid"], document["metadata"]["namespace"]
        children = [
            each
            for each in self.scene.all(DEPLOYMENT, namespace)
            if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences") or ())
        ]
        consumers = document["spec"].get("consumers") or ()
        if len(children) != len(consumers):
            yield f"{name} is Ready with {len(children)} Deployments for {len(consumers)} consumers"

    def paces(self) -> Iterator[str]:
        """No process writes a status more often than each five seconds; a write without an answer may come again."""
        last: dict[tuple[str, str, str], tuple[float, ApiRequest]] = {}
        for at_s, source, request in self.scene.api.requests:
            if request.subresource != "status" or not source.startswith("operator"):
                continue
            version = str((request.body or {}).get("metadata", {}).get("resourceVersion"))
            owner_value = (source, str(request), self.scene.uid_at.get(version, version))
            before = last.get(owner_value)
            if before is not None and _status_of(before[1]) == _status_of(request):
                continue
            last[owner_value] = (at_s, request)
            if before is not None and at_s - before[0] < STATUS_EVERY_S:
                yield f"{request}: two statuses within {at_s - before[0]:.1f} s by {source}"

    def _pauses(self) -> Iterator[str]:
        """A paused resource is left alone: known from the end of the storm, which ends every pause."""
        for name, document in self._resources():
            if document["spec"].get("paused"):
                yield f"{name} is still paused"

    def _replicas(self) -> Iterator[str]:
        for _, queue in self._resources():
            for consumer in queue["spec"].get("consumers") or ():
                scaling = consumer.get("scaling")
                if scaling is None or scaling.get("mode") == "external":
                    continue
                for each in self.scene.all(DEPLOYMENT, queue["metadata"]["namespace"]):
                    owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
                    replicas = each["spec"]["replicas"]
                    if queue["metadata"]["uid"] in owners and not scaling["min"] <= replicas <= scaling["max"]:
                        yield f"{each['metadata']['name']} has {replicas} replicas"

    # ---- the store

    async def _entries(self) -> list[Entry]:
        process = self.scene.world.process(f"auditor-{self.scene.world.now_s()}")
        store = SimulatedStore(self.scene.ring, process)
        catalogue = Catalogue(store, now_us=process.clock.wall_us)

        async def read() -> list[Entry]:
            matches = []
            for namespace in await catalogue.namespaces():
                matches += [known.entry for known in await catalogue.list(namespace)]
            return matches

        return await process.start(read())

    def _of_entries(self, entries: list[Entry]) -> Iterator[str]:
        uids = {document["metadata"]["uid"]: (name, document) for name, document in self._resources()}
        owned: dict[str, Entry] = {}
        for entry in entries:
            if entry.name == STRANGER:
                if entry != self._planted:
                    yield f"the entry of another cluster was changed: {entry}"
                continue
            parts = owner_parts(entry.owner)
            if parts is None or parts[1] not in uids:
                if entry.state is not EntryState.RETAINED:
                    yield f"{entry.name} is {entry.state.value}, and its resource is no more"
                continue
            owned[parts[1]] = entry
            if entry.generations.next is not None and entry.generations.sure_us is None:
                yield f"{entry.name}: a next generation without `sure`"
        for uid, (name, document) in uids.items():
            ready = condition(document)
            if ready is not None and ready[0] == "True" and uid not in owned:
                yield f"{name} is Ready without an entry"
            if (
                uid in owned
                and ready is not None
                and ready[0] == "True"
                and owned[uid].state is not EntryState.ACTIVE
            ):
                yield f"{name} is Ready, and its entry {owned[uid].state.value}"
            if uid in owned and document["kind"] == "Queue" and ready is not None and ready[0] == "True":
                shards = owned[uid].generations.next or owned[uid].generations.current
                if shards.shards != document["spec"]["shards"]:
                    yield f"{name} wants {document['spec']['shards']} shards and has {shards.shards}"

    async def _lanes(self, entries: list[Entry]) -> list[str]:
        """Every lane of every generation that somebody may hear of is there."""
        process = self.scene.world.process(f"surveyor-{self.scene.world.now_s()}")
        store = SimulatedStore(self.scene.ring, process)

        async def inspection() -> list[str]:
            matches = []
            for entry in entries:
                if entry.name.kind != "Queue" or entry.state is not EntryState.ACTIVE or entry.name == STRANGER:
                    continue
                table = timeline_tables(entry).lanes
                for window in entry.generations.windows():
                    for shard in range(window.shards):
                        key = {"queue": entry.id, "generation": window.number, "shard": shard}
                        rows = await store.read(Select(table, key, limit=1, consistency=Consistency.SERIAL))
                        if not rows or rows[0].epoch is None:
                            matches.append(f"{entry.name}: lane {window.number}/{shard} is not there")
            return matches

        return await process.start(inspection())

    def _data(self, entries: list[Entry]) -> Iterator[str]:
        schema = self.scene.schema
        for name in {name for name in schema.made if schema.made.count(name) > 1}:
            yield f"table {name} was made twice"
        there = {name for tables in schema.tables.values() for name in tables}
        for entry in entries:
            if entry.name == STRANGER or entry.state not in (EntryState.ACTIVE, EntryState.RETAINED):
                continue
            wanted = {table.name for table in tables_of_entry(entry) or ()}
            lacking = wanted - there
            if entry.state is EntryState.ACTIVE and lacking:
                yield f"{entry.name} is active and lacks {sorted(lacking)[:2]}"
            if (
                lacking & set(schema.dropped)
                and entry.state is EntryState.RETAINED
                and not self.scene.asked_to_drop(entry)
            ):
                yield f"{entry.name} is retained, and its tables were dropped"


def _status_of(request: ApiRequest) -> Any:
    return (request.body or {}).get("status")


def _is_moving(document: dict[str, Any]) -> bool:
    """Whether something is still being executed."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Reconciling" and each["status"] == "True" for each in conditions) and not _waits(
        document
    )


def _waits(document: dict[str, Any]) -> bool:
    """For something that nobody here will do: a dead letter queue that is not there."""
    return condition(document) == ("False", "DeadLetterMissing")


def _reported(request: ApiRequest) -> str:
    body = request.body or {}
    return str(body.get("status") or body.get("spec") or body)[:1500]


__all__ = ["SYSTEM", "Judge"]
