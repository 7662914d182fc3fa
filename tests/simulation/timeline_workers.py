"""Consumers of a timeline queue in the simulated world: processes that receive and settle, and what they saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from penstock.engines.contract import Ack, Delivery, Message, Settled
from penstock.engines.decide_lease import LeaseTerms
from penstock.engines.host import Host
from penstock.engines.timeline.engine import TimelineQueue
from penstock.engines.timeline.lane_rows import make_lanes
from penstock.engines.timeline.layout import CASSANDRA_4_LAST_EXPIRY_S
from penstock.engines.timeline.settings import TimelineSettings
from penstock.errors import PenstockError
from penstock.store.positions import Positions
from penstock.store.simulated import SimulatedStore
from penstock.testing.world import Process
from tests.simulation.timeline_puts import SECOND, SETTINGS, Queue

WORKED = replace(
    SETTINGS,
    part_us=5 * SECOND,
    visibility_us=5 * SECOND,
    lease=LeaseTerms(ttl_s=10, touch_us=2 * SECOND, skew_us=500_000),
    receipt_key=b"secret",
)


@dataclass
class Seen:
    """What all consumers of a scenario met."""

    deliveries: list[tuple[str, Delivery]] = field(default_factory=list)
    acked: Counter[str] = field(default_factory=Counter)
    """How often a settle of a message was answered with done."""
    early: list[str] = field(default_factory=list)

    def times(self, message_id: str) -> int:
        """How often a message was delivered."""
        return sum(each.message_id == message_id for _, each in self.deliveries)


class Consumer:
    """One process that receives and acknowledges."""

    def __init__(
        self,
        queue: Queue,
        name: str,
        seen: Seen,
        *,
        lanes_max: int = 100,
        ahead_us: int = 0,
        dead: TimelineSettings | None = None,
    ) -> None:
        self.queue = queue
        self.seen = seen
        self.process: Process = queue.world.process(name)
        self.process.clock.step(ahead_us / SECOND)
        self.store = SimulatedStore(queue.cluster, self.process)
        self.host = Host(
            name,
            self.store,
            self.process.clock.wall_us,
            self.process.uuid,
            self.process.chance,
            Positions(lambda: self.process.chance.getrandbits(56)),
            CASSANDRA_4_LAST_EXPIRY_S,
        )
        self.dead = dead
        self.lanes_max = lanes_max
        self.engine: TimelineQueue | None = None

    def start(self, *, work_s: float = 0.01, batch: int = 10) -> None:
        """Begin to receive, in the process."""
        self.process.start(self._run(work_s, batch))

    async def open(self) -> TimelineQueue:
        """The queue as this process has it; to be called in the process."""
        now_us = self.process.clock.wall_us()
        self.engine = TimelineQueue(
            self.host, self.queue.settings, read_us=now_us, dead_letters=self.dead, lanes_max=self.lanes_max
        )
        self.process.start(self._keep_fresh(self.engine))
        return self.engine

    async def _keep_fresh(self, engine: TimelineQueue) -> None:
        while True:
            await asyncio.sleep(20)
            engine.settings_changed(self.queue.settings, read_us=self.process.clock.wall_us(), dead_letters=self.dead)

    async def _run(self, work_s: float, batch: int) -> None:
        engine = await self.open()
        while True:
            try:
                found = await engine.receive(batch, wait_us=SECOND)
                for each in found:
                    self.seen.deliveries.append((self.process.name, each))
                    if self.process.clock.wall_us() < each.due_us:
                        self.seen.early.append(each.message_id)
                if found:
                    await asyncio.sleep(work_s)
                    self.note(found, await engine.settle([Ack(each.receipt) for each in found]))
            except PenstockError:
                await asyncio.sleep(0.2)

    def note(self, found: list[Delivery], settled: list[Settled]) -> None:
        """Count what was honoured."""
        for each, how in zip(found, settled, strict=True):
            self.seen.acked[each.message_id] += how is Settled.DONE


async def lanes_ready(queue: Queue) -> None:
    """Make the lanes of every generation, by a process of its own."""
    client = queue.client("maker")
    for generation in queue.settings.generations:
        await client.process.start(make_lanes(client.host, queue.settings, generation))


async def put_many(queue: Queue, name: str, count: int, *, every_s: float = 0.05, group: str | None = None) -> None:
    """A producer in a process of its own that puts one message after the other."""
    client = queue.client(name)
    client.process.start(queue.keep_fresh(client))
    for number in range(count):
        message = Message(f"{name}-{number}".encode(), group=group)
        await client.process.start(queue.put(client, message))
        await asyncio.sleep(every_s)


async def until_all_acked(queue: Queue, seen: Seen, *, within_s: float) -> None:
    """Wait until every acknowledged put is settled; a scenario that never gets there fails here."""
    deadline_s = queue.world.now_s() + within_s
    while set(queue.acknowledged) - {each for each, count in seen.acked.items() if count}:
        if queue.world.now_s() > deadline_s:
            missing = set(queue.acknowledged) - {each for each, count in seen.acked.items() if count}
            raise AssertionError(f"not settled within {within_s} s: {len(missing)} of {len(queue.acknowledged)}")
        await asyncio.sleep(0.5)


def check_seen(queue: Queue, seen: Seen) -> None:
    """What holds of every run: all is settled, once, and nothing came early."""
    assert [] == seen.early
    assert {} == {each: count for each, count in seen.acked.items() if count > 1}
    assert set() == set(queue.acknowledged) - {each for each, count in seen.acked.items() if count}
