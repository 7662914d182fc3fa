"""Faults that lives of the simulation found, each made as small as it goes: the schedule is in its docstring."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from headgate.engines.contract import Ack, Cancelled, Delivery, ExtendDelivery, NackDelivery, NewMessage, Settled
from headgate.engines.lanes.log.settle_log_format import RowFacts, Tried, encode
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.packed_row import PackedRun, pack
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.engines.timeline.model.partitions import IndexKey, index_statement
from headgate.engines.timeline.read.reading import row_key
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import Insert, UpdateIf
from tests.simulation.timeline.test_timeline_lending import Job
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, Client, GatedStore, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, put_many

ONE_LANE = replace(WORKED, generations=(replace(WORKED.generations[0], shards=1),), part_us=2 * SECOND)
TWO_LANES = replace(WORKED, generations=(replace(WORKED.generations[0], shards=2),))
SHORT = replace(ONE_LANE, retention_us=20 * SECOND)


async def opened(consumer: Consumer, store: GatedStore | None = None) -> TimelineQueue:
    """The queue as a consumer's process has it."""
    if store is not None:
        consumer.host = replace(consumer.host, store=store)
    return await consumer.process.start(consumer.open())


async def received(consumer: Consumer, engine: TimelineQueue, *, for_s: int = 10, ack: bool = True) -> list[Delivery]:
    """The messages that arrive within a while, settled."""
    matches = []

    async def work() -> None:
        for _ in range(for_s):
            for each in await engine.receive(20, wait_us=SECOND, visibility_us=60 * SECOND):
                matches.append(each)
                if ack:
                    await engine.settle([Ack(each.receipt)])

    await consumer.process.start(work())
    return matches


def test_a_purge_between_the_reading_of_a_row_and_the_books_settles_that_row_too() -> None:
    """The owner has read the rows of one part and waits for those of the next; it learns of a purge by its touch;
    then both parts go into its books, the first as it was before the purge."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        await put_many(queue, "producer", 30, every_s=0.2)
        consumer = Consumer(queue, "owner", DeliveryLog())
        store = GatedStore(queue.cluster, consumer.process)
        purged = asyncio.Event()
        reads = 0

        async def gate(statement: Any) -> None:
            nonlocal reads
            if getattr(statement, "shape", None) and statement.shape.table.name == "timeline_work":
                reads += 1
                if reads == 2:
                    await purged.wait()

        store.gate = gate
        engine = await opened(consumer, store)
        purger = Consumer(queue, "purger", DeliveryLog())
        purging = await opened(purger)
        consumer.process.start(_wants_lanes(engine))
        await asyncio.sleep(2)
        before = purger.process.start(purging.purge())
        await before
        purged.set()
        return [each.payload for each in await consumer.process.start(received(consumer, engine))]

    assert [] == simulate(scenario, settings=ONE_LANE)


async def _wants_lanes(engine: TimelineQueue) -> None:
    engine.lanes.want(100)


def test_a_lane_that_was_checked_before_a_purge_is_not_taken_as_it_was_then() -> None:
    """A reads a free lane; a purge finds no owner and returns; A takes the lane, and knows of no purge."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        taker, purger = queue.client("taker"), Consumer(queue, "purger", DeliveryLog())
        key = lane_key(queue.settings, 1, 0)
        lane = Lane(taker.host, queue.settings.tables.lanes, key, queue.settings.lease)
        row = await taker.process.start(lane.read_state())
        assert row is not None
        purging = await opened(purger)
        await purger.process.start(purging.purge())
        assert await taker.process.start(lane.take(row)) is None

    simulate(scenario, settings=ONE_LANE)


def test_a_purge_whose_write_was_lost_is_sent_again_and_not_taken_for_done() -> None:
    """The LWT of the purge never arrives, and is not found afterwards; nobody owns the lane, so nobody reports it."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        await put_many(queue, "producer", 3)
        purger = Consumer(queue, "purger", DeliveryLog())
        store = GatedStore(queue.cluster, purger.process)
        lost = 0

        async def gate(statement: Any) -> None:
            nonlocal lost
            if isinstance(statement, UpdateIf) and not lost:
                lost += 1
                queue.world.network.lose("request", source="purger")

        store.gate = gate
        purging = await opened(purger, store)
        await asyncio.sleep(2)
        await purger.process.start(purging.purge())
        assert 1 == lost
        consumer = Consumer(queue, "worker", DeliveryLog())
        return [each.payload for each in await received(consumer, await opened(consumer))]

    assert [] == simulate(scenario, settings=ONE_LANE)


def row_and_copy(client: Client, payload: bytes, *, distance_s: float) -> list[Insert]:
    """A row that is due in a second, and the restamped row that was stamped much later; their parts are in the
    index."""
    now_us = client.process.clock.wall_us()
    run = PackedRun(due_us=[now_us], put_us=[now_us], payload=[payload])
    first = RowPlace(1, 0, 0, client.host.positions.at(now_us + SECOND))
    name = MessagePlace(first, 0).to_bytes()
    restamp = RowPlace(1, 0, 0, client.host.positions.at(now_us + SECOND + round(distance_s * SECOND)))
    keys = {IndexKey(1, place.part(SHORT.part_us), 0) for place in (first, restamp)}
    return [
        *(index_statement(SHORT, key, now_us=now_us, last_expiry_s=client.host.last_expiry_s) for key in keys),
        _insert(first, run, now_us),
        _insert(restamp, replace(run, message_id=[name], replaces=name), now_us),
    ]


def _insert(place: RowPlace, run: PackedRun, now_us: int) -> Insert:
    key = {"queue": QUEUE, "generation": 1, "part": place.part(SHORT.part_us), "sub": 0, "shard": 0}
    ttl_s = -(-(time_us_of(place.due) - now_us + SHORT.retention_us) // SECOND)
    values = {**key, "due": place.due, "run": pack(run)}
    return Insert(SHORT.tables.work, values, timestamp_us=now_us, ttl_s=ttl_s)


def test_a_twin_that_outlives_its_settled_first_row_does_not_come_for_it() -> None:
    """The first row of a family is settled while another message holds the position; the owner dies; the first row
    expires, its restamped row, which is due later, does not yet; the next owner reads from the position on."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"holds")))
        await asyncio.sleep(1)
        for each in row_and_copy(client, b"once", distance_s=4):
            await client.store.write(each)
        consumer = Consumer(queue, "owner", DeliveryLog())
        engine = await opened(consumer)
        result = await received(consumer, engine, for_s=8, ack=False)
        by_payload = {each.payload: each for each in result}
        assert {b"holds", b"once"} == set(by_payload)
        settles = [Ack(by_payload[b"once"].receipt), ExtendDelivery(by_payload[b"holds"].receipt, 60 * SECOND)]
        assert {Settled.DONE} == set(await consumer.process.start(engine.settle(settles)))
        consumer.process.kill()
        await asyncio.sleep(
            22.5 - queue.world.now_s()
        )  # the first row is gone by now, and its part from the old index
        other = Consumer(queue, "other", DeliveryLog())
        return [each.payload for each in await received(other, await opened(other))]

    assert b"once" not in simulate(scenario, settings=SHORT)


def late_record(copy_row: Insert, first: Insert, *, epoch: int, now_us: int) -> Insert:
    """The record that an owner wrote of a restamped row that it was about to deliver."""
    value_of = dict(zip(copy_row.shape.names, copy_row.values, strict=True))
    due, first_due = (dict(zip(each.shape.names, each.values, strict=True))["due"] for each in (copy_row, first))
    assert isinstance(due, UUID) and isinstance(first_due, UUID)
    facts = {row_key(0, due, first_due): RowFacts(tried={0: Tried(epoch, 0, 1, now_us)})}
    key = {name: value_of[name] for name in ("queue", "generation", "shard", "part")}
    values = {**key, "writer": uuid4(), "piece": 0, "facts": encode(facts, epoch=epoch, piece=0)}
    return Insert(SHORT.tables.settled, values, timestamp_us=now_us, ttl_s=100)


def test_a_record_that_lands_late_does_not_turn_a_family_to_another_of_its_rows() -> None:
    """Of a family the restamped row alone is there. An owner is about to hand it out, and dies; its record of that
    is on its
    way. The first row lands. The next owner knows of no record, settles that, and dies. Now the record lands."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        first = Consumer(queue, "first", DeliveryLog())
        assert [] == await received(first, await opened(first), for_s=4)
        first.process.kill()
        await asyncio.sleep(12)  # its lease is over, and what comes now was never in flight with it
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"holds")))
        await asyncio.sleep(1)
        *indexed, row, restamp = row_and_copy(client, b"once", distance_s=4)
        for each in (*indexed, row, restamp):
            await client.store.write(each)
        second = Consumer(queue, "second", DeliveryLog())
        engine = await opened(second)
        by_payload = {each.payload: each for each in await received(second, engine, for_s=15, ack=False)}
        assert {b"holds", b"once"} == set(by_payload)
        settles = [Ack(by_payload[b"once"].receipt), ExtendDelivery(by_payload[b"holds"].receipt, 60 * SECOND)]
        assert {Settled.DONE} == set(await second.process.start(engine.settle(settles)))
        second.process.kill()
        now_us = client.process.clock.wall_us()
        await client.store.write(late_record(restamp, row, epoch=1, now_us=now_us))
        third = Consumer(queue, "third", DeliveryLog())
        return [each.payload for each in await received(third, await opened(third), for_s=15)]

    assert b"once" not in simulate(scenario, settings=replace(SHORT, retention_us=90 * SECOND))


def test_a_row_that_lands_while_a_job_settles_its_restamped_row_does_not_come_for_it() -> None:
    """Of a lineage the restamped row alone is there when a job reads its range. The first row lands, and an owner
    reads both: it lines up the first. Then the job settles the restamped one, and gives the range back."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        client = queue.client("producer")
        *indexed, row, restamp = row_and_copy(client, b"once", distance_s=1)
        for each in (*indexed, restamp):
            await client.store.write(each)
        await asyncio.sleep(4)
        job = Job(queue)
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        rows = await job.process.start(job.read(reserved))
        await client.store.write(row)
        consumer = Consumer(queue, "owner", DeliveryLog())
        engine = await opened(consumer)
        assert [] == await received(consumer, engine, for_s=4)
        (dispatcher,) = engine.lanes.held.values()
        assert 1 == dispatcher.delivery_state.unsettled
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows))
        assert [b"once"] == job.done
        assert await job.process.start(job.reserver.give_back(job.reserved))
        return [each.payload for each in await received(consumer, engine)]

    assert [] == simulate(scenario, settings=replace(SHORT, retention_us=90 * SECOND))


@pytest.mark.parametrize("from_s", [24.0, 24.3, 24.6, 24.9, 25.2, 25.5, 25.8])
def test_the_mark_of_a_cancel_outlives_the_message(from_s: float) -> None:
    """A message is cancelled, and its lane stands still until just before it expires: of row and mark, both with
    times to live in whole seconds of other clocks, the mark must not go first."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        client, canceller = queue.client("producer", ahead_us=240_000), queue.client("canceller", ahead_us=-240_000)
        due_us = client.process.clock.wall_us() + 5 * SECOND
        ids = await client.process.start(queue.put(client, NewMessage(b"gone", due_us=due_us)))
        assert ids is not None
        await asyncio.sleep(0.9)
        assert Cancelled.CANCELLED is await canceller.process.start(canceller.cancels.cancel(ids[0]))
        await asyncio.sleep(from_s - queue.world.now_s())
        consumer = Consumer(queue, "owner", DeliveryLog())
        return [each.payload for each in await received(consumer, await opened(consumer), for_s=4)]

    assert [] == simulate(scenario, settings=SHORT)


@pytest.mark.parametrize("turns", range(6))
def test_a_wait_that_is_cancelled_as_it_ends_is_cancelled(turns: int) -> None:
    """A change wakes a receive, and at the same time its caller is cancelled (or a lease term's loops are ended)."""

    async def scenario(queue: Queue) -> bool:
        await lanes_ready(queue)
        consumer = Consumer(queue, "worker", DeliveryLog())
        engine = await opened(consumer)
        receiving = consumer.process.start(engine.receive(1, wait_us=60 * SECOND))
        await asyncio.sleep(3.1)
        engine._changed.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving], timeout=5)
        return receiving.cancelled()

    assert simulate(scenario, settings=ONE_LANE)


def test_a_consumer_with_work_in_flight_keeps_receiving_after_the_crash_of_another() -> None:
    """An owner dies with a message in flight. The next process has one in flight for long, and receives what the
    other had as well as all that comes."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        first, second = Consumer(queue, "first", DeliveryLog()), Consumer(queue, "second", DeliveryLog())
        owner = await opened(first)
        (lost,) = await first.process.start(owner.receive(1, wait_us=10 * SECOND))
        first.process.kill()
        await asyncio.sleep(12)
        await put_many(queue, "later", 3)
        engine = await opened(second)
        given: list[Delivery] = []
        while len(given) < 4:
            given += await second.process.start(engine.receive(1, wait_us=SECOND, visibility_us=300 * SECOND))
            assert queue.world.now_s() < 60
        assert [lost.message_id] == [each.message_id for each in given if each.suspect]
        assert [Settled.DONE] * 4 == await second.process.start(engine.settle([Ack(each.receipt) for each in given]))

    simulate(scenario, settings=ONE_LANE)


def settled_writes(statement: Any) -> list[Insert]:
    """The inserts of this statement into the settle log."""
    parts = getattr(statement, "statements", (statement,))
    return [each for each in parts if isinstance(each, Insert) and each.shape.table.name == "timeline_settled"]


def test_a_copy_is_not_written_while_the_record_of_its_place_is_on_its_way() -> None:
    """A message fails, and is to come again after a long while. The record of its new place is on its way, and never
    arrives, when the owner checks a second time; it dies. The next knows of no copy, and has the message itself."""

    async def scenario(queue: Queue) -> list[bytes]:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        owner = Consumer(queue, "owner", DeliveryLog())
        store = GatedStore(queue.cluster, owner.process)

        async def gate(statement: Any) -> None:
            if settled_writes(statement):
                await asyncio.Event().wait()

        engine = await opened(owner, store)
        (result,) = await owner.process.start(engine.receive(1, wait_us=10 * SECOND, visibility_us=5 * SECOND))
        store.gate = gate
        nack = NackDelivery(result.receipt, delay_us=15 * SECOND, reason="by the test")
        assert [Settled.UNKNOWN] == await owner.process.start(engine.settle([nack]))
        await asyncio.sleep(3)
        owner.process.kill()
        other = Consumer(queue, "other", DeliveryLog())
        return [each.payload for each in await received(other, await opened(other), for_s=40)]

    assert [b"producer-0"] == simulate(scenario, settings=ONE_LANE)


def test_what_was_not_handed_out_since_its_record_failed_is_neither_hidden_nor_counted() -> None:
    """A message may be received once. Its visibility is longer than a lease, so the record has to hold it first,
    and cannot be written for a while: nobody gets the message, and it must not be taken for one that failed."""

    async def scenario(queue: Queue) -> tuple[list[int], float]:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        owner = Consumer(queue, "owner", DeliveryLog())
        store = GatedStore(queue.cluster, owner.process)
        failing = True

        async def gate(statement: Any) -> None:
            if failing and settled_writes(statement):
                await asyncio.Event().wait()

        store.gate = gate
        engine = await opened(owner, store)
        receive = partial(engine.receive, 1, wait_us=10 * SECOND, visibility_us=60 * SECOND)
        assert [] == await owner.process.start(receive())
        failing = False
        result = await owner.process.start(receive())
        return [each.attempt for each in result], queue.world.now_s()

    attempts, now_s = simulate(scenario, settings=replace(ONE_LANE, max_receives=1))
    assert [1] == attempts
    assert now_s < 30
