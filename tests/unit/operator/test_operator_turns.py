"""A decision that a caller waits for is not delayed by those without one, however many there are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.names import Key
from headgate_operator.model.plan import ReconcilePlan
from headgate_operator.model.world import DecisionMemory, NamespaceState
from headgate_operator.reconcile.reconciler import Reconciler
from tests.kit.operator_world import NOW_US, TinyWorld, resource_document

NEW = [Key("Queue", "shop", f"new-{number}") for number in range(100)]
CHANGED = Key("Queue", "shop", "changed")
PASSES_AFTER = 4
"""Decisions that may be taken before it: those already running, and the hops from its event to a reconciler."""


class Deciding:
    """Decisions in their order; at the tenth somebody changes a resource."""

    def __init__(self) -> None:
        self.queue = WorkQueue(rng=Random(1))
        self.order: list[Key] = []
        self.changed_at = 0
        self.all_decided = asyncio.Event()

    def decide(self, world: Any, _memory: DecisionMemory, _now_us: int) -> ReconcilePlan:
        self.order.append(world.key)
        if len(self.order) == 10:
            self.changed_at = len(self.order)
            self.queue.add(CHANGED, Class.CHANGED)
        if len(self.order) == len(NEW) + 1:
            self.all_decided.set()
        return ReconcilePlan()

    async def run(self) -> None:
        world = TinyWorld(resource_document("Queue", {"shards": 1}))

        async def observed(key: Key, *_: Any) -> Any:
            world.key = key
            observation = world.world()
            await asyncio.sleep(0)
            return observation

        async def performed(*_: Any) -> None: ...

        observer = SimpleNamespace(
            resource=observed, stands={"shop": NamespaceState(ready=True)}, present=lambda _: world
        )

        async def recorded(_: Key, result: Any) -> Any:
            return result

        reconciler = Reconciler(
            self.queue,
            cast(Any, observer),
            cast(Any, SimpleNamespace(record=recorded)),
            cast(Any, SimpleNamespace(perform=performed)),
            cast(Any, SimpleNamespace(add=lambda *_, **__: None)),
            now_us=lambda: NOW_US,
            forget=lambda _: None,
            decide=self.decide,
        )
        for key in NEW:
            self.queue.add(key, Class.NEW)
        working = asyncio.create_task(reconciler.run())
        await asyncio.wait_for(self.all_decided.wait(), 20)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


def test_a_change_among_a_hundred_new_resources_is_decided_about_after_a_few_of_them() -> None:
    deciding = Deciding()
    asyncio.run(deciding.run())
    assert deciding.order.index(CHANGED) - deciding.changed_at <= PASSES_AFTER
    assert sorted([*NEW, CHANGED], key=str) == sorted(deciding.order, key=str)
