"""/livez measures watching: an object that differs in two audits, and of which nothing was heard, is a dead watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import CONFIG_MAP, NAMESPACE
from headgate_operator.model.names import Key
from headgate_operator.process.liveness import FIRST_AUDITS_S, WAITING_S_MAX, WORK_S_MAX, LivenessCheck, WatchedKind
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_world import World

WATCHED = (WatchedKind(CONFIG_MAP),)


class Cluster:
    """One kind of objects, and an operator that has heard of them as far as the test lets it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = SimulatedApi(world)
        self.make(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        self.queue = WorkQueue(rng=Random(1))
        self.cache = ObjectCache()
        self.intake = EventIngest(self.cache, self.queue)
        self.port = SimulatedCluster(self.api, world.process("operator"))
        self.alive = LivenessCheck(self.port, self.cache, self.intake, self.queue, WATCHED, reconcilers=2)

    def make(self, kind: Any, body: dict[str, Any], namespace: str | None = None) -> Any:
        return self.api.server.must(ApiRequest("create", kind, namespace, query={"fieldManager": "test"}, body=body))

    def write(self, value: str, *, heard: bool = True) -> None:
        metadata = {"name": "one", "namespace": "shop"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
        query = {"fieldManager": "test", "force": "true"}
        made = self.api.server.must(ApiRequest("apply", CONFIG_MAP, "shop", "one", query=query, body=body))
        if heard:
            self.intake.changed(made)

    def delete(self) -> None:
        self.api.server.must(ApiRequest("delete", CONFIG_MAP, "shop", "one", body={}))


def run(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        world.run(scenario(Cluster(world)))


def test_what_was_heard_is_alive() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        await cluster.alive.audit()
        await cluster.alive.audit()
        assert (None, 2) == (cluster.alive.why_not_alive(), cluster.alive.audits)

    run(scenario)


def test_while_lists_are_read_nothing_is_audited_and_no_key_waits_too_long() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.queue = WorkQueue(rng=Random(1), settle=True)
        cluster.alive = LivenessCheck(
            cluster.port,
            cluster.cache,
            EventIngest(cluster.cache, cluster.queue),
            cluster.queue,
            WATCHED,
            reconcilers=2,
        )
        cluster.write("a")
        cluster.queue.add(Key("Queue", "shop", "emails"), Class.CHANGED)
        listed = asyncio.Event()
        auditing = asyncio.get_running_loop().create_task(cluster.alive.run(listed))
        await asyncio.sleep(2 * WAITING_S_MAX)
        assert (0, None) == (cluster.alive.audits, cluster.alive.why_not_alive())
        cluster.queue.release()
        assert cluster.alive.why_not_alive() is None
        listed.set()
        await asyncio.sleep(FIRST_AUDITS_S[0] + 1)
        assert 1 == cluster.alive.audits
        await asyncio.sleep(WAITING_S_MAX)
        assert "a change waits" in (cluster.alive.why_not_alive() or "")
        auditing.cancel()

    run(scenario)


def test_a_change_that_was_not_heard_is_a_dead_watch_at_the_second_audit_and_is_taken_in() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.alive.audit()
        assert cluster.alive.why_not_alive() is None
        await cluster.alive.audit()
        assert "the watch of configmaps is dead" in (cluster.alive.why_not_alive() or "")
        assert {"value": "b"} == (cluster.cache.get("ConfigMap", "shop", "one") or {})["data"]
        await cluster.alive.audit()
        assert cluster.alive.why_not_alive() is None

    run(scenario)


def test_a_change_that_is_heard_late_is_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.alive.audit()
        cluster.write("c")
        await cluster.alive.audit()
        assert cluster.alive.why_not_alive() is None

    run(scenario)


def test_an_end_that_was_not_heard_is_a_dead_watch_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.delete()
        await cluster.alive.audit()
        await cluster.alive.audit()
        assert "dead" in (cluster.alive.why_not_alive() or "")
        assert cluster.cache.get("ConfigMap", "shop", "one") is None

    run(scenario)


def test_an_api_server_that_is_unavailable_is_no_failure() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.alive.audit()
        cluster.world.network.cut("operator", cluster.api.process.name)
        await cluster.alive.audit()
        assert cluster.alive.why_not_alive() is None

    run(scenario)


def test_a_change_that_waits_while_a_reconciler_is_free_is_a_failure() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.queue.add(Key("Queue", "shop", "emails"), Class.CHANGED)
        await asyncio.sleep(WAITING_S_MAX - 1)
        assert cluster.alive.why_not_alive() is None
        await asyncio.sleep(2)
        assert "a change waits" in (cluster.alive.why_not_alive() or "")

    run(scenario)


def test_a_reconcile_that_does_not_end_is_a_failure() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.queue.add(Key("Queue", "shop", "emails"), Class.CHANGED)
        await cluster.queue.get()
        await asyncio.sleep(WORK_S_MAX + 1)
        assert "a reconcile takes" in (cluster.alive.why_not_alive() or "")

    run(scenario)
