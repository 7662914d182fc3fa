"""A hostile tenant among others: it gets no credentials that are not its own, and holds up nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

import yaml

from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate_operator.model.kinds import CRON_JOB, DEPLOYMENT, NAMESPACE, QUEUE, SECRET
from headgate_operator.model.label_selector import parse_selector
from headgate_operator.model.names import (
    ADOPT,
    ADOPT_FROM,
    CONNECTION_COPY,
    CONNECTION_DIGEST,
    NAMESPACE_UID,
    Key,
)
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import SYSTEM, Scene, condition, queue_text, scene_of

EMAILS = Key("Queue", "shop", "emails")
WORKERS = "headgate-workers"
ADMITTED = parse_selector('{"matchLabels": {"headgate": "yes"}}')


def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    with World(seed) as world:
        world.run(scenario(scene_of(world)))


def state(scene: Scene, namespace: str = "shop", name: str = "emails") -> tuple[str, str] | None:
    return condition(scene.find(QUEUE, namespace, name))


def message(scene: Scene, namespace: str = "shop") -> str:
    queue = scene.find(QUEUE, namespace, "emails") or {}
    return next(str(each["message"]) for each in queue["status"]["conditions"] if each["type"] == "Ready")


def copy_of(scene: Scene, namespace: str = "shop") -> dict[str, str] | None:
    """The content of the Secret that the operator made there."""
    secret = scene.find(SECRET, namespace, CONNECTION_COPY)
    if secret is None:
        return None
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


def apply_in(scene: Scene, namespace: str) -> None:
    scene.apply(queue_text().replace("namespace: shop", f"namespace: {namespace}"))


def label(scene: Scene, namespace: str, value: str | None) -> None:
    scene.patch(NAMESPACE, "", namespace, {"metadata": {"labels": {"headgate": value}}})


def test_a_namespace_that_the_connection_does_not_name_gets_neither_tables_nor_credentials() -> None:
    async def scenario(scene: Scene) -> None:
        scene.make_namespace("evil")
        label(scene, "shop", "yes")
        scene.start_operator(connection_namespaces=ADMITTED)
        for namespace in ("shop", "evil"):
            apply_in(scene, namespace)
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        await scene.until(lambda: state(scene, "evil") == ("False", "ConnectionMissing"))
        assert "namespace evil may not use the chart's connection (connection.namespaces)" in message(scene, "evil")
        assert copy_of(scene, "shop") is not None
        assert (None, [], []) == (
            copy_of(scene, "evil"), scene.all(DEPLOYMENT, "evil"), scene.all(CRON_JOB, "evil"),
        )  # fmt: skip

    play(scenario)


def test_a_namespace_is_admitted_and_excluded_by_its_labels_alone() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator(connection_namespaces=ADMITTED)
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("False", "ConnectionMissing"))
        label(scene, "shop", "yes")
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        label(scene, "shop", None)
        await scene.until(lambda: state(scene) == ("False", "ConnectionMissing"))
        await scene.until(lambda: copy_of(scene) is None)

    play(scenario)


def test_workers_get_credentials_of_their_own_and_never_the_operator_s() -> None:
    async def scenario(scene: Scene) -> None:
        owner = {"USERNAME": "headgate", "PASSWORD": "may-drop"}
        scene.delete(SECRET, SYSTEM, "headgate-connection")
        scene.make_connection(**owner)
        scene.make_connection(name=WORKERS, USERNAME="worker", PASSWORD="may-not")
        scene.start_operator(workers_secret=WORKERS)
        for namespace in ("shop", SYSTEM):
            apply_in(scene, namespace)
            await scene.until(lambda of=namespace: state(scene, of) == ("True", "Reconciled"))
        copied = copy_of(scene)
        assert copied is not None
        assert ("worker", "may-not") == (copied["USERNAME"], copied["PASSWORD"])
        mounted = {
            volume["secret"]["secretName"]
            for kind in (DEPLOYMENT, CRON_JOB)
            for each in scene.all(kind, SYSTEM)
            for volume in pod_of(each)["spec"]["volumes"]
            if "secret" in volume
        }
        assert {WORKERS} == mounted, "beside the operator, where the source itself stands"

    play(scenario)


def test_a_rotation_of_the_workers_credentials_rolls_them_and_reaches_the_copies() -> None:
    async def scenario(scene: Scene) -> None:
        scene.make_connection(name=WORKERS, PASSWORD="old")
        scene.start_operator(workers_secret=WORKERS)
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        before = digest(scene)
        password = base64.b64encode(b"new").decode()
        scene.patch(SECRET, SYSTEM, WORKERS, {"data": {"PASSWORD": password}})
        await scene.until(lambda: (copy_of(scene) or {}).get("PASSWORD") == "new", 180)
        await scene.until(lambda: digest(scene) != before)

    play(scenario)


def test_without_the_workers_secret_no_pod_starts_on_the_operator_s() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator(workers_secret=WORKERS)
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("False", "ConnectionMissing"))
        assert "Secret headgate-workers is not in namespace headgate-system" in message(scene)
        assert (None, []) == (copy_of(scene), scene.all(DEPLOYMENT, "shop"))

    play(scenario)


def test_the_next_owner_of_a_namespace_s_name_gets_its_data_by_an_administrator_s_word_alone() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        first, before = await scene.entry(EMAILS), uid_of(scene)
        assert first is not None
        scene.delete(NAMESPACE, None, "shop")
        await scene.until(lambda: scene.find(NAMESPACE, None, "shop") is None, 120)
        scene.make_namespace("shop")
        hostile = yaml.safe_load(queue_text())
        hostile["metadata"]["annotations"] = {ADOPT: "by-name", ADOPT_FROM: before}
        scene.apply(hostile)
        await scene.until(lambda: condition(scene.find(QUEUE, "shop", "emails"), "Stalled") == ("True", "NameTaken"))
        assert f"annotation headgate.io/adopt-from={before} on the Namespace" in message(scene)
        untouched = await scene.entry(EMAILS)
        assert untouched is not None
        assert (first.id, first.owner) == (untouched.id, untouched.owner)
        scene.patch(NAMESPACE, "", "shop", {"metadata": {"annotations": {ADOPT_FROM: f"{before},another"}}})
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        adopted = await scene.entry(EMAILS)
        assert adopted is not None
        assert (first.id, uid_of(scene)) == (adopted.id, adopted.document["metadata"][NAMESPACE_UID])

    play(scenario)


def test_an_entry_of_before_is_bound_to_its_namespace_once_and_then_left_alone() -> None:
    async def scenario(scene: Scene) -> None:
        running = scene.start_operator()
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        bound = await scene.entry(EMAILS)
        assert bound is not None
        assert uid_of(scene) == bound.document["metadata"][NAMESPACE_UID]
        running.process.kill()
        scene.start_operator()
        await asyncio.sleep(90)
        later = await scene.entry(EMAILS)
        assert later is not None
        assert (bound.revision, bound.changed_us) == (later.revision, later.changed_us)

    play(scenario)


def test_a_dead_cassandra_of_one_tenant_delays_nobody_else() -> None:
    async def scenario(scene: Scene) -> None:
        scene.swallowing.add("10.6.6.6")
        scene.make_namespace("evil")
        scene.start_operator()
        apply_in(scene, "shop")
        await scene.until(lambda: state(scene) == ("True", "Reconciled"))
        for number in range(3):
            scene.make_connection("evil", f"dead-{number}", CONTACT_POINTS="10.6.6.6", KEYSPACE=f"k{number}")
        for number in range(40):
            spec = f"{{storage: {{connectionSecret: dead-{number % 3}}}}}"
            scene.apply(queue_text(f"q{number}", spec).replace("namespace: shop", "namespace: evil"))
        await asyncio.sleep(2)
        for number in range(10):  # while all of the others are tried again and again
            began_s = scene.world.now_s()
            scene.apply(queue_text(f"fresh-{number}"))
            await scene.until(lambda of=number: state(scene, name=f"fresh-{of}") == ("True", "Reconciled"), 30)
            assert scene.world.now_s() - began_s < 8
        await scene.until(lambda: state(scene, "evil", "q0") == ("False", "CassandraUnavailable"), 120)
        scene.swallowing.clear()
        await scene.until(lambda: state(scene, "evil", "q0") == ("True", "Reconciled"), 120)

    play(scenario)


def test_neither_a_tenant_nor_another_application_takes_the_tables_of_all() -> None:
    async def scenario(scene: Scene) -> None:
        scene.schema.keyspaces.add("theirs")
        scene.schema.tables["theirs"] = {f"t{number}": CATALOGUE_TABLES[0] for number in range(400)}
        scene.make_namespace("evil")
        scene.start_operator(tables_max=60, namespace_tables_max=30)
        names = [f"q{number}" for number in range(6)]
        for name in names:
            scene.apply(queue_text(name, "{}").replace("namespace: shop", "namespace: evil"))
            await asyncio.sleep(10)
        states = [state(scene, "evil", name) for name in names]
        assert [("True", "Reconciled")] * 3 == states[:3]
        assert [("False", "TooManyTables")] * 3 == states[3:]
        scene.apply(queue_text(spec="{}"))
        await scene.until(lambda: state(scene) == ("True", "Reconciled"), 20)
        scene.apply(queue_text("shared", "{storage: {tables: shared}}").replace("namespace: shop", "namespace: evil"))
        await scene.until(lambda: state(scene, "evil", "shared") == ("True", "Reconciled"), 20)

    play(scenario)


def uid_of(scene: Scene) -> str:
    namespace = scene.find(NAMESPACE, None, "shop")
    assert namespace is not None
    return str(namespace["metadata"]["uid"])


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if document["kind"] == "CronJob" else spec["template"]
    return dict(template)


def digest(scene: Scene) -> str:
    (deployment,) = scene.all(DEPLOYMENT, "shop")
    return str(pod_of(deployment)["metadata"]["annotations"][CONNECTION_DIGEST])
