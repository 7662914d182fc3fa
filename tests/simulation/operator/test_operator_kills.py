"""The operator is killed before each of its effects: its successor brings the world to the same end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from headgate.store.catalogue.entry import EntryState
from headgate_operator.model.kinds import CRON_JOB, DEPLOYMENT, QUEUE, SECRET, SERVICE_ACCOUNT
from headgate_operator.model.names import Key
from headgate_operator.reconcile.apply_plan import PlanApplier
from headgate_operator.reconcile.decision_log import effect_words
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import Running, Scene, condition, queue_text, scene_of

LIVES_MAX = 80
LIVES_MIN = 12
"""A queue is made by no fewer effects; fewer deaths would mean that nobody was killed."""
EMAILS = Key("Queue", "shop", "emails")
DELETE = "{shards: 2, deletionPolicy: Delete, consumers: [{name: mailer, image: 'mailer:1', handler: 'mailer:send'}]}"


def kill_before(monkeypatch: pytest.MonkeyPatch, running: Running, number: int) -> None:
    """Let it die just before its effect of that number."""
    whole = PlanApplier._one
    begun = 0

    async def one(self: PlanApplier, *args: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == number:
            running.process.kill()
            await asyncio.sleep(0)
        return await whole(self, *args)

    monkeypatch.setattr(PlanApplier, "_one", one)


def shown(scene: Scene) -> dict[str, Any]:
    """The end of a life, but for uids and times."""
    made: dict[str, Any] = {}
    for kind in (DEPLOYMENT, CRON_JOB, SERVICE_ACCOUNT, SECRET):
        made[kind.kind] = [(each["metadata"]["name"], _spec(each)) for each in scene.all(kind, "shop")]
    queue = scene.find(QUEUE, "shop", "emails")
    made["ready"] = condition(queue)
    made["tables"] = sorted(name[34:] for name in scene.schema.tables["headgate"] if name.startswith("q_"))
    return made


def _spec(document: dict[str, Any]) -> Any:
    return (document.get("spec") or {}).get("replicas"), sorted(document["metadata"].get("annotations") or ())


def is_ready(scene: Scene) -> bool:
    return condition(scene.find(QUEUE, "shop", "emails")) == ("True", "Reconciled") and bool(
        scene.all(CRON_JOB, "shop")
    )


def die_after_one(monkeypatch: pytest.MonkeyPatch, operators: list[Running]) -> Counter[tuple[str, str]]:
    """Let each of them die at the first effect that it begins once it has done one; between the same two one only.

    An effect that nobody can see afterwards is done again in the next life, which would die there for ever.
    """
    whole = PlanApplier._one
    deaths = Counter[tuple[str, str]]()
    done: dict[int, str] = {}

    async def one(self: PlanApplier, key: Key, effect: Any, *args: Any) -> Any:
        report, before = effect_words(effect), done.get(id(self))
        if before is not None and not deaths[before, report]:
            deaths[before, report] += 1
            operators[-1].process.kill()
            await asyncio.sleep(0)
        answer = await whole(self, key, effect, *args)
        done[id(self)] = report
        return answer

    monkeypatch.setattr(PlanApplier, "_one", one)
    return deaths


def live(monkeypatch: pytest.MonkeyPatch, number: int | None, spec: str) -> tuple[dict[str, Any], bool]:
    """Applied, and Ready in the end; whether the operator was killed on the way."""

    async def life(scene: Scene) -> tuple[dict[str, Any], bool]:
        first = scene.start_operator()
        if number is not None:
            kill_before(monkeypatch, first, number)
        await asyncio.sleep(1.0)
        scene.apply(queue_text(spec=spec))
        await asyncio.sleep(8.0)
        was_killed = not first.is_running
        if was_killed:
            monkeypatch.undo()
            scene.start_operator()
        await scene.until(lambda: is_ready(scene), within_s=60)
        entry = await scene.entry(EMAILS)
        assert entry is not None
        assert EntryState.ACTIVE is entry.state
        assert [] == sorted({name for name in scene.schema.made if scene.schema.made.count(name) > 1})
        return shown(scene), was_killed

    with World(1) as world:
        return world.run(life(scene_of(world)))


def test_doing_one_effect_a_life_it_ends_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lives(scene: Scene) -> dict[str, Any]:
        operators = [scene.start_operator()]
        deaths = die_after_one(monkeypatch, operators)
        scene.apply(queue_text(spec=DELETE))
        while not is_ready(scene) and len(operators) < LIVES_MAX:
            await asyncio.sleep(5.0)
            if not operators[-1].is_running:
                operators.append(scene.start_operator())
        await scene.until(lambda: is_ready(scene), within_s=60)
        assert len(deaths) >= LIVES_MIN
        return shown(scene)

    undisturbed, _ = live(monkeypatch, None, DELETE)
    with World(1) as world:
        assert undisturbed == world.run(lives(scene_of(world)))


def test_killed_before_any_effect_it_ends_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed, _ = live(monkeypatch, None, DELETE)
    number, was_killed = 0, True
    while was_killed:
        number += 1
        ended, was_killed = live(monkeypatch, number, DELETE)
        assert undisturbed == ended, f"killed before effect {number}"
        monkeypatch.undo()
    assert number > 15


def deleted(monkeypatch: pytest.MonkeyPatch, number: int | None) -> bool:
    """Made, then deleted under Delete, and killed before an effect of that."""

    async def life(scene: Scene) -> bool:
        first = scene.start_operator()
        await asyncio.sleep(1.0)
        scene.apply(queue_text(spec=DELETE))
        await scene.until(lambda: is_ready(scene), within_s=60)
        entry = await scene.entry(EMAILS)
        assert entry is not None
        if number is not None:
            kill_before(monkeypatch, first, number)
        scene.delete(QUEUE, "shop", "emails")
        await asyncio.sleep(100.0)
        was_killed = not first.is_running
        if was_killed:
            monkeypatch.undo()
            scene.start_operator()
        await scene.until(lambda: scene.find(QUEUE, "shop", "emails") is None, within_s=200)
        await asyncio.sleep(5.0)
        assert await scene.entry(EMAILS) is None
        assert [] == [name for name in scene.schema.tables["headgate"] if name.startswith("q_")]
        assert [] == scene.all(DEPLOYMENT, "shop")
        assert [] == [each for kind in (CRON_JOB, SERVICE_ACCOUNT, SECRET) for each in scene.all(kind, "shop")]
        return was_killed

    with World(1) as world:
        return world.run(life(scene_of(world)))


def test_killed_before_any_effect_of_a_deletion_nothing_is_left_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        was_killed = deleted(monkeypatch, number)
        monkeypatch.undo()
    assert number > 10
