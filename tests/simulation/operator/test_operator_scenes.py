"""The operator in well-known scenes: a first message, an unavailable Cassandra, the end of a namespace, adoption."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from headgate.client.queue import Queue
from headgate.engines.summary.pass_results import BULK_DONE, BULK_RUNS, BulkResult, write_pass_result
from headgate.errors import HeadgateError
from headgate.store.catalogue.entry import EntryState
from headgate_operator.model.kinds import DEPLOYMENT, NAMESPACE, QUEUE, SECRET, SERVICE_ACCOUNT, SPARK_APPLICATION
from headgate_operator.model.names import ADOPT, GROUP, MANAGED_BY, MANAGER, Key, consumer_name
from headgate_operator.observe.bulk_runs import job_id
from headgate_operator.observe.maintenance_results import READ_EVERY_S
from tests.kit.simulated_cluster.controllers import PodOutcome
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import CONSUMERS, Scene, condition, queue_text, scene_of
from tests.simulation.sdk.sdk_world import Program, Shop

T = TypeVar("T")
EMAILS = Key("Queue", "shop", "emails")
MAILER = consumer_name("emails", "mailer")


def play(scenario: Callable[[Scene], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    with World(seed) as world:
        return world.run(scenario(scene_of(world)))


def emails(scene: Scene) -> dict[str, Any]:
    result = scene.find(QUEUE, "shop", "emails")
    assert result is not None
    return result


async def ready(scene: Scene, spec: str | None = None) -> None:
    scene.apply(queue_text() if spec is None else queue_text(spec=spec))
    await scene.until(lambda: condition(emails(scene)) == ("True", "Reconciled"), 30)


def replicas(scene: Scene) -> int:
    result = scene.find(DEPLOYMENT, "shop", MAILER)
    return -1 if result is None else int(result["spec"]["replicas"])


class Workers:
    """Pods in which a program of the SDK receives and acknowledges: what the worker runtime does, in few lines."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._running: dict[str, Program] = {}
        self.handled: list[float] = []

    def started(self, pod: Mapping[str, Any]) -> PodOutcome:
        program = self._shop.program(str(pod["metadata"]["name"]))
        self._running[pod["metadata"]["uid"]] = program
        program.process.start(self._work(program))
        return PodOutcome(ready_after_s=0.5)

    def ending(self, pod: Mapping[str, Any]) -> float:
        program = self._running.pop(pod["metadata"]["uid"])
        program.process.start(program.connection.close())
        return 1.0

    async def _work(self, program: Program) -> None:
        async with program.connection as connection:
            queue = await connection.queue("shop/emails")
            while True:
                try:
                    for message in await queue.receive(10, wait=1.0):
                        await message.ack()
                        self.handled.append(self._shop.world.now_s())
                except HeadgateError:
                    await asyncio.sleep(0.2)


async def producer(scene: Scene, shop: Shop) -> tuple[Program, Queue]:
    program = shop.program("producer")
    await program.process.start(program.connection.open())
    return program, await program.process.start(program.connection.queue("shop/emails"))


def test_the_first_message_wakes_a_queue_within_three_seconds_and_it_sleeps_again() -> None:
    async def scenario(scene: Scene) -> None:
        shop = Shop(scene.world, scene.ring, scene.schema)
        workers = Workers(shop)
        scene.kubelet.node = workers
        scene.start_operator()
        await ready(scene)
        assert 0 == replicas(scene)
        program, queue = await producer(scene, shop)
        await asyncio.sleep(20)
        put_s = scene.world.now_s()
        await program.process.start(queue.put("hello"))
        await scene.until(lambda: replicas(scene) == 1, 3)
        await scene.until(lambda: workers.handled, 10)
        assert workers.handled[0] - put_s <= 10
        await scene.until(lambda: replicas(scene) == 0, 60)
        await asyncio.sleep(30)
        assert (0, 1) == (replicas(scene), len(workers.handled))

    play(scenario)


def test_as_many_workers_as_the_backlog_wants_come_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        shop = Shop(scene.world, scene.ring, scene.schema)
        scene.start_operator()
        scaling = "{min: 0, max: 3, backlogPerWorker: 10}"
        consumer = f"{{name: mailer, image: 'mailer:1', handler: 'mailer:send', scaling: {scaling}}}"
        await ready(scene, f"{{shards: 3, consumers: [{consumer}]}}")
        program, queue = await producer(scene, shop)
        for _ in range(25):
            await program.process.start(queue.put("hello"))
        await scene.until(lambda: replicas(scene) == 3, 5)

    play(scenario)


def test_what_nobody_works_is_counted_again_as_more_comes_so_that_a_bulk_job_is_due_by_it() -> None:
    async def scenario(scene: Scene) -> None:
        shop = Shop(scene.world, scene.ring, scene.schema)
        scene.start_operator()
        await ready(scene, "{shards: 2}")
        program, queue = await producer(scene, shop)
        await program.process.start(queue.put("the first, which wakes it"))
        await scene.until(lambda: emails(scene)["status"].get("backlog") == 1, 15)
        for _ in range(24):
            await program.process.start(queue.put("more"))
        await scene.until(lambda: emails(scene)["status"].get("backlog") == 25, 30)
        worked = await program.process.start(queue.receive(10, wait=5.0))
        for message in worked:
            await program.process.start(message.ack())
        await program.process.start(program.connection.close())
        await scene.until(lambda: emails(scene)["status"].get("backlog") == 25 - len(worked), 90)

    play(scenario)


NIGHTLY = "{shards: 2, bulk: [{name: nightly, mode: move, schedule: '0 2 * * *', target: other}]}"


def run_of_nightly(scene: Scene, state: str) -> None:
    """A SparkApplication of the job as somebody made it, and with the Spark operator's status."""
    name, owner = "emails-nightly-7ad4bfde-1", emails(scene)["metadata"]["uid"]
    metadata = {
        "name": name,
        "namespace": "shop",
        "labels": {MANAGED_BY: MANAGER, f"{GROUP}/bulk": "nightly"},
        "ownerReferences": [{"apiVersion": QUEUE.api_version, "kind": "Queue", "name": "emails", "uid": owner}],
    }
    document = {"apiVersion": SPARK_APPLICATION.api_version, "kind": SPARK_APPLICATION.kind, "metadata": metadata}
    scene.apply({**document, "spec": {}, "status": {"applicationState": {"state": state}}})


async def reported_by_its_driver(scene: Scene, message: str, done: int) -> None:
    """The row that the job writes, after this number."""
    driver = scene.world.process(f"driver-{done}")
    result = BulkResult(driver.clock.wall_us(), message, keys=done)
    id_ = job_id(emails(scene)["metadata"]["uid"], "nightly")
    await driver.start(write_pass_result(SimulatedStore(scene.ring, driver), id_, result))


def nightly(scene: Scene) -> tuple[str | None, int | None]:
    report = (emails(scene)["status"].get("bulk") or {}).get("nightly") or {}
    return report.get("state"), report.get("done")


def test_the_end_of_a_bulk_job_is_reported_with_what_it_did_and_what_it_reports_later_a_while_after() -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.server.install(SPARK_APPLICATION)
        scene.start_operator()
        await ready(scene, NIGHTLY)
        run_of_nightly(scene, "RUNNING")
        await scene.until(lambda: nightly(scene) == ("Running", None), 10)
        await reported_by_its_driver(scene, BULK_RUNS, 40)
        run_of_nightly(scene, "COMPLETED")
        await scene.until(lambda: nightly(scene) == ("Succeeded", 40), 10)
        await reported_by_its_driver(scene, BULK_DONE, 90)
        await scene.until(lambda: nightly(scene) == ("Succeeded", 90), 2 * READ_EVERY_S)

    play(scenario)


def test_with_cassandra_unavailable_for_a_minute_children_are_fixed_and_one_status_reports_it() -> None:
    async def scenario(scene: Scene) -> None:
        running = scene.start_operator()
        await ready(scene)
        scene.world.network.cut(running.process.name, list(scene.ring.nodes))
        await asyncio.sleep(70)  # what is known of the entry is believed for a minute
        scene.delete(DEPLOYMENT, "shop", MAILER)
        await scene.until(lambda: scene.find(DEPLOYMENT, "shop", MAILER), 30)
        scene.patch(QUEUE, "shop", "emails", {"spec": {"maxReceives": 9}})
        await scene.until(lambda: condition(emails(scene), "TablesReady") == ("False", "CassandraUnavailable"), 60)
        scene.world.network.heal(running.process.name, list(scene.ring.nodes))
        await scene.until(lambda: condition(emails(scene)) == ("True", "Reconciled"), 60)
        entry = await scene.entry(EMAILS)
        assert entry is not None
        assert 9 == entry.spec["maxReceives"]

    play(scenario)


def test_deleted_under_delete_with_cassandra_unavailable_it_waits_reports_it_and_ends_once_it_is_back() -> None:
    async def scenario(scene: Scene) -> None:
        running = scene.start_operator()
        await ready(scene, f"{{deletionPolicy: Delete, consumers: {CONSUMERS}}}")
        scene.world.network.cut(running.process.name, list(scene.ring.nodes))
        scene.delete(QUEUE, "shop", "emails")
        await scene.until(lambda: "Cassandra" in str(emails(scene)["status"]["conditions"][0]["message"]), 120)
        assert ("False", "Deleting") == condition(emails(scene))
        scene.world.network.heal(running.process.name, list(scene.ring.nodes))
        await scene.until(lambda: scene.find(QUEUE, "shop", "emails") is None, 240)
        assert [] == [name for name in scene.schema.tables["headgate"] if name.startswith("q_")]

    play(scenario)


def test_a_namespace_that_ends_is_released_with_cassandra_unavailable() -> None:
    async def scenario(scene: Scene) -> None:
        running = scene.start_operator()
        await ready(scene, f"{{deletionPolicy: Delete, consumers: {CONSUMERS}}}")
        scene.world.network.cut(running.process.name, list(scene.ring.nodes))
        scene.delete(NAMESPACE, None, "shop")
        await scene.until(lambda: scene.find(NAMESPACE, None, "shop") is None, 90)

    play(scenario)


def test_what_was_retained_is_adopted_with_its_messages_by_an_annotation_alone() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        await ready(scene)
        first = await scene.entry(EMAILS)
        scene.delete(QUEUE, "shop", "emails")
        await asyncio.sleep(5)
        retained = await scene.entry(EMAILS)
        assert first is not None
        assert retained is not None
        assert EntryState.RETAINED is retained.state
        scene.apply(queue_text())
        await scene.until(lambda: condition(emails(scene), "Stalled") == ("True", "NameTaken"), 20)
        scene.patch(QUEUE, "shop", "emails", {"metadata": {"annotations": {ADOPT: "by-name"}}})
        await scene.until(lambda: condition(emails(scene)) == ("True", "Reconciled"), 30)
        again = await scene.entry(EMAILS)
        assert again is not None
        assert (first.id, EntryState.ACTIVE) == (again.id, again.state)

    play(scenario)


def test_paused_nothing_is_changed_and_the_status_continues() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        await ready(scene)
        scene.patch(QUEUE, "shop", "emails", {"spec": {"paused": True}})
        await scene.until(lambda: condition(emails(scene)) == ("False", "Paused"), 20)
        scene.delete(DEPLOYMENT, "shop", MAILER)
        scene.patch(QUEUE, "shop", "emails", {"spec": {"shards": 4}})
        await asyncio.sleep(60)
        assert scene.find(DEPLOYMENT, "shop", MAILER) is None
        scene.patch(QUEUE, "shop", "emails", {"spec": {"paused": False}})
        await scene.until(lambda: scene.find(DEPLOYMENT, "shop", MAILER), 20)

    play(scenario)


def test_in_mode_external_replicas_are_left_to_whichever_process_scales() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        await ready(scene, "{consumers: [{name: mailer, image: 'mailer:1', handler: 'm:s', scaling: {min: 2}}]}")
        assert 2 == replicas(scene)
        consumer = {"name": "mailer", "image": "mailer:1", "handler": "m:s", "scaling": {"mode": "external"}}
        scene.patch(QUEUE, "shop", "emails", {"spec": {"consumers": [consumer]}})
        await asyncio.sleep(30)
        assert 2 == replicas(scene)
        scene.patch(DEPLOYMENT, "shop", MAILER, {"spec": {"replicas": 5}})
        await asyncio.sleep(60)
        assert 5 == replicas(scene)

    play(scenario)


def test_without_the_charts_secret_it_reports_it_and_continues_once_it_is_there() -> None:
    async def scenario(scene: Scene) -> None:
        scene.delete(SECRET, "headgate-system", "headgate-connection")
        scene.start_operator()
        await asyncio.sleep(1)
        scene.apply(queue_text())
        await scene.until(lambda: condition(emails(scene)) == ("False", "ConnectionMissing"), 30)
        assert [] == scene.all(SERVICE_ACCOUNT, "shop") or scene.find(DEPLOYMENT, "shop", MAILER) is None
        scene.make_connection()
        await scene.until(lambda: condition(emails(scene)) == ("True", "Reconciled"), 120)

    play(scenario)


def secret_in_shop(scene: Scene) -> dict[str, str] | None:
    """The labels of the Secret that workers there read."""
    result = scene.find(SECRET, "shop", "headgate-connection")
    return None if result is None else result["metadata"].get("labels") or {}


def test_a_namespaces_own_secret_is_used_and_left_alone_and_once_it_is_gone_the_charts_is_copied() -> None:
    async def scenario(scene: Scene) -> None:
        scene.make_connection("shop")
        scene.delete(SECRET, "headgate-system", "headgate-connection")
        scene.start_operator()
        await ready(scene)
        await asyncio.sleep(60)
        assert {} == secret_in_shop(scene)
        assert ("True", "Reconciled") == condition(emails(scene))
        scene.make_connection()
        scene.delete(SECRET, "shop", "headgate-connection")
        await scene.until(lambda: (secret_in_shop(scene) or {}).get(MANAGED_BY) == "headgate", 120)
        await scene.until(lambda: condition(emails(scene)) == ("True", "Reconciled"), 30)

    play(scenario)


def test_an_own_secret_that_comes_later_takes_the_place_of_the_copy() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        await ready(scene)
        assert {MANAGED_BY: "headgate"} == secret_in_shop(scene)
        scene.patch(SECRET, "shop", "headgate-connection", {"metadata": {"labels": {MANAGED_BY: "platform"}}})
        await asyncio.sleep(120)
        assert {MANAGED_BY: "platform"} == secret_in_shop(scene)
        assert ("True", "Reconciled") == condition(emails(scene))

    play(scenario)


@pytest.mark.parametrize("seed", range(2))
def test_after_a_restart_nothing_is_written_that_stands_already(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        first = scene.start_operator()
        await ready(scene)
        await asyncio.sleep(10)
        first.process.kill()
        written = len(scene.api.requests)
        second = scene.start_operator()
        await asyncio.sleep(60)
        assert [] == [str(request) for _, _, request in scene.api.requests[written:]]
        assert second.operator is not None
        assert second.operator.listed.is_set()

    play(scenario, seed)
