"""Late rows that repair leaves alone: those whose restamped row was delivered, and those that were purged or
cancelled."""

from __future__ import annotations

import asyncio

import pytest

from headgate.engines.contract import Cancelled, MessageState, NewMessage
from headgate.engines.timeline.model.layout import MessagePlace, id_text
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    HOUR_S,
    MINUTE_S,
    REPAIRED,
    alone_at,
    indexed,
    land,
    opened,
    reported_of,
    resharded,
    retired,
    stamped,
)
from tests.simulation.timeline.timeline_workers import Consumer


def test_attack_D9_an_original_that_lands_after_its_twin_was_settled_is_not_delivered_again() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        restamp = await indexed(client, stamped(client, due_in_s=3, copy_of=original))
        await client.store.write(restamp.statement)
        await ward.work(20)
        assert [b"once"] == ward.payloads()
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, original)
        done = await ward.repair()
        assert (0, 0) == (done.late, done.put_again)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_attack_D9_a_twin_that_lands_after_its_original_was_settled_is_not_delivered_again() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        restamp = await indexed(client, stamped(client, due_in_s=3, copy_of=original))
        await client.store.write(original.statement)
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, restamp)
        done = await ward.repair()
        assert (1, 0) == (done.late, done.put_again)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


@pytest.mark.parametrize("new_owner", [False, True])
def test_an_original_found_while_its_twin_is_still_unread_is_one_message_with_it(new_owner: bool) -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        restamp = await indexed(client, stamped(client, due_in_s=100, copy_of=original))
        await client.store.write(restamp.statement)
        worker = ward.worker()
        await asyncio.sleep(80)
        await land(queue, original)
        assert 1 == (await ward.repair()).put_again
        if new_owner:
            worker.process.kill()
            ward.worker()
        await asyncio.sleep(60)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_an_original_and_its_twin_that_both_land_late_are_one_message() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        restamp = await indexed(client, stamped(client, due_in_s=9, copy_of=original))
        await ward.work(40)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, restamp)
        assert 1 == (await ward.repair()).put_again
        message_id = id_text(MessagePlace(original.place, 0).to_bytes())
        assert MessageState.WAITING is (await reported_of(queue, message_id)).fate
        await land(queue, original)
        await asyncio.sleep(15 * MINUTE_S)
        assert 0 == (await ward.repair()).put_again
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_attack_D10_what_was_put_before_a_purge_does_not_come_back() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"purged"))
        await asyncio.sleep(1)
        purger = Consumer(queue, "purger", ward.delivery_log)

        async def purge() -> None:
            engine = await purger.open()
            await engine.purge()

        await purger.process.start(purge())
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        done = await ward.repair()
        assert (1, 0) == (done.late, done.put_again)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_what_was_cancelled_does_not_come_back() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 20 * SECOND
        ids = await client.process.start(client.producer.put([NewMessage(b"cancelled", due_us=due_us)]))
        assert Cancelled.CANCELLED is await client.process.start(client.cancels.cancel(ids[0]))
        await ward.work(40)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_what_is_cancelled_after_it_was_moved_is_cancelled_where_it_went() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        await resharded(queue, 2)
        await retired(queue, 1)
        client = queue.client("producer")
        row = await indexed(client, alone_at(client, b"far", 3 * HOUR_S))
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        assert 1 == (await ward.repair()).put_again
        fresh = queue.client("canceller")
        message_id = id_text(MessagePlace(row.place, 0).to_bytes())
        assert Cancelled.CANCELLED is await fresh.process.start(fresh.cancels.cancel(message_id))
        await asyncio.sleep(3 * HOUR_S)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)
