"""A queue with rows that land late, its workers and its repairers: what the tests of repair share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headgate.engines.contract import MessageLocation, Repaired
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.packed_row import PackedRun, pack
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import DAYS, MessagePlace, RowPlace, day_of
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.store.model.positions import last_at
from headgate.store.model.statements import Insert
from headgate.store.store import OutcomeUnknown
from tests.kit.process import simulated_host
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, SKEW, Client, GatedStore, Queue
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
REPAIRED = replace(WORKED, generations=(GenerationSettings(1, 1),), retention_us=30 * DAY_S * SECOND)


class Mender:
    """One process that repairs."""

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.process = queue.world.process(name)
        self.store = GatedStore(queue.cluster, self.process)
        self.host = simulated_host(self.process, self.store)

    async def repair(self, **options: Any) -> Repaired:
        """One pass, on knowledge of now."""
        return await self.process.start(self._repair(**options))

    def begin(self, **options: Any) -> asyncio.Task[Repaired]:
        """One pass that may not come to its end."""
        return self.process.start(self._repair(**options))

    async def _repair(self, **options: Any) -> Repaired:
        engine = TimelineQueue(self.host, self.queue.settings, read_us=self.process.clock.wall_us())
        try:
            return await engine.repair(**options)
        finally:
            await engine.close()


@dataclass
class Ward:
    """A queue, its workers, and its repairers."""

    queue: Queue
    delivery_log: DeliveryLog = field(default_factory=DeliveryLog)
    number: int = 0

    def worker(self) -> Consumer:
        """A consumer that receives and acknowledges."""
        self.number += 1
        consumer = Consumer(self.queue, f"worker-{self.number}", self.delivery_log)
        consumer.start()
        return consumer

    async def work(self, for_s: float) -> None:
        """A worker runs for a while and dies, and its leases expire."""
        consumer = self.worker()
        await asyncio.sleep(for_s)
        consumer.process.kill()
        await asyncio.sleep(12)

    async def repair(self, **options: Any) -> Repaired:
        """One pass by a process of its own."""
        self.number += 1
        mender = Mender(self.queue, f"mender-{self.number}")
        done = await mender.repair(**options)
        mender.process.kill()
        return done

    async def repair_to_the_end(self) -> None:
        """All checks that will ever be due, with work in between."""
        for wait_s in (MINUTE_S, 15 * MINUTE_S, 5 * HOUR_S, 2 * DAY_S):
            await asyncio.sleep(wait_s)
            await self.repair()
            await self.work(20)

    def payloads(self) -> list[bytes]:
        """All that was delivered."""
        return sorted(each.payload for _, each in self.delivery_log.deliveries)


async def opened(queue: Queue) -> Ward:
    """A queue with its lanes, and a first message that makes the index row of its part."""
    await lanes_ready(queue)
    return Ward(queue)


@dataclass(frozen=True)
class Row:
    """A row as a producer stamped it."""

    place: RowPlace
    run: PackedRun
    statement: Insert
    ttl_s: int

    @property
    def part(self) -> int:
        """Where it lies."""
        return self.place.part(REPAIRED.part_us)


def stamped(
    client: Client,
    *payloads: bytes,
    due_in_s: float = 1.0,
    groups: list[bytes] | None = None,
    copy_of: Row | None = None,
) -> Row:
    """A row of the first generation, not sent."""
    now_us = client.process.clock.wall_us()
    count = len(payloads)
    run = PackedRun(due_us=[now_us] * count, put_us=[now_us] * count, payload=list(payloads), group=groups)
    if copy_of is not None:
        ids = [MessagePlace(copy_of.place, index).to_bytes() for index in range(len(copy_of.run))]
        run = replace(copy_of.run, message_id=ids, replaces=MessagePlace(copy_of.place, 0).to_bytes())
    return _row(client, run, now_us + round(due_in_s * SECOND))


def _row(client: Client, run: PackedRun, due_us: int) -> Row:
    now_us = client.process.clock.wall_us()
    place = RowPlace(1, 0, 0, client.host.positions.at(due_us))
    ttl_s = (due_us - now_us + REPAIRED.retention_us) // SECOND
    values = {
        "queue": QUEUE,
        "generation": 1,
        "part": place.part(REPAIRED.part_us),
        "sub": 0,
        "shard": 0,
        "due": place.due,
        "run": pack(run),
    }
    statement = Insert(REPAIRED.tables.work, values, timestamp_us=now_us, ttl_s=ttl_s)
    return Row(place, run, statement, ttl_s)


async def reported_of(queue: Queue, message_id: str) -> MessageLocation:
    """The place of a message, for any reader."""
    asker = Consumer(queue, f"asker-{queue.world.now_s()}", DeliveryLog())

    async def ask() -> MessageLocation:
        return await (await asker.open()).where(message_id)

    return await asker.process.start(ask())


def index_rows(client: Client, place: RowPlace, *, announced: bool = True) -> list[Insert]:
    """The index row of a part, and that of its day: as an application's batch has them."""
    now_us, part = client.process.clock.wall_us(), place.part(REPAIRED.part_us)
    rows = [(day_of(part, REPAIRED.part_us), part), (DAYS, day_of(part, REPAIRED.part_us))]
    values: list[dict[str, Any]] = [
        {"queue": QUEUE, "generation": place.generation, "day": day, "part": each, "sub": 0, "put_us": now_us}
        for day, each in rows
    ]
    if announced:
        values[0]["late_us"] = now_us
    kept_s = 2 * REPAIRED.retention_us // SECOND
    tables = REPAIRED.tables
    return [Insert(tables.parts, each, timestamp_us=REPAIRED.retention_us, ttl_s=kept_s) for each in values]


async def indexed(client: Client, row: Row, *, announced: bool = True) -> Row:
    """Its index rows are durable; it is not."""
    for statement in index_rows(client, row.place, announced=announced):
        await client.store.write(statement)
    return row


async def land(queue: Queue, row: Row) -> None:
    """A row that a producer sent long ago reaches the replicas, with its old timestamp and TTL."""
    hinter = queue.client(f"hinter-{queue.world.now_s()}")
    values = dict(zip(row.statement.shape.names, row.statement.values, strict=True))
    left_s = row.ttl_s - round(queue.world.now_s())
    table, timestamp_us = row.statement.shape.table, row.statement.timestamp_us
    await hinter.store.write(Insert(table, values, timestamp_us=timestamp_us, ttl_s=left_s))


async def passed_by(ward: Ward, row: Row | None = None) -> None:
    """A worker whose position goes beyond all that is due by now."""
    await ward.work(20)


async def ends_unknown_of(client: Client, statement: Insert) -> None:
    with pytest.raises(OutcomeUnknown):
        await client.store.attempt(statement, 10)


async def resharded(queue: Queue, shards: int) -> None:
    """From now on the queue is one whose first generation is written by nobody any more."""
    maker = queue.client("maker of the second")
    now_us = maker.process.clock.wall_us()
    first = replace(queue.settings.generations[0], until_us=now_us, sure_us=now_us - SKEW - SECOND)
    second = GenerationSettings(2, shards, now_us)
    queue.settings = replace(queue.settings, generations=(first, second))
    await maker.process.start(make_lanes(maker.host, queue.settings, second))


async def retired(queue: Queue, generation: int) -> None:
    """All lanes of a generation are left for good, as far as now."""
    client = queue.client(f"retirer-{generation}")
    settings = queue.settings
    shards = next(each.shards for each in settings.generations if each.number == generation)

    async def retire(shard: int) -> None:
        key = lane_key(settings, generation, shard)
        lane = Lane(client.host, settings.tables.lanes, key, settings.lease)
        row = await lane.read_state()
        assert row is not None
        if row.is_retired:
            return
        lease_term = await lane.take(row)
        assert lease_term is not None
        assert await lane.retire(lease_term, last=last_at(client.process.clock.wall_us()))

    for shard in range(shards):
        await client.process.start(retire(shard))


def alone_at(client: Client, payload: bytes, in_s: float) -> Row:
    """A row of one message that is due later."""
    now_us = client.process.clock.wall_us()
    due_us = now_us + round(in_s * SECOND)
    return _row(client, PackedRun([due_us], [now_us], [payload]), due_us)


def place_of(statement: Insert) -> RowPlace:
    values = dict(zip(statement.shape.names, statement.values, strict=True))
    return RowPlace(values["generation"], values["sub"], values["shard"], values["due"])


async def one_late(queue: Queue) -> Ward:
    """A message that landed below the position, more than a check ago."""
    ward = await opened(queue)
    client = queue.client("producer")
    row = await indexed(client, stamped(client, b"late"))
    await ward.work(20)
    await asyncio.sleep(2 * MINUTE_S)
    await land(queue, row)
    return ward
