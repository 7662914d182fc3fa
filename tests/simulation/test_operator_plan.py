"""A plan is what the operator then does: in the simulated world, with nothing there, and of a change to what is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.testing.world import World
from penstock_operator.differing import differences
from penstock_operator.kinds import COUNTER, QUEUE, kind_of
from penstock_operator.names import Key, consumer_name
from penstock_operator.simulated.log import Entry
from tests.simulation.operator_scene import Running, Scene, condition, scene_of

SHOP = Path(__file__).parents[2] / "examples/shop.yaml"
DOCUMENTS = [each for each in yaml.safe_load_all(SHOP.read_text()) if each["kind"] in ("Queue", "Counter")]


async def plan(running: Running, document: Mapping[str, Any]) -> dict[str, Any]:
    """What the operator says that it would do."""
    metadata = document["metadata"]
    key = Key(document["kind"], metadata["namespace"], metadata["name"])
    assert running.operator is not None
    return dict(await running.process.start(running.operator.plan(key, document)))


def settled(scene: Scene) -> bool:
    """Whether all of the shop is Ready."""
    found = [scene.find(kind, "shop", each["metadata"]["name"]) for kind in (QUEUE, COUNTER) for each in DOCUMENTS]
    return sum(condition(each) == ("True", "Reconciled") for each in found) == len(DOCUMENTS)


def bare(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only the real creation knows: uids, and digests of what they are in."""
    told = copy.deepcopy(dict(document))
    told["metadata"].pop("annotations", None)
    for owner in told["metadata"].get("ownerReferences", ()):
        owner.pop("uid")
    return told


def objects_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each["object"] for each in told["effects"] if "object" in each]


async def started(scene: Scene) -> Running:
    running = scene.start_operator()
    await scene.until(lambda: running.operator is not None and running.operator.listed.is_set())
    return running


def in_world(seed: int, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    with World(seed) as world:
        world.run(scenario(scene_of(world)))


def test_what_a_plan_says_is_what_is_done_and_a_plan_does_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        writes = list[Entry]()
        scene.api.server.when_written(writes.append)
        told = [await plan(running, document) for document in DOCUMENTS]
        assert ([], 0) == (writes, scene.schema.changes)
        for document in DOCUMENTS:
            scene.apply(document)
        await scene.until(lambda: settled(scene))
        for document in (each for one in told for each in objects_of(one)):
            live = scene.find(kind_of(document), "shop", document["metadata"]["name"])
            assert live is not None, document["metadata"]
            if document["kind"] == "Secret":
                assert "<what the operator's own Secret holds>" == document["data"]
            else:
                assert {} == differences(bare(document), live)
        statements = {each["cql"] for one in told for each in one["effects"] if "cql" in each}
        tables = {each.partition("(")[0] for each in statements if "CREATE TABLE" in each}
        assert len(tables) == len(scene.schema.made)
        again = [await plan(running, document) for document in DOCUMENTS]
        assert [[], [], []] == [each["effects"] for each in again]

    in_world(7, scenario)


def test_what_stands_in_a_childs_place_is_told_and_left_alone() -> None:
    async def scenario(scene: Scene) -> None:
        running = await started(scene)
        name = consumer_name("emails", "mailer")
        foreign = objects_of(await plan(running, DOCUMENTS[0]))[-1]
        assert ("Deployment", name) == (foreign["kind"], foreign["metadata"]["name"])
        foreign["metadata"].pop("ownerReferences")
        scene.apply(foreign)
        told = await plan(running, DOCUMENTS[0])
        assert "Deployment" not in [each["kind"] for each in objects_of(told)]
        assert [True] == ["NameTaken" in end["says"] and end["stalled"] for end in told["ends"]]

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
        told = await plan(running, changed)
        says = [each["says"] for each in told["effects"]]
        assert [
            "write its spec into the catalogue: 12 shards, tables of its own in keyspace penstock, home dc1",
            "make 12 lanes for generation 2 of emails",
            "announce generation 2: 12 shards instead of 6",
            "write from when on nobody puts to the generation before",
        ] == says[:4]
        assert "registry.example/shop:1.5" in says[4]
        assert ["Deployment"] == [each["kind"] for each in objects_of(told)]
        shared = copy.deepcopy(DOCUMENTS[0])
        shared["spec"]["repair"] = {"schedule": "*/7 * * * *"}
        jobs = [
            each for each in (one["says"] for one in (await plan(running, shared))["effects"]) if "CronJob" in each
        ]
        assert [True] == [each.startswith("make CronJob penstock-repair-") for each in jobs]
        alone = copy.deepcopy(DOCUMENTS[2])
        alone["spec"]["gc"] = {"schedule": "30 * * * *"}
        jobs = [
            each for each in (one["says"] for one in (await plan(running, alone))["effects"]) if "CronJob" in each
        ]
        assert ["delete", "make"] == [each.split()[0] for each in jobs]

    in_world(8, scenario)
