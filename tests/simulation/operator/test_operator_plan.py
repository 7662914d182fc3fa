"""A plan is what the operator then does: in the simulated world, with nothing there, and of a change to what is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from headgate_operator.manifests.document_diff import differences
from headgate_operator.model.kinds import COUNTER, QUEUE, SECRET, kind_of
from headgate_operator.model.names import Key, consumer_name
from headgate_operator.process.wiring import Operator
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import Running, Scene, condition, scene_of

SHOP = Path(__file__).parents[3] / "examples/shop.yaml"
DOCUMENTS = [each for each in yaml.safe_load_all(SHOP.read_text()) if each["kind"] in ("Queue", "Counter")]


async def plan(running: Running, document: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's plan."""
    metadata = document["metadata"]
    key = Key(document["kind"], metadata["namespace"], metadata["name"])
    assert running.operator is not None
    return dict(await running.process.start(running.operator.plan(key, document)))


def settled(scene: Scene) -> bool:
    """Whether all of the shop is Ready."""
    matches = [scene.find(kind, "shop", each["metadata"]["name"]) for kind in (QUEUE, COUNTER) for each in DOCUMENTS]
    return sum(condition(each) == ("True", "Reconciled") for each in matches) == len(DOCUMENTS)


def bare(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only the real creation knows: uids, and digests of what they are in."""
    decoded = copy.deepcopy(dict(document))
    decoded["metadata"].pop("annotations", None)
    for owner in decoded["metadata"].get("ownerReferences", ()):
        owner.pop("uid")
    return decoded


def objects_of(describe: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each["object"] for each in describe["effects"] if "object" in each]


async def started(scene: Scene) -> Running:
    running = scene.start_operator()
    await scene.until(lambda: running.operator is not None and running.operator.listed.is_set())
    return running


def in_world(seed: int, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    with World(seed) as world:
        world.run(scenario(scene_of(world)))


def test_what_a_plan_states_is_what_is_done_and_a_plan_does_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        writes = list[WriteEntry]()
        scene.api.server.when_written(writes.append)
        reports = [await plan(running, document) for document in DOCUMENTS]
        assert ([], 0) == (writes, scene.schema.changes)
        for document in DOCUMENTS:
            scene.apply(document)
        await scene.until(lambda: settled(scene))
        for document in (each for one in reports for each in objects_of(one)):
            live = scene.find(kind_of(document), "shop", document["metadata"]["name"])
            assert live is not None, document["metadata"]
            if document["kind"] == "Secret":
                assert "<content of the operator's own Secret>" == document["data"]
            else:
                assert {} == differences(bare(document), live)
        statements = {each["cql"] for one in reports for each in one["effects"] if "cql" in each}
        tables = {each.partition("(")[0] for each in statements if "CREATE TABLE" in each}
        assert len(tables) == len(scene.schema.made)
        again = [await plan(running, document) for document in DOCUMENTS]
        assert [[], [], []] == [each["effects"] for each in again]

    in_world(7, scenario)


def test_what_replaces_a_childs_place_is_reported_and_left_alone() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        name = consumer_name("emails", "mailer")
        foreign = objects_of(await plan(running, DOCUMENTS[0]))[-1]
        assert ("Deployment", name) == (foreign["kind"], foreign["metadata"]["name"])
        foreign["metadata"].pop("ownerReferences")
        scene.apply(foreign)
        report = await plan(running, DOCUMENTS[0])
        assert "Deployment" not in [each["kind"] for each in objects_of(report)]
        assert [True] == ["NameTaken" in end["message"] and end["stalled"] for end in report["ends"]]

    in_world(9, scenario)


def test_the_plan_of_a_change_names_what_differs_and_no_more() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        for document in DOCUMENTS:
            scene.apply(document)
        await scene.until(lambda: settled(scene))
        changed = copy.deepcopy(DOCUMENTS[0])
        changed["spec"]["shards"] = 12
        changed["spec"]["consumers"][0]["image"] = "registry.example/shop:1.5"
        report = await plan(running, changed)
        message = [each["message"] for each in report["effects"]]
        assert [
            "write its spec into the catalogue: 12 shards, tables of its own in keyspace headgate, home dc1",
            "create 12 lanes for generation 2 of emails",
            "announce generation 2: 12 shards instead of 6",
            "write the time after which no put uses the previous generation",
        ] == message[:4]
        assert "registry.example/shop:1.5" in message[4]
        assert ["Deployment"] == [each["kind"] for each in objects_of(report)]
        shared = copy.deepcopy(DOCUMENTS[0])
        shared["spec"]["repair"] = {"schedule": "*/7 * * * *"}
        jobs = [
            each for each in (one["message"] for one in (await plan(running, shared))["effects"]) if "CronJob" in each
        ]
        assert [True] == [each.startswith("create CronJob headgate-repair-") for each in jobs]
        alone = copy.deepcopy(DOCUMENTS[2])
        alone["spec"]["gc"] = {"schedule": "30 * * * *"}
        jobs = [
            each for each in (one["message"] for one in (await plan(running, alone))["effects"]) if "CronJob" in each
        ]
        assert ["delete", "create"] == [each.split()[0] for each in jobs]

    in_world(8, scenario)


def memory_of(operator: Operator) -> dict[str, Any]:
    """All that the operator remembers of resources, Secrets and Cassandras; times aside."""
    store, connections, board = operator.store, operator.connections, operator.board
    return {
        "connections": dict(connections._last),
        "troubles": dict(connections._failures),
        "secrets": {place: read.digest for place, (_, read) in operator.secrets._read.items()},
        "sessions": {digest: (held.reached, held.error) for digest, held in operator.sessions._held.items()},
        "entries": {key: replace(read, at_s=0.0) for key, read in store._entries.items()},
        "ids": dict(store._by_id),
        "silent": dict(store._silent),
        "schemas": {digest: {*held[1]._known} for digest, held in store._views.items()},
        "catalogues": set(store._catalogued),
        "followed": {each.key: (each.digest, each.entry) for each in board.all()},
        "figures": {each.key: each.figures is None for each in board.all()},
        "lanes": {*operator.health._known},
        "bulk": (dict(operator.bulk_rows._known), dict(operator.bulk_rows._keys_by_job)),
        "parsed": [*operator.observer._parsed],
        "needs": [*operator.observer._needs],
        "stands": dict(operator.observer.stands),
        "objects": sorted(operator.cache.keys()),
        "memories": {*operator.reconciler._memories},
        "rounds": operator.reconciler.rounds,
    }


def imagined(number: int = 0, **metadata: str) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENTS[number])
    document["metadata"] |= metadata
    return document


def with_secret(document: dict[str, Any], name: str) -> dict[str, Any]:
    document["spec"]["storage"] = {"connectionSecret": name}
    return document


def test_a_plan_of_an_imagined_document_leaves_all_that_the_operator_remembers_as_it_was() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        for document in DOCUMENTS:
            scene.apply(document)
        await scene.until(lambda: settled(scene))
        operator = running.operator
        assert operator is not None
        scene.make_connection("shop", "another")
        scene.patch(SECRET, "shop", "another", {"stringData": {"CONTACT_POINTS": "10.9.9.9"}})
        await scene.until(lambda: len([*operator.board.all()]) == 2)
        too_large = imagined()
        too_large["spec"]["consumers"][0]["template"] = {"metadata": {"labels": {str(n): "" for n in range(5_000)}}}
        for message, document in {
            "The operator has no session with this Cassandra": with_secret(imagined(), "another"),
            "Secret nowhere is not in namespace shop": with_secret(imagined(), "nowhere"),
            "not Ready, SpecInvalid: spec.consumers[0].template: must be at most 16 KiB": too_large,
            "Ready": imagined(name="letters", namespace="shop"),
        }.items():
            before = memory_of(operator)
            report = await plan(running, document)
            after = memory_of(operator)
            assert {part: before[part] for part in before} == {part: after[part] for part in after}, message
            assert message in report["ends"][0]["message"]
        report = await plan(running, imagined(name="letters", namespace="elsewhere"))
        assert {part: before[part] for part in before} == memory_of(operator)

    in_world(11, scenario)
