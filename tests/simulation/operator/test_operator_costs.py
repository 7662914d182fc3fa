"""The costs of a new queue to its operator: rounds, writes and reads, so that a thousand at once stay affordable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.store.catalogue.catalogue import Catalogue
from headgate_operator.model.kinds import QUEUE
from headgate_operator.model.names import Key
from headgate_operator.reconcile.apply_plan import PlanApplier
from headgate_operator.reconcile.reconciler import Reconciler
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import Scene, condition, queue_text, scene_of

SHARED = (
    "{storage: {tables: shared},"
    " consumers: [{name: mailer, image: 'mailer:1', handler: 'mailer:send', scaling: {min: 0}}]}"
)


class Costs:
    """The operator's work for one queue since the last reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.visits = self.rounds = self.statuses = self.reads = 0
        key = Key("Queue", "shop", name)
        reconcile, decide = Reconciler.reconcile, Reconciler._take_round
        status, find = PlanApplier._status, Catalogue.find

        async def reconciled(of: Reconciler, each: Key) -> Any:
            self.visits += each == key
            return await reconcile(of, each)

        async def decided(of: Reconciler, each: Key, *rest: Any) -> Any:
            self.rounds += each == key
            return await decide(of, each, *rest)

        async def output(of: PlanApplier, effect: Any) -> Any:
            self.statuses += effect.key == key
            return await status(of, effect)

        async def result(of: Catalogue, each: Any, **options: Any) -> Any:
            self.reads += each.name == name
            return await find(of, each, **options)

        monkeypatch.setattr(Reconciler, "reconcile", reconciled)
        monkeypatch.setattr(Reconciler, "_take_round", decided)
        monkeypatch.setattr(PlanApplier, "_status", output)
        monkeypatch.setattr(Catalogue, "find", result)


async def is_ready(scene: Scene, name: str) -> None:
    await scene.until(lambda: condition(scene.find(QUEUE, "shop", name)) == ("True", "Reconciled"), 30)


def test_a_fresh_queue_beside_others_is_visited_once_read_once_and_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = Costs(monkeypatch, "letters")

    async def scenario(scene: Scene) -> tuple[int, int, int, int]:
        scene.start_operator()
        scene.apply(queue_text("emails", SHARED))
        await is_ready(scene, "emails")
        await asyncio.sleep(30)
        scene.apply(queue_text("letters", SHARED))
        await is_ready(scene, "letters")
        await asyncio.sleep(30)
        return costs.visits, costs.rounds, costs.reads, costs.statuses

    with World(1) as world:
        assert (1, 4, 1, 1) == world.run(scenario(scene_of(world)))


def test_a_changed_spec_is_executed_without_reading_what_was_just_written(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, "emails")

    async def scenario(scene: Scene) -> int:
        scene.start_operator()
        scene.apply(queue_text("emails", SHARED))
        await is_ready(scene, "emails")
        await asyncio.sleep(10)
        before = costs.reads
        scene.patch(QUEUE, "shop", "emails", {"spec": {"maxReceives": 9}})
        await asyncio.sleep(10)
        entry = await scene.entry(Key("Queue", "shop", "emails"))
        assert entry is not None
        assert 9 == entry.spec["maxReceives"]
        return costs.reads - before

    with World(1) as world:
        assert world.run(scenario(scene_of(world))) <= 1  # the one by which the test reads
