"""Rows whose stored bytes cannot be read: they are set aside, counted and reported, and never end a lease term."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from headgate.engines.contract import LaneStats, MessageState, NewMessage
from headgate.engines.lanes.log.settle_log_format import RowFacts, Tried, encode
from headgate.engines.packed_row import PackedRun, pack
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, id_bytes, id_text
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.lane_records import part_key, read_passed
from headgate.engines.timeline.read.reading import row_key
from headgate.store.model.statements import Insert, Select
from headgate.store.model.types import Value
from tests.simulation.timeline.timeline_damage import DAMAGES, damage, key_of, overwrite
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    MINUTE_S,
    REPAIRED,
    Row,
    indexed,
    land,
    opened,
    passed_by,
    reported_of,
    stamped,
)
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, until_all_settled

FOUR_LANES = replace(WORKED, generations=(GenerationSettings(1, 4),), part_us=5 * SECOND)
ONE_LANE = replace(WORKED, generations=(GenerationSettings(1, 1),), part_us=60 * SECOND)


async def put_one(queue: Queue, client: Client, payload: bytes) -> str:
    ids = await client.process.start(queue.put(client, NewMessage(payload)))
    assert ids is not None
    return ids[0]


async def lanes_of(queue: Queue) -> tuple[LaneStats, ...]:
    """The lanes, for a process that owns none."""
    asker = Consumer(queue, f"asker-{queue.world.now_s()}", DeliveryLog())

    async def ask() -> tuple[LaneStats, ...]:
        return (await (await asker.open()).stats()).lanes

    lanes = await asker.process.start(ask())
    asker.process.kill()
    return lanes


@pytest.mark.parametrize("seed", range(8))
def test_all_other_messages_are_delivered_over_takeovers_and_no_lease_term_ends(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    lines = caplog.records

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client, objects = queue.client("producer"), DeliveryLog()
        client.process.start(queue.keep_fresh(client))
        rng = client.process.rng
        consumer = Consumer(queue, "first", objects)
        consumer.start()
        await asyncio.sleep(3)
        damaged: dict[str, RowPlace] = {}

        async def put_some() -> None:
            for number in range(40):
                count = rng.choice((1, 1, 3, 20))
                messages = [NewMessage(b"%d %d" % (number, index) * 40) for index in range(count)]
                ids = await queue.put(client, *messages)
                if ids and rng.random() < 0.2:
                    place = await damage(queue, client, ids[0], rng.choice(DAMAGES))
                    for each in ids:
                        damaged[each] = place
                        del queue.acknowledged[each]
                await asyncio.sleep(rng.random() * 0.5)

        putting = client.process.start(put_some())
        for number in range(3):
            await asyncio.sleep(rng.uniform(3, 6))
            consumer.process.kill()
            consumer = Consumer(queue, f"next-{number}", objects)
            consumer.start()
        await putting
        await until_all_settled(queue, objects, within_s=120)
        delivered = {each.message_id for _, each in objects.deliveries}
        assert set() == set(queue.acknowledged) - delivered
        assert set() == set(damaged) & delivered
        places = set(damaged.values())
        lanes = await lanes_of(queue)
        assert len(places) == sum(lane.unreadable_rows for lane in lanes)
        assert all(lane.epoch <= 4 for lane in lanes), "a lane was taken more often than owners died"
        assert consumer.engine is not None and len(places) == consumer.engine.ownership().unreadable_rows
        noted = [each for each in lines if each.message.startswith("an unreadable row is set aside")]
        assert {str(place.due) for place in places} == {vars(each)["due"] for each in noted}
        assert len(places) <= len(noted) <= len(places) + 3, "once for each row, but for one whose note was in doubt"

    with caplog.at_level(logging.ERROR, "headgate"):
        simulate(scenario, settings=FOUR_LANES, seed=seed)


def test_a_row_that_becomes_unreadable_with_deliveries_on_record_is_passed_by_the_next_owner() -> None:
    """The record names messages of it by their index: attempts, and a copy whose place is fixed."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client, objects = queue.client("producer"), DeliveryLog()
        ids = await client.process.start(queue.put(client, *[NewMessage(b"%d" % each) for each in range(6)]))
        assert ids is not None
        place = await client.process.start(damage(queue, client, ids[0], overwrite))
        other = await client.process.start(queue.put(client, NewMessage(b"other")))
        facts = RowFacts(settled=1, tried={4: Tried(1, 0, 2, 2**60), 5: Tried(1, 0, 1, 0)})
        values: dict[str, Value] = {
            **part_key(queue.settings, 1, 0, place.part(queue.settings.part_us)),
            "writer": client.host.uuid(),
            "piece": 0,
            "facts": encode({row_key(place.sub, place.due, place.due): facts}, epoch=1, piece=0),
        }
        now_us = client.process.clock.wall_us()
        await client.store.write(Insert(queue.settings.tables.settled, values, timestamp_us=now_us, ttl_s=3600))
        consumer = Consumer(queue, "owner", objects)
        consumer.start()
        await asyncio.sleep(10)
        assert other == [each.message_id for _, each in objects.deliveries]
        (lane,) = await lanes_of(queue)
        assert (1, 1, 0) == (lane.unreadable_rows, lane.epoch, lane.hidden)

    simulate(scenario, settings=ONE_LANE)


def test_inspections_report_the_row_and_show_the_others() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        broken = await put_one(queue, client, b"broken")
        whole = await put_one(queue, client, b"whole")
        await client.process.start(damage(queue, client, broken))
        await asyncio.sleep(2)

        async def inspect(engine: TimelineQueue) -> None:
            assert [whole] == [each.message_id for each in await engine.peek(10)]
            assert MessageState.UNREADABLE is (await engine.where(broken)).fate
            assert MessageState.WAITING is (await engine.where(whole)).fate

        asker = Consumer(queue, "asker", DeliveryLog())

        async def ask() -> None:
            await inspect(await asker.open())

        await asker.process.start(ask())

    simulate(scenario, settings=ONE_LANE)


def test_a_purge_declares_the_rows_before_it_unwanted() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client, consumer = queue.client("producer"), Consumer(queue, "owner", DeliveryLog())
        broken = await put_one(queue, client, b"broken")
        await client.process.start(damage(queue, client, broken))
        consumer.start()
        await asyncio.sleep(10)
        assert consumer.engine is not None
        assert 1 == consumer.engine.ownership().unreadable_rows
        await consumer.process.start(consumer.engine.purge())
        assert 0 == consumer.engine.ownership().unreadable_rows
        assert [0] == [lane.unreadable_rows for lane in await lanes_of(queue)]

    simulate(scenario, settings=ONE_LANE)


# ---- restamped rows


def test_a_restamped_row_is_delivered_where_its_original_cannot_be_read() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"message"))
        await client.store.write(original.statement)
        restamped = stamped(client, copy_of=original, due_in_s=4.0)
        await client.store.write(restamped.statement)
        await damage(queue, client, id_text(MessagePlace(original.place, 0).to_bytes()))
        await ward.work(20)
        assert [b"message"] == ward.payloads()
        await ward.repair_to_the_end()
        assert [b"message"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


# ---- repair


async def repaired_with(queue: Queue, *, is_met: bool) -> tuple[Row, list[int]]:
    """A row that cannot be read, before or after its lane's position has passed; what each pass finds late."""
    ward = await opened(queue)
    client = queue.client("producer")
    row = await indexed(client, stamped(client, b"broken"))
    damaged = Insert(
        row.statement.shape.table,
        {**dict(zip(row.statement.shape.names, row.statement.values, strict=True)), "run": b"\x02" + bytes(40)},
        timestamp_us=row.statement.timestamp_us,
        ttl_s=row.ttl_s,
    )
    broken = replace(row, statement=damaged)
    if is_met:
        await client.store.write(damaged)
    await passed_by(ward)
    await asyncio.sleep(2 * MINUTE_S)
    if not is_met:
        await land(queue, broken)
    late = [(await ward.repair()).late]
    await asyncio.sleep(20 * MINUTE_S)
    late.append((await ward.repair()).late)
    assert [] == ward.payloads()
    return broken, late


def test_repair_leaves_a_row_alone_that_an_owner_set_aside() -> None:
    async def scenario(queue: Queue) -> None:
        row, late = await repaired_with(queue, is_met=True)
        assert [0, 0] == late
        client = queue.client("reader")
        passed = await read_passed(client.host, queue.settings, 1, 0, row.part)
        assert set() == passed.among([row.place.due]), "its family is not passed"
        assert [1] == [lane.unreadable_rows for lane in await lanes_of(queue)]

    simulate(scenario, settings=REPAIRED)


def test_repair_sets_a_late_row_aside_once_and_goes_on() -> None:
    async def scenario(queue: Queue) -> None:
        row, late = await repaired_with(queue, is_met=False)
        assert [1, 0] == late
        assert [1] == [lane.unreadable_rows for lane in await lanes_of(queue)]
        location = await reported_of(queue, id_text(MessagePlace(row.place, 0).to_bytes()))
        assert MessageState.UNREADABLE is location.fate

    simulate(scenario, settings=REPAIRED)


# ---- records


def test_a_settle_record_of_another_version_concerns_its_lane_alone() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client, objects = queue.client("producer"), DeliveryLog()
        client.process.start(queue.keep_fresh(client))
        part = client.process.clock.wall_us() // queue.settings.part_us
        now_us = client.process.clock.wall_us()
        values: dict[str, Value] = {**part_key(queue.settings, 1, 2, part), "writer": client.host.uuid(), "piece": 0}
        values["facts"] = b"\x09" + bytes(20)
        table = queue.settings.tables.settled
        await client.store.write(Insert(table, values, timestamp_us=now_us, ttl_s=3600))
        key: dict[str, Value] = {"queue": queue.settings.queue, "generation": 1, "shard": 2}
        consumer = Consumer(queue, "owner", objects)
        consumer.start()
        for number in range(20):
            await client.process.start(queue.put(client, NewMessage(b"%d" % number)))
        await asyncio.sleep(20)
        delivered = {each.message_id for _, each in objects.deliveries}
        shards = {MessagePlace.from_bytes(id_bytes(each)).row.shard for each in set(queue.acknowledged) - delivered}
        assert {2} == shards
        assert consumer.engine is not None
        assert {(1, 0), (1, 1), (1, 3)} == set(consumer.engine.lanes.held)
        (row,) = await client.store.read(Select(queue.settings.tables.lanes, key, ("epoch",), limit=1))
        assert row.epoch <= 8, "it is tried ever more rarely"

    simulate(scenario, settings=replace(FOUR_LANES, part_us=60 * SECOND))


def test_the_bytes_of_a_row_stay() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        broken = await put_one(queue, client, b"broken")
        place = await client.process.start(damage(queue, client, broken, lambda cell, _: cell[:20]))
        consumer = Consumer(queue, "owner", DeliveryLog())
        consumer.start()
        await asyncio.sleep(20)
        (row,) = await client.store.read(Select(queue.settings.tables.work, key_of(queue, place), ("run",)))
        now_us = client.process.clock.wall_us()
        assert 20 == len(row.run) < len(pack(PackedRun([now_us], [now_us], [b"broken"])))

    simulate(scenario, settings=ONE_LANE)
