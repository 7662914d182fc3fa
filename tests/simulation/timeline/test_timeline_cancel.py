"""Cancel and reschedule: what was answered cancelled is never delivered, and nothing is lost by a crash between."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.engines.contract import Cancelled, NewMessage
from headgate.engines.timeline.lanes.lane_snapshot import first_unsettled_us, read_lane_view
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.put.copies import Copy, write_copies
from headgate.errors import InvalidRequest
from headgate.store.model.statements import UpdateIf, is_
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, SETTINGS, Client, Queue, Reader, simulate
from tests.simulation.timeline.timeline_workers import lanes_ready


async def scheduled(client: Client, in_us: int, payload: bytes = b"reminder") -> str:
    """A message for later."""
    due_us = client.process.clock.wall_us() + in_us
    ids = await client.process.start(client.producer.put([NewMessage(payload, due_us=due_us)]))
    return ids[0]


def test_what_was_answered_cancelled_is_never_delivered_however_near_it_is_due() -> None:
    answers = set()
    for in_us in range(1_100_000, 2_600_000, 50_000):

        async def scenario(queue: Queue, in_us: int = in_us) -> Cancelled:
            client = queue.client("producer", ahead_us=-245_000)
            reader = Reader(queue, ahead_us=245_000)
            reader.process.start(reader.run(0.02))
            message_id = await scheduled(client, in_us)
            await asyncio.sleep(0.3)
            queue.world.network.slow("n1", 0.1)
            answer = await client.process.start(client.cancels.cancel(message_id))
            await asyncio.sleep(10)
            assert answer is Cancelled.TOO_LATE or [] == reader.payloads()
            return answer

        answers.add(simulate(scenario))
    assert set(Cancelled) == answers


def test_a_cancel_that_is_acknowledged_too_late_is_not_promised() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        message_id = await scheduled(client, 3 * SECOND)
        await asyncio.sleep(1.0)
        client.store.gate = _slow
        assert Cancelled.TOO_LATE is await client.process.start(client.cancels.cancel(message_id))

    simulate(scenario)


async def _slow(statement: object) -> None:
    await asyncio.sleep(0.6)


def test_a_message_that_shares_its_row_cannot_be_cancelled_and_takes_nobody_with_it() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        for doubling in (1, 2, 3):
            client.producer.sender.lag.was_too_short(2**60 + doubling, client.process.clock.wall_us())
        ids = await client.process.start(client.producer.put([NewMessage(b"a"), NewMessage(b"b")]))
        assert Cancelled.TOO_LATE is await client.process.start(client.cancels.cancel(ids[0]))
        await asyncio.sleep(20)
        await reader.process.start(reader.turn())
        assert [b"a", b"b"] == reader.payloads()

    simulate(scenario)


def test_attack_A15_a_cancel_follows_a_row_that_was_moved() -> None:
    async def scenario(queue: Queue) -> None:
        client, repair = queue.client("producer"), queue.client("repair")
        reader = Reader(queue)
        reader.process.start(reader.run())
        message_id = await scheduled(client, 9 * SECOND)
        origin = MessagePlace.from_bytes(id_bytes(message_id))
        due_us = repair.process.clock.wall_us() + 8 * SECOND
        place = repair.producer.sender.fix_place(due_us)
        row = origin.row
        key = {
            "queue": QUEUE,
            "generation": row.generation,
            "part": row.part(SETTINGS.part_us),
            "sub": row.sub,
            "shard": row.shard,
            "due": row.due,
        }
        moved = UpdateIf(
            SETTINGS.tables.work, key, {"moved": place.to_bytes()}, is_("moved", None), attempt=repair.host.uuid()
        )
        assert (await repair.store.decide(moved)).applied
        copy = Copy(b"reminder", origin.to_bytes(), repair.process.clock.wall_us(), due_us)
        await repair.process.start(write_copies(repair.producer.sender, [(place, copy)]))
        assert Cancelled.CANCELLED is await client.process.start(client.cancels.cancel(message_id))
        await asyncio.sleep(15)
        assert [] == reader.payloads()

    simulate(scenario)


def test_a_rescheduled_message_comes_once_at_its_new_time() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        message_id = await scheduled(client, 5 * SECOND)
        due_us = client.process.clock.wall_us() + 9 * SECOND
        answer, new_id = await client.process.start(client.cancels.reschedule(message_id, due_us))
        assert Cancelled.CANCELLED is answer
        assert new_id is not None
        await asyncio.sleep(15)
        assert [new_id] == [each.message_id for each in reader.delivered]
        assert [due_us] == [each.due_us for each in reader.delivered]

    simulate(scenario)


def test_attack_A15_a_reschedule_killed_before_any_step_loses_nothing() -> None:
    async def whole(queue: Queue) -> int:
        client = queue.client("producer")
        message_id = await scheduled(client, 5 * SECOND)
        client.process.count_steps()
        due_us = client.process.clock.wall_us() + 9 * SECOND
        await client.process.start(client.cancels.reschedule(message_id, due_us))
        return client.process.steps

    for step in range(1, simulate(whole) + 1):

        async def scenario(queue: Queue, step: int = step) -> None:
            client = queue.client("producer")
            reader = Reader(queue)
            reader.process.start(reader.run())
            message_id = await scheduled(client, 5 * SECOND)
            client.process.kill_before_step(step)
            due_us = client.process.clock.wall_us() + 9 * SECOND
            client.process.start(client.cancels.reschedule(message_id, due_us))
            await asyncio.sleep(20)
            assert {b"reminder"} == set(reader.payloads())

        simulate(scenario)


def test_attack_A15_a_reschedule_that_comes_too_late_leaves_one_message_or_both() -> None:
    observations = set()
    for waits_ms in range(0, 2_000, 200):

        async def scenario(queue: Queue, waits_ms: int = waits_ms) -> tuple[Cancelled, bool, int]:
            client = queue.client("producer")
            reader = Reader(queue)
            reader.process.start(reader.run())
            message_id = await scheduled(client, 3 * SECOND)
            await asyncio.sleep(waits_ms / 1000)
            client.store.answers_late_s = 0.25
            due_us = client.process.clock.wall_us() + 9 * SECOND
            answer, new_id = await client.process.start(client.cancels.reschedule(message_id, due_us))
            await asyncio.sleep(15)
            assert {b"reminder"} == set(reader.payloads())
            assert answer is Cancelled.TOO_LATE or [new_id] == [each.message_id for each in reader.delivered]
            return answer, new_id is None, len(reader.delivered)

        observations.add(simulate(scenario))
    assert {
        (Cancelled.CANCELLED, False, 1),
        (Cancelled.TOO_LATE, True, 1),
        (Cancelled.TOO_LATE, False, 1),
    } <= observations


def test_what_the_store_cannot_keep_is_refused_before_anything_is_put() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        message_id = await scheduled(client, 5 * SECOND)
        sent = len(client.store.sent)
        century_us = client.process.clock.wall_us() + 100 * 365 * 86_400 * SECOND
        with pytest.raises(InvalidRequest):
            await client.process.start(client.cancels.reschedule(message_id, century_us))
        with pytest.raises(InvalidRequest):
            await client.process.start(client.producer.put([NewMessage(b"m", due_us=century_us)]))
        assert sent == len(client.store.sent)

    simulate(scenario)


def test_what_is_due_beyond_the_retention_lies_in_its_own_table_and_can_be_cancelled() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        kept = await scheduled(client, 60 * SECOND, b"kept")
        gone = await scheduled(client, 61 * SECOND, b"gone")
        assert 2 == len(client.store.sent_to("later"))
        assert Cancelled.CANCELLED is await client.process.start(client.cancels.cancel(gone))
        await asyncio.sleep(70)
        await reader.process.start(reader.turn())
        assert [kept] == [each.message_id for each in reader.delivered]

    simulate(scenario, settings=replace(SETTINGS, retention_us=30 * SECOND))


def test_work_that_lies_behind_cancelled_messages_is_seen() -> None:
    """Another process reads a lane that nobody holds, and cancelled rows at its head hide nothing."""

    async def scenario(queue: Queue) -> tuple[int | None, int]:
        await lanes_ready(queue)
        client = queue.client("producer")
        now_us = client.process.clock.wall_us()
        due_us = now_us + 5 * SECOND
        ids = [await scheduled(client, 5 * SECOND + number * 1_000) for number in range(6)]
        for each in ids[:5]:
            assert Cancelled.CANCELLED is await client.process.start(client.cancels.cancel(each))
        await asyncio.sleep(8)
        view = await client.process.start(read_lane_view(client.host, queue.settings, {}, 1, 0))
        assert view is not None
        return await client.process.start(first_unsettled_us(client.host, queue.settings, view)), due_us

    due_us_of_row, due_us = simulate(scenario, settings=replace(SETTINGS, generations=(GenerationSettings(1, 1),)))
    assert due_us_of_row is not None
    assert due_us_of_row >= due_us
