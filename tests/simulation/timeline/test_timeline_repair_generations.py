"""Repair where the number of shards changed: late rows of ended generations, their lanes, and the catalogue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from headgate.engines.contract import Ack, MessageState, NewMessage, PassEnd
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.decide_repair import CHECKS, EVERYTHING
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, id_text
from headgate.engines.timeline.repair.repair import REPAIR_LANE, Repairer
from headgate.store.model.statements import Select
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    REPAIRED,
    Mender,
    Ward,
    alone_at,
    indexed,
    land,
    one_late,
    opened,
    reported_of,
    resharded,
    retired,
    stamped,
)
from tests.simulation.timeline.timeline_workers import Consumer, lanes_ready


def test_a_late_row_waits_while_its_lane_may_still_be_read_and_then_goes_to_the_generation_of_now() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, b"late"))
        slow = Consumer(queue, "slow", ward.delivery_log)
        settle = asyncio.Event()
        await ward.work(20)
        await client.process.start(queue.put(queue.client("another"), NewMessage(b"slow")))

        async def work_slowly() -> None:
            engine = await slow.open()
            (result,) = await engine.receive(1, visibility_us=HOUR_S * SECOND, wait_us=30 * SECOND)
            await settle.wait()
            await engine.settle([Ack(result.receipt)])

        slow.process.start(work_slowly())
        await asyncio.sleep(30)
        await resharded(queue, 3)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        done = await ward.repair()
        assert (1, 0) == (done.waiting, done.put_again)
        assert (late.part + 1) * REPAIRED.part_us < (done.oldest_owed_us or 0)
        settle.set()
        await asyncio.sleep(MINUTE_S)
        slow.process.kill()
        done = await ward.repair()
        assert (0, 1, None) == (done.waiting, done.put_again, done.oldest_owed_us)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_pass_closes_lanes_of_ended_generations_that_nobody_works() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + HOUR_S * SECOND
        await client.process.start(queue.put(client, NewMessage(b"in an hour", due_us=due_us)))
        await ward.work(20)
        await resharded(queue, 3)
        await asyncio.sleep(MINUTE_S)
        assert 1 == (await ward.repair()).lanes_retired
        assert 0 == (await ward.repair()).lanes_retired
        await asyncio.sleep(HOUR_S)
        assert 0 == (await ward.repair()).late, "what was moved is known to have been"
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"in an hour"] == ward.payloads()
        assert [] == ward.delivery_log.early

    simulate(scenario, settings=REPAIRED)


def test_a_lane_with_messages_to_be_handed_out_is_left_to_one_that_delivers() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"waits")))
        await asyncio.sleep(5)
        await resharded(queue, 3)
        done = await ward.repair()
        assert (PassEnd.DONE, 0) == (done.end, done.lanes_retired)
        await ward.work(40)
        assert [b"waits"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_late_messages_of_groups_part_by_the_shards_of_now() -> None:
    groups = [b"g%d" % (each % 6) for each in range(24)]

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        ward = Ward(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, *(b"%02d" % each for each in range(24)), groups=groups))
        await ward.work(30)
        await resharded(queue, 4)
        await retired(queue, 1)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        assert 1 == (await ward.repair()).put_again
        await ward.work(40)
        await ward.repair_to_the_end()
        assert [b"%02d" % each for each in range(24)] == ward.payloads()
        for index in range(24):
            result = await reported_of(queue, id_text(MessagePlace(late.place, index).to_bytes()))
            assert (MessageState.SETTLED, 2) == (result.fate, len(result.places))
        orders: dict[str, list[bytes]] = {}
        for _, each in ward.delivery_log.deliveries:
            orders.setdefault(each.group or "", []).append(each.payload)
        assert 6 == len(orders)
        assert all(order == sorted(order) for order in orders.values())

    simulate(scenario, settings=REPAIRED)


def test_a_row_that_lands_in_the_future_of_a_retired_lane_is_due_as_before() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        await resharded(queue, 2)
        await retired(queue, 1)
        client = queue.client("producer")
        row = await indexed(client, alone_at(client, b"tomorrow", DAY_S))
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        assert 1 == (await ward.repair()).put_again
        await ward.work(30)
        assert [] == ward.payloads()
        await asyncio.sleep(DAY_S)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"tomorrow"] == ward.payloads()
        assert [] == ward.delivery_log.early

    simulate(scenario, settings=REPAIRED)


@dataclass
class Keeper:
    """The catalogue, as repair sees it."""

    asked: list[str] = field(default_factory=list)

    async def make_sure(self) -> None:
        self.asked.append("sure")

    async def retire(self, number: int) -> None:
        self.asked.append(f"retire {number}")


def test_a_generation_leaves_the_catalogue_after_the_last_check_of_its_last_lane() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, b"late"))
        await ward.work(30)
        await resharded(queue, 2)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        keeper = Keeper()
        for wait_s in (0, 20 * MINUTE_S, 5 * HOUR_S):
            await asyncio.sleep(wait_s)
            assert () == (await ward.repair(keeper=keeper)).generations_left
            await ward.work(20)
        await asyncio.sleep(DAY_S)
        assert (1,) == (await ward.repair(keeper=keeper)).generations_left
        assert ["sure", "sure", "sure", "sure", "retire 1"] == keeper.asked
        client = queue.client("reader")
        checks = {"queue": QUEUE, "generation": 1}
        rows = await client.store.read(Select(queue.settings.tables.checks, checks))
        assert {(check, EVERYTHING) for check in CHECKS} == {(row.look, row.up_to) for row in rows}
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_repair_makes_its_own_lane_where_nobody_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        assert PassEnd.DONE is (await ward.repair()).end
        client = queue.client("reader")
        key = lane_key(REPAIRED, REPAIR_LANE.number, 0)
        state = await client.process.start(Lane(client.host, REPAIRED.tables.lanes, key, REPAIRED.lease).read_state())
        assert state is not None
        assert (1, None) == (state.epoch, state.lock)

    simulate(scenario, settings=REPAIRED)


def test_without_fresh_knowledge_of_the_generations_nothing_is_put() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        mender = Mender(queue, "stale")
        engine = TimelineQueue(mender.host, queue.settings, read_us=mender.process.clock.wall_us() - 61 * SECOND)
        repairer = Repairer(mender.host, queue.settings, engine.producer.sender)
        done = await mender.process.start(repairer.run())
        assert (0, 0) == (done.checked, done.put_again)
        assert done.oldest_owed_us is not None
        assert any("catalogue" in each for each in done.problems)
        assert 1 == (await ward.repair()).put_again

    simulate(scenario, settings=REPAIRED)
