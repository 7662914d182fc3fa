"""Members that share the lanes of a queue, in the simulated world."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.settings import GenerationSettings
from tests.simulation.timeline.timeline_puts import Queue
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

SHARED = replace(WORKED, generations=(GenerationSettings(1, 6),))


class Member(Consumer):
    """A consumer that shares."""

    async def open(self) -> TimelineQueue:
        """As any consumer, with a list of members."""
        engine = await super().open()
        engine.lanes.sharing = Sharing(self.host, self.queue.settings.queue)
        return engine

    def start(self, *, work_s: float = 0.01, batch: int = 10) -> None:
        """Begin to receive; `leave` ends it."""
        self.working = self.process.start(self._run(work_s, batch))

    async def leave(self) -> None:
        """End in good order."""
        self.working.cancel()
        if self.engine is not None:
            await self.engine.close()

    @property
    def lanes(self) -> int:
        """How many it holds now."""
        return 0 if self.engine is None else len(self.engine.lanes.held)


async def holding(members: list[Member], wanted: list[int], *, within_s: float) -> float:
    """Wait until they hold this number of lanes, in any order; how long that took."""
    for second in range(round(within_s * 2)):
        if sorted(wanted) == sorted(each.lanes for each in members):
            return second / 2
        await asyncio.sleep(0.5)
    raise AssertionError(f"wanted {wanted}, they hold {[each.lanes for each in members]}")


async def begin(queue: Queue, objects: DeliveryLog, count: int) -> list[Member]:
    """This number, from now on."""
    await lanes_ready(queue)
    members = [Member(queue, f"member-{number}", objects) for number in range(count)]
    for each in members:
        each.start()
    return members
