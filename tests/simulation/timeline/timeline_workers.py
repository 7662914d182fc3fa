"""Consumers of a timeline queue in the simulated world: processes that receive and settle, and what they saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Protocol

from headgate.engines.contract import Ack, Delivery, NewMessage, Settled
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.errors import HeadgateError, Unavailable
from headgate.expiry import others_may_act_after
from headgate.store.catalogue.decide_generation import Generation as CatalogueGeneration
from headgate.store.catalogue.decide_generation import Generations, decide_next, decide_sure, first, is_over, turned
from headgate.store.model.positions import time_us_of
from tests.kit.process import simulated_host
from tests.kit.simulated_world import Process, World
from tests.simulation.timeline.timeline_puts import SECOND, SETTINGS, GatedStore, Queue

WORKED = replace(
    SETTINGS,
    part_us=5 * SECOND,
    visibility_us=5 * SECOND,
    lease=LeaseTerms(ttl_s=10, touch_us=2 * SECOND, skew_us=500_000),
    receipt_key=b"secret",
)


LAST_COPIES_US = 40 * SECOND
"""The longest wait of the message that failed last for its last delivery."""


@dataclass
class DeliveryLog:
    """The observations of all consumers of a scenario."""

    deliveries: list[tuple[str, Delivery]] = field(default_factory=list)
    acked: Counter[str] = field(default_factory=Counter)
    """How often a settle of a message was answered with done."""
    tried: set[str] = field(default_factory=set)
    """Messages whose settling was asked for; the answer may not have come, or not been known."""
    early: list[str] = field(default_factory=list)
    late_us: int = 0
    """How late the latest was."""

    def times(self, message_id: str) -> int:
        """How often a message was delivered."""
        return sum(each.message_id == message_id for _, each in self.deliveries)


class Consumer:
    """One process that receives and acknowledges."""

    def __init__(
        self,
        queue: Queue,
        name: str,
        objects: DeliveryLog,
        *,
        lanes_max: int = 100,
        ahead_us: int = 0,
        dead: TimelineSettings | None = None,
    ) -> None:
        self.queue = queue
        self.delivery_log = objects
        self.process: Process = queue.world.process(name)
        self.process.clock.step(ahead_us / SECOND)
        self.store = GatedStore(queue.cluster, self.process)
        self.host = simulated_host(self.process, self.store)
        self.dead = dead
        self.lanes_max = lanes_max
        self.engine: TimelineQueue | None = None
        self._leaving = False

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
        while not self._leaving:
            try:
                result = await engine.receive(batch, wait_us=SECOND)
                for each in result:
                    now_us = self.process.clock.wall_us()
                    self.delivery_log.deliveries.append((self.process.name, each))
                    self.delivery_log.late_us = max(self.delivery_log.late_us, now_us - each.due_us)
                    if now_us < each.due_us:
                        self.delivery_log.early.append(each.message_id)
                if result:
                    await asyncio.sleep(work_s)
                    self.delivery_log.tried |= {each.message_id for each in result}
                    self.note(result, await engine.settle([Ack(each.receipt) for each in result]))
            except HeadgateError:
                await asyncio.sleep(0.2)

    def leave(self) -> None:
        """Begin to give everything back, as a program that ends."""
        self._leaving = True
        if self.engine is not None:
            self.process.start(self.engine.close())

    def note(self, result: list[Delivery], settled: list[Settled]) -> None:
        """Count what was honoured."""
        for each, how in zip(result, settled, strict=True):
            self.delivery_log.acked[each.message_id] += how is Settled.DONE


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
        message = NewMessage(f"{name}-{number}".encode(), group=group)
        await client.process.start(queue.put(client, message))
        await asyncio.sleep(every_s)


async def until_all_settled(queue: Queue, objects: DeliveryLog, *, within_s: float) -> None:
    """Wait until every lane has passed all that was put; a scenario that never gets there fails here."""
    deadline_s = queue.world.now_s() + within_s
    client = queue.client(f"observer-{queue.world.now_s()}")
    calm_us = client.process.clock.wall_us()
    until_us = max([calm_us, *map(due_of, queue.acknowledged)]) + LAST_COPIES_US
    names = [(each.number, shard) for each in queue.settings.generations for shard in range(each.shards)]
    while names:
        if queue.world.now_s() > deadline_s:
            missing = set(queue.acknowledged) - {each for each, count in objects.acked.items() if count}
            raise AssertionError(f"not settled within {within_s} s: lanes {names}, {len(missing)} without an answer")
        await asyncio.sleep(1)
        generation, shard = names[-1]
        key = lane_key(queue.settings, generation, shard)
        lane = Lane(client.host, queue.settings.tables.lanes, key, queue.settings.lease)
        observed_lane = await client.process.start(lane.read_state())
        if observed_lane is not None and (observed_lane.is_retired or time_us_of(observed_lane.last) > until_us):
            names.pop()


def due_of(message_id: str) -> int:
    """The time for which a message was stamped first."""
    return time_us_of(MessagePlace.from_bytes(id_bytes(message_id)).row.due)


def check_delivered(queue: Queue, objects: DeliveryLog) -> None:
    """In every run, all was delivered and settled, no second receipt was honoured, and nothing came early."""
    assert [] == objects.early
    assert {} == {each: count for each, count in objects.acked.items() if count > 1}
    delivered = {each.message_id for _, each in objects.deliveries}
    assert set() == set(queue.acknowledged) - delivered, "acknowledged, and never delivered"
    assert set() == set(queue.acknowledged) - objects.tried, "passed, and never settled"


class Changing(Protocol):
    """A queue with settings that a catalogue may change."""

    world: World
    settings: TimelineSettings


class Catalogue:
    """The generations of a queue, changed as the operator does: what every process reads of them, when it does."""

    def __init__(self, queue: Changing) -> None:
        self.queue = queue
        self.generations = first(queue.settings.generations[0].shards)
        self.process = queue.world.process("operator")

    def announce(self, shards: int) -> None:
        """The first of the two writes: the next generation, from a given time on."""
        generation = decide_next(self.generations, shards, now_us=self.now_us, skew_us=self._skew_us)
        self.set_generations(replace(self.generations, next=generation))

    def make_sure(self) -> None:
        """The second: from when on nobody writes to the one before."""
        assert self.generations.next is not None
        sure_us = decide_sure(self.generations.next, acknowledged_us=self.now_us, skew_us=self._skew_us)
        self.set_generations(replace(self.generations, sure_us=sure_us))

    def turn(self) -> None:
        """The next is the current one."""
        assert is_over(self.generations, now_us=self.now_us, skew_us=self._skew_us)
        self.set_generations(turned(self.generations))

    async def reshard(self, shards: int, *, sure_after_s: float = 1.0) -> None:
        """The whole change, up to its turn."""
        self.announce(shards)
        await asyncio.sleep(sure_after_s)
        self.make_sure()
        assert self.generations.sure_us is not None
        over_us = others_may_act_after(self.generations.sure_us, self._skew_us)
        await asyncio.sleep((over_us - self.now_us) / SECOND + 0.001)
        self.turn()

    def end_now(self, shards: int) -> None:
        """As if all of that were done, for a queue to which nobody puts meanwhile."""
        now_us = self.now_us
        following = CatalogueGeneration(self.generations.current.number + 1, shards, now_us)
        self.set_generations(turned(replace(self.generations, next=following, sure_us=now_us)))

    def set_generations(self, generations: Generations) -> None:
        """The value for all readers from now on."""
        self.generations = generations
        windows = [
            GenerationSettings(each.number, each.shards, each.from_us, each.until_us, each.sure_us)
            for each in generations.windows()
        ]
        self.queue.settings = replace(self.queue.settings, generations=tuple(windows))

    @property
    def now_us(self) -> int:
        """By the operator's clock."""
        return self.process.clock.wall_us()

    @property
    def _skew_us(self) -> int:
        return self.queue.settings.skew_us


async def until_retired(queue: Queue, generation: int, *, within_s: float) -> None:
    """Wait until every lane of a generation is retired."""
    shards = next(each.shards for each in queue.settings.generations if each.number == generation)
    client = queue.client(f"observer-{queue.world.now_s()}")
    deadline_s = queue.world.now_s() + within_s
    for shard in range(shards):
        key = lane_key(queue.settings, generation, shard)
        lane = Lane(client.host, queue.settings.tables.lanes, key, queue.settings.lease)
        while not await client.process.start(_is_retired(lane)):
            assert queue.world.now_s() < deadline_s, f"lane {generation}/{shard} is not retired"
            await asyncio.sleep(1)


async def _is_retired(lane: Lane) -> bool:
    try:
        lanes = await lane.read_state()
    except Unavailable:
        return False
    return lanes is not None and lanes.is_retired
