"""The choice of lanes to check: queues with waiting messages, those that were found bad, and no others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from headgate.engines.contract import LaneReport
from headgate_operator.model.names import Key
from headgate_operator.model.world import QueueLoad
from headgate_operator.observe.lane_health import Health

KEY = Key("Queue", "shop", "emails")
WAITING = QueueLoad(at_us=1, awake=True, counted=3)
NOTHING = QueueLoad(at_us=1)


class Queue:
    """One that is followed, and how often it was asked for."""

    def __init__(self) -> None:
        self.key = KEY
        self.inspector = self
        self.lanes = 1
        self.has_nothing = False
        self.unprocessed = False
        self.asked = self.inspections = 0
        self.now = WAITING

    @property
    def figures(self) -> QueueLoad:
        self.asked += 1
        return self.now

    async def inspect(self) -> list[LaneReport]:
        self.inspections += 1
        return [LaneReport("1/0", 1, not self.unprocessed, self.unprocessed, suspicious=False, due_us=0)]

    def ends(self) -> None:
        """All that waited is done."""
        self.now, self.has_nothing = NOTHING, True
        self.asked = self.inspections = 0


class Board:
    def __init__(self, *queues: Queue) -> None:
        self.queues = queues

    def all(self) -> tuple[Queue, ...]:
        return self.queues


async def turned(health: Health, times: int = 1) -> None:
    for _ in range(times):
        await health.turn()


def test_a_queue_that_had_something_and_is_well_costs_nothing_afterwards() -> None:
    queue = Queue()
    health = Health(cast(Any, Board(queue)), lambda *_: None)
    asyncio.run(turned(health))
    assert 1 == queue.inspections
    queue.ends()
    asyncio.run(turned(health, 3))
    assert (0, 0) == (queue.asked, queue.inspections)


def test_one_that_was_found_bad_is_checked_until_it_is_well_though_nothing_waits_any_more() -> None:
    reports: list[Key] = []
    queue = Queue()
    queue.unprocessed = True
    health = Health(cast(Any, Board(queue)), lambda key, _: reports.append(key))
    asyncio.run(turned(health))
    queue.ends()
    asyncio.run(turned(health, 2))
    assert (2, [KEY]) == (queue.inspections, reports)
    queue.unprocessed = False
    asyncio.run(turned(health, 3))
    assert (3, [KEY, KEY]) == (queue.inspections, reports)
