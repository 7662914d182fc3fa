"""A cluster, a Cassandra and an operator in the simulated world, with people that apply and delete resources.

The operator is the real one but for kopf and HTTP: `KopfFeed` brings it events as kopf does, its port is the
simulated API server's, its sessions are simulated stores. Whatever it does can be cut short: it is a process of the
world.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from headgate.client.catalogue.process_context import ProcessContext
from headgate.engines.registry import ENGINE_MODULES
from headgate.process.background_tasks import run_together
from headgate.store.cassandra.settings import ConnectionSettings
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Entry, Name
from headgate.store.clock.clock import Clock
from headgate.store.model.consistency import Consistency
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import COUNTER, NAMESPACE, QUEUE, SECRET, ResourceKind, kind_of
from headgate_operator.model.names import FINALIZER, Key
from headgate_operator.model.world import OperatorSettings
from headgate_operator.process.leader_election import LeaderElection
from headgate_operator.process.wiring import Operator, Ports
from headgate_operator.store.sessions import SchemaOfCluster
from tests.kit.kopf_feed import KopfFeed
from tests.kit.process import context_on, simulated_host
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_cluster.collecting import DELAY_S, GarbageCollector
from tests.kit.simulated_cluster.controllers import Deployments, IdleNode, Kubelet
from tests.kit.simulated_cluster.log import WriteEntry as LogEntry
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_store.store import SimulatedTime
from tests.kit.simulated_world import Process, ProcessState, World
from tests.simulation.sdk.sdk_world import Schema

SYSTEM = "headgate-system"
KEYSPACE = "headgate"


@dataclass
class VersionedSchema(Schema):
    """A schema that counts its changes, and what was made twice."""

    changes: int = 0
    made: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    async def change(self, cql: str) -> None:
        """One change."""
        before = {name for tables in self.tables.values() for name in tables}
        await super().change(cql)
        after = {name for tables in self.tables.values() for name in tables}
        self.made += sorted(after - before)
        self.dropped += sorted(before - after)
        self.changes += 1

    async def version(self) -> str:
        """Of the schema."""
        return str(self.changes)


@dataclass
class Scene:
    """All of it."""

    world: World
    ring: Cluster
    api: SimulatedApi
    schema: VersionedSchema = field(default_factory=VersionedSchema)
    operators: list[Running] = field(default_factory=list)
    lives: int = 0
    kubelet: Kubelet = field(init=False)
    marked: set[str] = field(default_factory=set)
    swallowing: set[str] = field(default_factory=set)
    """Hosts that answer nothing, as if packets to them were lost."""
    uid_at: dict[str, str] = field(default_factory=dict)
    """Whose each resourceVersion was."""

    def __post_init__(self) -> None:
        self.api.server.when_written(self._note_written)

    def start_operator(self, *, elected: bool = False, **settings: Any) -> Running:
        """One more operator, in a process of its own; `settings` go before those of every scene."""
        self.lives += 1
        running = Running(self, self.world.process(f"operator-{self.lives}"), elected=elected)
        running.settings = settings
        self.operators.append(running)
        running.start()
        return running

    # ---- people

    def apply(self, document: Mapping[str, Any] | str) -> dict[str, Any]:
        """kubectl apply, at once and without a network."""
        decoded = yaml.safe_load(document) if isinstance(document, str) else dict(document)
        kind = kind_of(decoded)
        metadata = decoded["metadata"]
        query = {"fieldManager": "kubectl", "force": "true"}
        asked = ApiRequest("apply", kind, metadata.get("namespace"), metadata["name"], query=query, body=decoded)
        return dict(self.api.server.must(asked))

    def try_to_apply(self, document: Mapping[str, Any]) -> int:
        """The same, where the server may refuse; its status."""
        metadata = document["metadata"]
        query = {"fieldManager": "kubectl", "force": "true"}
        kind = kind_of(document)
        asked = ApiRequest("apply", kind, metadata.get("namespace"), metadata["name"], query=query, body=document)
        return self.api.server.answer(asked).status

    def patch(
        self, kind: ResourceKind, namespace: str, name: str, change: Mapping[str, Any], **more: str
    ) -> dict[str, Any]:
        """kubectl patch."""
        asked = ApiRequest("patch", kind, namespace, name, query={"fieldManager": "kubectl"}, body=change, **more)
        return dict(self.api.server.must(asked))

    def delete(self, kind: ResourceKind, namespace: str | None, name: str) -> None:
        """kubectl delete --wait=false."""
        self.api.server.must(ApiRequest("delete", kind, namespace, name, body={"propagationPolicy": "Background"}))

    def find(self, kind: ResourceKind, namespace: str | None, name: str) -> dict[str, Any] | None:
        """An object as the server has it."""
        result = self.api.server.find(kind, namespace, name)
        return None if result is None else dict(result)

    def all(self, kind: ResourceKind, namespace: str | None = None) -> list[dict[str, Any]]:
        """Objects of a kind."""
        return [dict(document) for _, document in self.api.server.all(kind, namespace)]

    def make_namespace(self, name: str) -> None:
        """One more namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.server.must(ApiRequest("create", NAMESPACE, body=body, query={"fieldManager": "kubectl"}))

    def make_connection(self, namespace: str = SYSTEM, name: str = "headgate-connection", **more: str) -> None:
        """The chart's Secret, or another one; with more keys if some are passed."""
        variables = {"CONTACT_POINTS": "10.0.0.1", "DATA_CENTER": "dc1", "KEYSPACE": KEYSPACE, **more}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in variables.items()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": namespace, "name": name},
            "type": "Opaque",
            "data": data,
        }
        self.api.server.must(ApiRequest("create", SECRET, namespace, query={"fieldManager": "helm"}, body=body))

    async def until(self, holds: Callable[[], object], within_s: float = 60.0) -> None:
        """Let time pass until something holds."""
        deadline_s = self.world.now_s() + within_s
        while not holds():
            if self.world.now_s() > deadline_s:
                raise AssertionError(f"it does not hold after {within_s} s")
            await asyncio.sleep(0.1)

    def asked_to_drop(self, entry: Entry) -> bool:
        """Whether a resource of that entry was ever seen being deleted under Delete, with our finalizer."""
        return entry.owner.rpartition("/")[2] in self.marked

    def _note_written(self, written: LogEntry) -> None:
        metadata = written.document["metadata"]
        self.uid_at[str(metadata["resourceVersion"])] = str(metadata["uid"])
        spec = written.document.get("spec") or {}
        is_marked = metadata.get("deletionTimestamp") and FINALIZER in (metadata.get("finalizers") or ())
        if is_marked and written.kind in (QUEUE, COUNTER) and spec.get("deletionPolicy") == "Delete":
            self.marked.add(metadata["uid"])

    async def entry(self, key: Key) -> Entry | None:
        """The content of the catalogue."""
        process = self.world.process(f"reader-{self.world.now_s()}-{self.world.rng('reader').random()}")
        store = SimulatedStore(self.ring, process)
        catalogue = Catalogue(store, now_us=process.clock.wall_us)
        result = await process.start(
            catalogue.find(Name(key.kind, key.namespace, key.name), consistency=Consistency.SERIAL)
        )
        return None if result is None else result.entry


class Running:
    """One operator."""

    def __init__(self, scene: Scene, process: Process, *, elected: bool) -> None:
        self.scene = scene
        self.process = process
        self._elected = elected
        self.has_ended = False
        """By itself: it lost the Lease."""
        self.settings: Mapping[str, Any] = {}
        self.operator: Operator | None = None
        self.leading: LeaderElection | None = None

    def start(self) -> None:
        """Have it run, until it is killed or has lost the Lease."""
        self.process.start(self._run())

    async def _run(self) -> None:
        process, scene = self.process, self.scene
        port = SimulatedCluster(scene.api, process)
        if self._elected:
            self.leading = LeaderElection(
                port,
                namespace=SYSTEM,
                identity=process.name,
                boot_s=process.clock.boottime_s,
                wall_us=process.clock.wall_us,
                rng=process.rng,
            )
        may_act = self.leading.may_act if self.leading else lambda: True
        ports = Ports(
            port,
            self._open,
            now_us=process.clock.wall_us,
            rng=process.rng,
            may_act=may_act,
            new_key=lambda: process.rng.randbytes(32),
        )
        cluster = scene.find(NAMESPACE, None, "kube-system")
        assert cluster is not None
        settings = OperatorSettings(
            cluster=cluster["metadata"]["uid"],
            version="0.1.0",
            image="headgate:0.1.0",
            supported=frozenset(ENGINE_MODULES),
        )
        settings = replace(settings, **self.settings)
        self.operator = Operator(settings, ports)
        if self.leading is None:
            await self._work(self.operator, port)
            return
        keeping = asyncio.get_running_loop().create_task(self.leading.keep())
        await self.leading.taken.wait()
        working = asyncio.get_running_loop().create_task(self._work(self.operator, port))
        await keeping
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        self.has_ended = True

    async def _work(self, operator: Operator, port: SimulatedCluster) -> None:
        await run_together({"operator": operator.run(), "kopf": KopfFeed(port, operator.intake).run()})

    @property
    def is_running(self) -> bool:
        """Whether it does anything."""
        return self.process.state is ProcessState.RUNNING and not self.has_ended

    async def _open(self, settings: ConnectionSettings) -> tuple[ProcessContext, SchemaOfCluster]:
        process = self.process
        if any(point.host in self.scene.swallowing for point in settings.contact_points):
            await asyncio.Event().wait()
        store = SimulatedStore(self.scene.ring, process)
        clock = Clock(store, source=SimulatedTime(process))
        await clock.__aenter__()

        async def close() -> None:
            await clock.__aexit__(None, None, None)
            await store.close()

        return context_on(simulated_host(process, store), settings.keyspace, clock, close), self.scene.schema


def scene_of(world: World) -> Scene:
    """A cluster with an API server, a ring, the chart's Secret and one namespace `shop`."""
    scene = Scene(world, Cluster(world), SimulatedApi(world))
    server = scene.api.server
    delays = world.rng("collector")
    GarbageCollector(server, lambda act: world.outside(delays.uniform(*DELAY_S), act))
    Deployments(server, world.outside, world.rng("deployments"))
    scene.kubelet = Kubelet(server, world.outside, world.rng("kubelet"), IdleNode())
    for namespace in (SYSTEM, "shop"):
        scene.make_namespace(namespace)
    scene.make_connection()
    return scene


def condition(document: Mapping[str, Any] | None, type_: str = "Ready") -> tuple[str, str] | None:
    """Status and reason of a condition."""
    status = (document or {}).get("status") or {}
    for each in status.get("conditions") or ():
        if each["type"] == type_:
            return each["status"], each["reason"]
    return None


QUEUE_TEXT = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: shop}}
spec: {spec}
"""
CONSUMERS = "[{name: mailer, image: 'mailer:1', handler: 'mailer:send', scaling: {min: 0}}]"
MAILER = f"{{shards: 2, consumers: {CONSUMERS}}}"


def queue_text(name: str = "emails", spec: str = MAILER) -> str:
    """A Queue as a person writes it."""
    return QUEUE_TEXT.format(name=name, spec=spec)
