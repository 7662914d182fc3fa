"""The simulated cluster beyond the contract: what goes wrong on order, and what its controllers make of things."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from headgate_operator.cluster.port import ApiObject, Denial, Denied, ListPage
from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import CRON_JOB, DEPLOYMENT, JOB, POD, QUEUE, ObjectAddress, kind_of
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_cluster.controllers import IdleNode, PodOutcome, is_ready
from tests.kit.simulated_cluster.faults import ApiFault, Wrong
from tests.kit.simulated_cluster.schedules import IdlePrograms, Run
from tests.kit.simulated_cluster.watching import WatchEvent, WatchRequest, read_events
from tests.kit.simulated_world import World

T = TypeVar("T")
AT = ObjectAddress(DEPLOYMENT, "shop", "mailer")
EMAILS = ObjectAddress(QUEUE, "shop", "emails")
LABELS = {"headgate.io/queue": "emails"}


class Scene:
    """A cluster, and a client of it."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.api = SimulatedApi(self.world)
        self.process = self.world.process("operator")
        self.port = SimulatedCluster(self.api, self.process)
        self.write("create", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})

    def write(self, verb: Any, document: Mapping[str, Any]) -> None:
        asked = ApiRequest(verb, kind_of(document), document["metadata"].get("namespace"), None, body=document)
        self.api.server.must(asked)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.world.run(work)

    async def until(self, holds: Callable[[], bool], within_s: float = 120) -> None:
        end_s = self.world.now_s() + within_s
        while not holds():
            assert self.world.now_s() < end_s, "it never came"
            await self.world.sleep(0.05)

    def pods(self) -> list[Mapping[str, Any]]:
        return [pod for _, pod in self.api.server.all(POD, "shop") if not pod["metadata"].get("deletionTimestamp")]

    def status(self) -> Mapping[str, Any]:
        result = self.api.server.find(DEPLOYMENT, "shop", "mailer")
        return {} if result is None else result.get("status", {})

    def condition(self, type_: str) -> tuple[str, str] | None:
        for one in self.status().get("conditions", ()):
            if one["type"] == type_:
                return one["status"], one["reason"]
        return None


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with made.world:
        yield made


def deployment(replicas: int = 2, image: str = "i:1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "worker", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "mailer", "labels": LABELS},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def queue(**spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "emails"}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}


# ---- what goes wrong on order


@pytest.mark.parametrize(
    ("wrong", "denial", "landed"),
    [
        (Wrong.THROTTLED, Denial.THROTTLED, False),
        (Wrong.CONFLICT, Denial.CONFLICT, False),
        (Wrong.BROKEN, Denial.BROKEN, False),
        (Wrong.BROKEN_AFTER, Denial.BROKEN, True),
        (Wrong.UNHEARD, Denial.UNKNOWN, False),
        (Wrong.UNANSWERED, Denial.UNKNOWN, True),
    ],
)
def test_a_fault_strikes_once_and_does_its_text(scene: Scene, wrong: Wrong, denial: Denial, landed: bool) -> None:
    scene.api.faults.order(ApiFault(wrong, verb="apply", kind=QUEUE, name="emails"))

    async def asked() -> tuple[ApiObject | Denied, bool, ApiObject | Denied]:
        first = await scene.port.apply(queue(), manager="one")
        there = scene.api.server.find(QUEUE, "shop", "emails") is not None
        return first, there, await scene.port.apply(queue(), manager="one")

    first, there, second = scene.run(asked())
    assert isinstance(first, Denied)
    assert (first.denial, there, isinstance(second, ApiObject)) == (denial, landed, True)


def test_a_request_that_is_cut_off_is_unknown_after_its_time(scene: Scene) -> None:
    async def asked() -> tuple[ApiObject | Denied, float]:
        scene.world.network.cut("operator", "api-server")
        began_s = scene.world.now_s()
        answer = await scene.port.apply(queue(), manager="one", within_s=10)
        return answer, scene.world.now_s() - began_s

    answer, took_s = scene.run(asked())
    assert isinstance(answer, Denied)
    assert (answer.denial, round(took_s, 6)) == (Denial.UNKNOWN, 10.0)


def watch_queues(scene: Scene, listed: ListPage, within_s: float) -> AsyncIterator[WatchEvent | Denied]:
    return read_events(scene.port.follow(WatchRequest(QUEUE, version=listed.version, within_s=within_s)))


def test_a_watch_that_hangs_is_given_up_after_seventy_seconds(scene: Scene) -> None:
    async def followed() -> tuple[list[WatchEvent | Denied], float]:
        listed = await scene.port.list(QUEUE)
        assert isinstance(listed, ListPage)
        received: list[WatchEvent | Denied] = []
        began_s = scene.world.now_s()
        scene.world.outside(5, scene.api.hang_watches)
        async for change in watch_queues(scene, listed, 600):
            received.append(change)
        return received, scene.world.now_s() - began_s

    received, took_s = scene.run(followed())
    assert [one.denial for one in received if isinstance(one, Denied)] == [Denial.UNKNOWN]
    assert 70 <= took_s < 76


def test_events_are_heard_in_order_however_late_one_of_them_comes(scene: Scene) -> None:
    async def followed() -> list[int]:
        listed = await scene.port.list(QUEUE)
        assert isinstance(listed, ListPage)
        watch = watch_queues(scene, listed, 30)
        received = []

        async def follow() -> None:
            async for change in watch:
                assert isinstance(change, WatchEvent)
                if change.type != "BOOKMARK":
                    received.append(change.document["spec"]["shards"])

        task = scene.process.start(follow())
        await scene.world.sleep(0.1)
        scene.world.network.delay("api event", by_s=3)
        for shards in (5, 6, 7):
            await scene.port.apply(queue(shards=shards), manager="one")
        await task
        return received

    assert scene.run(followed()) == [5, 6, 7]


def test_a_watch_that_lost_an_event_breaks_however_much_comes_after_it(scene: Scene) -> None:
    async def followed() -> tuple[list[WatchEvent | Denied], float]:
        listed = await scene.port.list(QUEUE)
        assert isinstance(listed, ListPage)
        received: list[WatchEvent | Denied] = []

        async def follow() -> None:
            async for change in watch_queues(scene, listed, 600):
                received.append(change)

        task = scene.process.start(follow())
        await scene.world.sleep(0.1)
        scene.world.network.lose("api event")
        began_s = scene.world.now_s()
        shards = 4
        while not task.done():
            shards = 5 if shards == 4 else 4
            await scene.port.apply(queue(shards=shards), manager="one")
            await scene.world.sleep(1)
        return received, scene.world.now_s() - began_s

    received, took_s = scene.run(followed())
    assert [type(one).__name__ for one in received] == ["Denied"]
    assert 20 <= took_s < 23


def test_a_finalizer_that_lands_while_a_delete_is_under_way_may_hold_nothing() -> None:
    """As on a real server, where both may be acknowledged and the object is gone."""
    observations = set()
    for seed in range(20):
        scene = Scene(seed)
        with scene.world:

            async def raced(scene: Scene = scene) -> tuple[bool, bool]:
                held = {**queue(), "metadata": {**queue()["metadata"], "finalizers": ["a.io/b"]}}
                await scene.port.apply(queue(), manager="one")
                scene.process.start(scene.port.delete(EMAILS))
                added = await scene.port.apply(held, manager="one")
                await scene.world.sleep(1)
                return isinstance(added, ApiObject), scene.api.server.find(QUEUE, "shop", "emails") is None

            observations.add(scene.run(raced()))
    assert (True, True) in observations
    assert (True, False) in observations


# ---- Deployments and pods


def test_a_deployment_gets_its_pods_and_states_when_they_are_ready(scene: Scene) -> None:
    scene.api.staff()
    scene.write("create", deployment(3))

    async def watched() -> None:
        await scene.until(lambda: scene.status().get("readyReplicas") == 3)

    scene.run(watched())
    assert scene.status()["observedGeneration"] == 1
    assert (scene.condition("Available"), scene.condition("Progressing")) == (
        ("True", "MinimumReplicasAvailable"),
        ("True", "NewReplicaSetAvailable"),
    )
    assert all(pod["metadata"]["labels"]["headgate.io/queue"] == "emails" for pod in scene.pods())


def test_a_rollout_keeps_as_many_ready_as_were_wanted(scene: Scene) -> None:
    scene.api.staff()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    scene.write("create", deployment(4, strategy=rolling))
    fewest = 4

    async def rolled() -> None:
        nonlocal fewest
        await scene.until(lambda: scene.status().get("readyReplicas") == 4)
        await scene.port.apply(deployment(4, image="i:2", strategy=rolling), manager="one", force=True)

        def is_done() -> bool:
            nonlocal fewest
            fewest = min(fewest, sum(is_ready(pod) for pod in scene.pods()))
            images = {pod["spec"]["containers"][0]["image"] for pod in scene.pods()}
            return images == {"i:2"} and scene.status().get("updatedReplicas") == 4

        await scene.until(is_done)

    scene.run(rolled())
    assert fewest == 4


def test_scaled_to_none_all_pods_end_within_their_grace(scene: Scene) -> None:
    ended = []

    class Slow(IdleNode):
        def ending(self, pod: Mapping[str, Any]) -> float:
            ended.append(pod["metadata"]["name"])
            return 5.0

    scene.api.staff(Slow())
    scene.write("create", deployment(2))

    async def scaled() -> float:
        await scene.until(lambda: scene.status().get("readyReplicas") == 2)
        await scene.port.apply(deployment(0), manager="one", force=True)
        began_s = scene.world.now_s()
        await scene.until(lambda: not list(scene.api.server.all(POD)))
        return scene.world.now_s() - began_s

    assert 5 <= scene.run(scaled()) < 6
    assert len(ended) == 2


def test_a_container_that_fails_starts_again_and_leaves_its_last_words(scene: Scene) -> None:
    words = "headgate worker: the module mailer is not there"
    node = IdleNode(PodOutcome(ready_after_s=None, exits_after_s=0.5, exit_code=2, message=words))
    scene.api.staff(node)
    scene.write("create", deployment(1, progressDeadlineSeconds=60))

    def container() -> Mapping[str, Any]:
        statuses = scene.pods()[0].get("status", {}).get("containerStatuses", [{}]) if scene.pods() else [{}]
        first: Mapping[str, Any] = statuses[0]
        return first

    async def watched() -> None:
        await scene.until(lambda: container().get("restartCount") == 2)
        assert container()["lastState"]["terminated"]["message"] == words
        assert container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        await scene.until(lambda: scene.condition("Progressing") == ("False", "ProgressDeadlineExceeded"))
        node.fate = PodOutcome()
        await scene.until(lambda: scene.status().get("readyReplicas") == 1)

    scene.run(watched())
    assert scene.condition("Available") == ("True", "MinimumReplicasAvailable")


def test_pods_go_with_their_deployment_and_a_deleted_one_comes_again(scene: Scene) -> None:
    scene.api.staff()
    scene.write("create", deployment(2))

    async def watched() -> None:
        await scene.until(lambda: scene.status().get("readyReplicas") == 2)
        victim = scene.pods()[0]["metadata"]
        await scene.port.delete(ObjectAddress(POD, "shop", victim["name"]), uid=victim["uid"])
        await scene.until(lambda: victim["uid"] not in {pod["metadata"]["uid"] for pod in scene.pods()})
        await scene.until(lambda: scene.status().get("readyReplicas") == 2)
        await scene.port.delete(AT)
        await scene.until(lambda: not list(scene.api.server.all(POD)))

    scene.run(watched())


# ---- CronJobs and Jobs


def cron_job(**spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "repair", "image": "i"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"namespace": "shop", "name": "headgate-repair"},
        "spec": {
            "schedule": "*/5 * * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 2,
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
            **spec,
        },
    }


def test_a_cron_job_runs_at_each_time_and_keeps_its_history_short(scene: Scene) -> None:
    programs = IdlePrograms(Run(takes_s=3))
    scene.api.staff(programs=programs)
    scene.write("create", cron_job())
    made: set[str] = set()
    scene.api.server.when_written(
        lambda entry: made.add(entry.document["metadata"]["name"]) if entry.kind is JOB else None
    )

    async def hour() -> None:
        await scene.world.sleep(1_800)
        programs.outcome = Run(takes_s=3, succeeds=False)
        await scene.world.sleep(1_830)

    scene.run(hour())
    results = [job["status"]["conditions"][0]["type"] for _, job in scene.api.server.all(JOB, "shop")]
    assert (len(made), results.count("Complete"), results.count("Failed")) == (12, 1, 2)


def test_a_cron_job_that_forbids_it_runs_one_at_a_time(scene: Scene) -> None:
    scene.api.staff(programs=IdlePrograms(Run(takes_s=450)))
    scene.write("create", cron_job())

    async def hour() -> int:
        most = 0
        for _ in range(60):
            await scene.world.sleep(60)
            running = [job for _, job in scene.api.server.all(JOB) if job.get("status", {}).get("active")]
            most = max(most, len(running))
        return most

    assert scene.run(hour()) == 1
    assert scene.api.server.find(CRON_JOB, "shop", "headgate-repair") is not None
