"""kopf, and the feed that simulates it: both bring the same to `EventIngest`.

Each case runs on kopf itself, before the simulated API server on a socket of this machine, and on `KopfFeed` in the
simulated world.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from headgate.errors import Unavailable
from headgate.process.background_tasks import end_task, start_task
from headgate_operator.cluster.port import Access
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.informers import kopf_watch
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.kopf_watch import KopfWatch
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.watched_kinds import OURS, SPARK_CRD, WatchedKind
from headgate_operator.informers.work_queue import WorkQueue
from headgate_operator.model.kinds import CONFIG_MAP, CRD, NAMESPACE, ROLE_BINDING, ResourceKind
from tests.kit.http_api_server import HttpFront
from tests.kit.kopf_feed import KopfFeed
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_world import World

WATCHED = (
    WatchedKind(NAMESPACE),
    WatchedKind(CRD, name=SPARK_CRD),
    WatchedKind(CONFIG_MAP, labels=OURS),
)
LABELS = {"app.kubernetes.io/managed-by": "headgate"}


class EventSource(ABC):
    """An API server, and what of it reaches `EventIngest`."""

    server: ApiServer

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.intake = EventIngest(self.cache, WorkQueue(rng=Random(1), settle=True))

    @abstractmethod
    async def open(self) -> None:
        """Begin to watch."""

    @abstractmethod
    async def close(self) -> None:
        """End it."""

    @abstractmethod
    def end_watches(self) -> None:
        """Of all kinds, without an error."""

    @abstractmethod
    def is_watched(self, kind: ResourceKind) -> bool: ...

    def write(self, name: str, value: str = "1", *, labels: dict[str, str] = LABELS) -> None:
        metadata = {"name": name, "namespace": "default", "labels": labels}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
        query = {"fieldManager": "test", "force": "true"}
        self.server.must(ApiRequest("apply", CONFIG_MAP, "default", name, query=query, body=body))

    def write_crd(self, name: str) -> None:
        group = name.partition(".")[2]
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": group},
        }
        self.server.must(ApiRequest("create", CRD, None, name, query={"fieldManager": "test"}, body=body))

    def delete(self, name: str) -> None:
        self.server.must(ApiRequest("delete", CONFIG_MAP, "default", name, body={}))

    def values(self) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["data"]["value"] for one in self.cache.in_namespace("ConfigMap", "default")
        }

    async def until(self, holds: Callable[[], object]) -> None:
        deadline_s = asyncio.get_running_loop().time() + 20
        while not holds():
            assert asyncio.get_running_loop().time() < deadline_s, "it never came"
            await asyncio.sleep(0.02)


class KopfSource(EventSource):
    def __init__(self) -> None:
        super().__init__()
        self.front = HttpFront()
        self.server = self.front.server
        self.stopping = asyncio.Event()
        self.watch = KopfWatch(self.intake, self._access, self.stopping, watched=WATCHED)

    async def _access(self) -> Access:
        return Access(server=self.front.url)

    async def open(self) -> None:
        self._serving = self.front.serving()
        await self._serving.__aenter__()
        self.running = start_task("kopf", self.watch.run())

    async def close(self) -> None:
        await end_task(self.running)
        await self._serving.__aexit__(None, None, None)

    def end_watches(self) -> None:
        self.front.end_watches()

    def is_watched(self, kind: ResourceKind) -> bool:
        return kind.plural in self.front.watched()


class SimulatedSource(EventSource):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.api = SimulatedApi(world)
        self.server = self.api.server
        self.process = world.process("operator")
        self.feed = KopfFeed(SimulatedCluster(self.api, self.process), self.intake, watched=WATCHED)

    async def open(self) -> None:
        self.process.start(self.feed.run())

    async def close(self) -> None:
        self.process.kill()

    def end_watches(self) -> None:
        for number in list(self.api._watchers):
            self.api.end_watch(number)

    def is_watched(self, kind: ResourceKind) -> bool:
        return any(watcher.request.kind == kind for watcher, _ in self.api._watchers.values())


Case = Callable[[EventSource], Coroutine[Any, Any, None]]


@pytest.fixture(params=["kopf", "simulated"])
def run(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Callable[[Case], None]:
    """Runs a case before one of the sources."""

    async def whole(source: EventSource, case: Case) -> None:
        await source.open()
        try:
            await case(source)
        finally:
            await source.close()

    def on_kopf(case: Case) -> None:
        async def made() -> None:
            await whole(KopfSource(), case)

        with caplog.at_level(logging.CRITICAL, logger="kopf"):
            asyncio.run(made())

    def on_feed(case: Case) -> None:
        with World(1) as world:
            world.run(whole(SimulatedSource(world), case))

    return on_kopf if request.param == "kopf" else on_feed


def test_each_state_of_an_object_arrives_and_its_end(run: Callable[[Case], None]) -> None:
    async def case(source: EventSource) -> None:
        source.write("listed")
        await source.until(lambda: source.is_watched(CONFIG_MAP))
        source.write("a")
        source.write("b")
        await source.until(lambda: source.values() == {"listed": "1", "a": "1", "b": "1"})
        source.write("a", "2")
        source.delete("b")
        await source.until(lambda: source.values() == {"listed": "1", "a": "2"})

    run(case)


def test_an_object_without_our_label_does_not_arrive_and_one_that_loses_it_is_gone(
    run: Callable[[Case], None],
) -> None:
    async def case(source: EventSource) -> None:
        source.write("foreign", labels={})
        source.write("ours")
        await source.until(lambda: source.is_watched(CONFIG_MAP) and source.values() == {"ours": "1"})
        source.write("ours", labels={})
        source.write("last")
        await source.until(lambda: source.values() == {"last": "1"})

    run(case)


def test_of_all_definitions_one_arrives(run: Callable[[Case], None]) -> None:
    async def case(source: EventSource) -> None:
        source.write_crd("things.nobody.example")
        await source.until(lambda: source.is_watched(CRD))
        source.write_crd("others.nobody.example")
        source.write_crd(SPARK_CRD)
        await source.until(lambda: source.cache.get("CustomResourceDefinition", "", SPARK_CRD))
        assert [SPARK_CRD] == source.cache.names_in("CustomResourceDefinition", "")

    run(case)


def test_a_watch_that_ends_continues_from_its_version(run: Callable[[Case], None]) -> None:
    async def case(source: EventSource) -> None:
        source.write("a")
        await source.until(lambda: source.is_watched(CONFIG_MAP) and source.values() == {"a": "1"})
        source.end_watches()
        source.write("a", "2")
        source.write("b")
        source.delete("b")
        source.write("c")
        await source.until(lambda: source.values() == {"a": "2", "c": "1"})

    run(case)


def test_after_a_compaction_the_states_arrive_and_missed_deletions_do_not(run: Callable[[Case], None]) -> None:
    """Why watches are audited."""

    async def case(source: EventSource) -> None:
        source.write("a")
        source.write("b")
        await source.until(lambda: source.is_watched(CONFIG_MAP) and source.values() == {"a": "1", "b": "1"})
        source.end_watches()
        source.write("a", "2")
        source.delete("b")
        source.write("c")
        source.server.compact()
        await source.until(lambda: source.values().keys() >= {"a", "c"} and source.values()["a"] == "2")
        assert {"a": "2", "b": "1", "c": "1"} == source.values()

    run(case)


def test_a_server_that_is_broken_for_a_while_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_watch, "RETRY_S", 0.01)
    monkeypatch.setattr(kopf_watch, "RETRY_S_MAX", 0.01)

    async def work() -> None:
        source = KopfSource()
        source.write("a")
        source.front.refused = {CONFIG_MAP.plural: 500, CRD.plural: 403}
        await source.open()
        await source.until(lambda: len(source.front.asked) > 40)
        assert (False, {}) == (source.running.done(), source.values())
        source.front.refused.clear()
        await source.until(lambda: source.values() == {"a": "1"})
        await source.close()

    asyncio.run(work())


def test_an_error_within_a_watch_ends_kopf_and_is_one_line() -> None:
    async def work() -> None:
        source = KopfSource()
        await source.open()
        await source.until(lambda: source.is_watched(CONFIG_MAP))
        source.front.fail_watches(500)
        with pytest.raises(Unavailable) as raised:
            await asyncio.wait_for(source.running, 20)
        assert ("The kopf framework has ended" in str(raised.value), "\n" in str(raised.value)) == (True, False)
        assert not source.stopping.is_set()
        await source.close()

    asyncio.run(work())


def test_an_end_that_was_asked_for_is_no_error() -> None:
    async def work() -> None:
        source = KopfSource()
        await source.open()
        await source.until(lambda: source.is_watched(CONFIG_MAP))
        source.watch.stop()
        await asyncio.wait_for(source.running, 20)
        assert source.stopping.is_set()
        await source.close()

    asyncio.run(work())


def test_kopf_asks_for_what_is_selected_in_small_pages() -> None:
    async def work() -> None:
        source = KopfSource()
        for number in range(101):
            source.write(f"n{number}")
        await source.open()
        await source.until(lambda: len(source.values()) == 101 and source.is_watched(CRD))
        await source.close()
        asked = source.front.asked
        assert {OURS} == {query.get("labelSelector") for plural, query in asked if plural == "configmaps"}
        of_definitions = {query.get("fieldSelector") for plural, query in asked if plural == CRD.plural}
        assert {f"metadata.name={SPARK_CRD}"} == of_definitions
        lists = [query for plural, query in asked if plural == "configmaps" and "watch" not in query]
        assert (2, {"100"}) == (len(lists), {query["limit"] for query in lists})
        assert ROLE_BINDING.plural not in {plural for plural, _ in asked}

    asyncio.run(work())
