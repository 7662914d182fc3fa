"""/livez measures watching: an object that is newer in two audits, with no event in between, is a dead watch.

An object that was deleted without an event is found by one audit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.watch_audit import EVERY_S, LIST_AGAIN_S, POLL_S, WatchAudit
from headgate_operator.informers.watched_kinds import OURS, WatchedKind
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import CONFIG_MAP, NAMESPACE
from headgate_operator.model.names import Key
from headgate_operator.process.liveness import WAITING_S_MAX, WORK_S_MAX, LivenessCheck
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_world import World

WATCHED = (WatchedKind(CONFIG_MAP, labels=OURS),)
LABELS = {"app.kubernetes.io/managed-by": "headgate"}


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
        self.audits = WatchAudit(self.port, self.cache, self.intake, watched=WATCHED)
        self.alive = LivenessCheck(self.queue, self.audits, reconcilers=2)

    def make(self, kind: Any, body: dict[str, Any], namespace: str | None = None) -> Any:
        return self.api.server.must(ApiRequest("create", kind, namespace, query={"fieldManager": "test"}, body=body))

    def write(self, value: str, *, heard: bool = True, labels: dict[str, str] = LABELS) -> None:
        metadata = {"name": "one", "namespace": "shop", "labels": labels}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
        query = {"fieldManager": "test", "force": "true"}
        made = self.api.server.must(ApiRequest("apply", CONFIG_MAP, "shop", "one", query=query, body=body))
        if heard:
            self.intake.changed(made)

    def is_known(self) -> bool:
        return self.cache.get("ConfigMap", "shop", "one") is not None

    def delete(self) -> None:
        self.api.server.must(ApiRequest("delete", CONFIG_MAP, "shop", "one", body={}))


def run(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        world.run(scenario(Cluster(world)))


def test_what_was_heard_is_alive() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        await cluster.audits.audit()
        await cluster.audits.audit()
        assert (None, True) == (cluster.alive.why_not_alive(), cluster.is_known())

    run(scenario)


def test_while_lists_are_read_no_key_waits_too_long() -> None:
    async def scenario(cluster: Cluster) -> None:
        queue = WorkQueue(rng=Random(1), settle=True)
        alive = LivenessCheck(queue, cluster.audits, reconcilers=2)
        queue.add(Key("Queue", "shop", "emails"), Class.CHANGED)
        await asyncio.sleep(2 * WAITING_S_MAX)
        assert alive.why_not_alive() is None
        queue.release()
        assert alive.why_not_alive() is None
        await asyncio.sleep(WAITING_S_MAX + 1)
        assert "a change waits" in (alive.why_not_alive() or "")

    run(scenario)


def test_a_change_that_was_not_heard_is_a_dead_watch_at_the_second_audit() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.audits.audit()
        assert cluster.alive.why_not_alive() is None
        await cluster.audits.audit()
        assert "the watch of configmaps is dead" in (cluster.alive.why_not_alive() or "")
        cluster.write("c")
        await cluster.audits.audit()
        assert cluster.alive.why_not_alive() is None

    run(scenario)


def test_an_object_that_was_never_heard_of_is_a_dead_watch_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a", heard=False)
        auditing = asyncio.get_running_loop().create_task(cluster.audits.run())
        await asyncio.sleep(EVERY_S + 1)
        assert cluster.alive.why_not_alive() is None
        await asyncio.sleep(EVERY_S)
        assert "dead" in (cluster.alive.why_not_alive() or "")
        auditing.cancel()

    run(scenario)


def test_a_change_that_is_heard_late_is_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.audits.audit()
        cluster.write("c")
        cluster.write("d", heard=False)
        await cluster.audits.audit()
        assert cluster.alive.why_not_alive() is None

    run(scenario)


def test_an_end_that_was_not_heard_is_taken_in() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.delete()
        await cluster.audits.audit()
        assert (False, None) == (cluster.is_known(), cluster.alive.why_not_alive())
        cluster.write("b")
        await cluster.audits.audit()
        assert cluster.is_known()

    run(scenario)


def test_a_label_that_was_lost_unheard_is_an_end_and_comes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("a", labels={}, heard=False)
        await cluster.audits.audit()
        assert not cluster.is_known()
        cluster.write("a")
        assert cluster.is_known()

    run(scenario)


def test_an_object_that_comes_while_the_list_is_read_stays() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.delete()
        audit = asyncio.get_running_loop().create_task(cluster.audits.audit())
        await asyncio.sleep(0)
        cluster.write("b", heard=False)
        cluster.delete()
        cluster.write("c")
        await audit
        assert cluster.is_known()

    run(scenario)


def test_all_is_listed_once_the_watch_has_brought_what_a_list_shows() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a", heard=False)
        listing = asyncio.get_running_loop().create_task(cluster.audits.wait_until_listed())
        await asyncio.sleep(LIST_AGAIN_S / 2)
        assert not listing.done()
        cluster.write("b")
        await asyncio.sleep(2 * POLL_S)
        assert listing.done()

    run(scenario)


def test_an_object_that_is_deleted_while_all_is_listed_is_not_waited_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a", heard=False)
        listing = asyncio.get_running_loop().create_task(cluster.audits.wait_until_listed())
        await asyncio.sleep(LIST_AGAIN_S / 2)
        cluster.delete()
        assert not listing.done()
        await asyncio.sleep(LIST_AGAIN_S)
        assert listing.done()

    run(scenario)


def test_a_list_that_is_refused_is_no_list() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.world.network.cut("operator", cluster.api.process.name)
        listing = asyncio.get_running_loop().create_task(cluster.audits.wait_until_listed())
        await asyncio.sleep(10 * LIST_AGAIN_S)
        assert not listing.done()
        cluster.world.network.heal()
        await asyncio.sleep(3 * LIST_AGAIN_S)
        assert listing.done()

    run(scenario)


def test_an_api_server_that_is_unavailable_is_no_failure() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.write("a")
        cluster.write("b", heard=False)
        await cluster.audits.audit()
        cluster.world.network.cut("operator", cluster.api.process.name)
        await cluster.audits.audit()
        assert (None, True) == (cluster.alive.why_not_alive(), cluster.is_known())

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
