"""One lane of a generation that is over, and its owner that leaves it: what lies ahead moves on and comes in time,
once, whichever process dies at which step; a cancelled message stays cancelled; nothing is closed over a range
reservation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headgate.engines.contract import Cancelled, NewMessage
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.receipts import read_receipt
from headgate.engines.timeline.lanes import retire_lane
from headgate.engines.timeline.lanes.retire_lane import FreeLane, close_free_lane
from headgate.engines.timeline.lanes.timeline_lanes import lanes_with
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.source import pack_reservation
from headgate.store.model.positions import first_at, last_at
from headgate.store.model.statements import BatchIf, Insert, Select, UpdateIf
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    WORKED,
    Catalogue,
    Consumer,
    DeliveryLog,
    check_delivered,
    lanes_ready,
    until_all_settled,
    until_retired,
)

ONE_LANE = replace(WORKED, generations=(GenerationSettings(1, 1),), retention_us=40 * SECOND)


async def put_ahead(queue: Queue, client: Client, in_s: float, payload: str, *, group: str | None = None) -> None:
    """A message for later."""
    due_us = client.process.clock.wall_us() + int(in_s * SECOND)
    message = NewMessage(payload.encode(), due_us=due_us, group=group)
    assert await client.process.start(queue.put(client, message)) is not None


async def fill(queue: Queue) -> Client:
    """Some messages in the one lane: due at once, soon, later, beyond the retention, some of them of a group."""
    await lanes_ready(queue)
    client = queue.client("producer")
    for in_s in (0, 2, 31, 36, 36, 45, 58):
        await put_ahead(queue, client, in_s, f"due in {in_s}")
    for in_s in (33, 34, 56):
        await put_ahead(queue, client, in_s, f"of a group, due in {in_s}", group="g")
    return client


def generations_of(queue: Queue, objects: DeliveryLog) -> dict[bytes, int]:
    """From which generation each message was delivered."""
    settings = queue.settings
    return {
        each.payload: read_receipt(each.receipt, queue=settings.queue, secret=settings.receipt_key).lane[0]
        for _, each in objects.deliveries
    }


async def until_settled_once(queue: Queue, objects: DeliveryLog) -> None:
    """The lane is retired, and every message was delivered once and settled."""
    await until_retired(queue, 1, within_s=90)
    await until_all_settled(queue, objects, within_s=300)
    check_delivered(queue, objects)
    assert len(queue.acknowledged) == len(objects.deliveries)


def test_what_lies_ahead_moves_to_the_next_generation_and_comes_at_its_time() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await fill(queue)
        Catalogue(queue).end_now(3)
        worker = Consumer(queue, "worker", objects)
        worker.start()
        await until_settled_once(queue, objects)
        late = {each.payload: each for _, each in objects.deliveries}
        assert {1, 2} == set(generations_of(queue, objects).values())
        assert 2 == generations_of(queue, objects)[b"due in 58"] == generations_of(queue, objects)[b"due in 31"]
        group = [each.payload for _, each in objects.deliveries if each.group == "g"]
        assert [f"of a group, due in {in_s}".encode() for in_s in (33, 34, 56)] == group
        assert {1} == {each.attempt for each in late.values()}
        moved = [each for each in worker.store.sent if _is_move(each)]
        assert 0 < len(moved) <= 8, "rows of a partition share a batch"

    simulate(scenario, settings=ONE_LANE)


def _is_move(statement: Any) -> bool:
    return isinstance(statement, BatchIf) and statement.statements[0].shape.table.name != "timeline_lanes"


def test_an_empty_lane_is_retired_at_once() -> None:
    async def scenario(queue: Queue) -> float:
        await lanes_ready(queue)
        Catalogue(queue).end_now(2)
        Consumer(queue, "worker", DeliveryLog()).start()
        await until_retired(queue, 1, within_s=30)
        return queue.world.now_s()

    assert simulate(scenario, settings=ONE_LANE) < 10


def _is_of_closing(statement: Any) -> bool:
    table = getattr(statement, "statements", (statement,))[0].shape.table.name
    of_messages = table in ("timeline_work", "timeline_later", "timeline_parts", "timeline_passed")
    return not isinstance(statement, Select) and (of_messages or _retires(statement))


def _retires(statement: Any) -> bool:
    return isinstance(statement, UpdateIf) and "epoch" in statement.shape.to


async def _killed(queue: Queue, at: int, *, before: bool, next_after_s: float) -> int:
    """The first owner dies at its n-th write from its first move on, before it is sent or before it is answered;
    another resumes after a while. How many writes there were up to the lane's retirement."""
    objects = DeliveryLog()
    client = await fill(queue)
    Catalogue(queue).end_now(3)
    client.producer.settings_changed(queue.settings, read_us=client.process.clock.wall_us())
    await put_ahead(queue, client, 50, "of a group, due in 50", group="g")
    first = Consumer(queue, "first", objects)
    written, retired = 0, False

    async def gate(statement: Any) -> None:
        nonlocal written, retired
        if retired or not (_is_of_closing(statement) and (written or _is_move(statement))):
            return
        written, retired = written + 1, _retires(statement)
        if written != at:
            return
        if before:
            first.process.kill()
            await asyncio.sleep(0)
        queue.world.outside(0.0002, first.process.kill)

    await asyncio.sleep(6)  # what is due at once is due
    first.store.gate = gate
    first.start()
    await asyncio.sleep(next_after_s)
    Consumer(queue, "second", objects).start()
    await until_retired(queue, 1, within_s=90)
    await until_all_settled(queue, objects, within_s=300)
    check_delivered(queue, objects)
    ahead = {each for each in queue.acknowledged if queue.acknowledged[each] not in (b"due in 0", b"due in 2")}
    assert {1} == {objects.times(each) for each in ahead}
    group = [each.payload for _, each in objects.deliveries if each.group == "g"]
    assert [f"of a group, due in {in_s}".encode() for in_s in (33, 34, 50, 56)] == group
    return written


@pytest.mark.parametrize(("before", "next_after_s"), [(True, 10), (False, 50)])
def test_an_owner_killed_at_any_write_of_the_closing_loses_doubles_and_disorders_nothing(
    before: bool, next_after_s: float
) -> None:
    """The next owner comes before what was moved is due, or after some of it was."""

    async def whole(queue: Queue) -> int:
        return await _killed(queue, 0, before=True, next_after_s=10)

    writes = simulate(whole, settings=ONE_LANE)
    assert 15 < writes < 30
    for at in range(1, writes + 1):

        async def scenario(queue: Queue, at: int = at) -> int:
            return await _killed(queue, at, before=before, next_after_s=next_after_s)

        simulate(scenario, settings=ONE_LANE)


# ---- cancels (attack A15)


@pytest.mark.parametrize("when", ["before the row is marked", "after the row is marked", "after the copy is written"])
def test_attack_A15_what_is_cancelled_while_it_moves_is_not_delivered(when: str) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        client = queue.client("producer")
        await put_ahead(queue, client, 35, "reminder")
        (message_id,) = queue.acknowledged
        Catalogue(queue).end_now(3)
        client.producer.settings_changed(queue.settings, read_us=client.process.clock.wall_us())
        worker = Consumer(queue, "worker", objects)
        answers: list[Cancelled] = []

        async def cancel() -> None:
            answers.append(await client.process.start(client.cancels.cancel(message_id)))

        async def gate(statement: Any) -> None:
            """Hold the mover's statement until the cancel is answered."""
            names = {
                "before the row is marked": _is_move,
                "after the row is marked": _is_copy,
                "after the copy is written": _retires,
            }
            if not answers and names[when](statement):
                await cancel()

        worker.store.gate = gate
        worker.start()
        await until_retired(queue, 1, within_s=90)
        assert [Cancelled.CANCELLED] == answers
        queue.acknowledged.clear()
        await asyncio.sleep(60)
        assert [] == objects.deliveries

    simulate(scenario, settings=ONE_LANE)


def _is_copy(statement: Any) -> bool:
    return isinstance(statement, Insert) and statement.shape.table.name == "timeline_work"


# ---- time, and others


@pytest.mark.parametrize("part_s", [1, 60])
def test_attack_C2_groups_stay_in_order_where_moving_is_overtaken_by_time(
    part_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows lie so dense, and the store is so slow, that they fall due faster than they can be moved."""
    monkeypatch.setattr(retire_lane, "PARTS_AT_ONCE", 1)
    monkeypatch.setattr(retire_lane, "BATCH_ROWS_MAX", 10)

    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        client = queue.client("producer")
        for tenth in range(300):
            await put_ahead(queue, client, 25 + tenth / 10, f"dense {tenth}", group="g" if tenth % 5 == 0 else None)
        Catalogue(queue).end_now(2)
        worker = Consumer(queue, "worker", objects)

        async def gate(statement: Any) -> None:
            if _is_move(statement):
                await asyncio.sleep(1.5)

        worker.store.gate = gate
        worker.start()
        await until_settled_once(queue, objects)
        assert objects.late_us > 2 * SECOND
        group = [int(each.payload.split()[1]) for _, each in objects.deliveries if each.group == "g"]
        assert sorted(group) == group

    simulate(scenario, settings=replace(ONE_LANE, part_us=part_s * SECOND))


@pytest.mark.parametrize("seed", range(4))
def test_while_replicas_stop_in_turn_a_closing_resumes_where_it_was(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await fill(queue)
        Catalogue(queue).end_now(3)
        names = sorted(queue.cluster.nodes)
        queue.cluster.stop(names[seed % 3], for_s=25)
        queue.cluster.stop(names[(seed + 1) % 3], for_s=4 + seed)
        Consumer(queue, "worker", objects, ahead_us=100_000 * (seed - 2)).start()
        await until_settled_once(queue, objects)

    simulate(scenario, seed, settings=ONE_LANE)


def test_an_owner_paused_in_the_middle_of_moving_writes_no_copy_when_it_continues() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await fill(queue)
        Catalogue(queue).end_now(3)
        paused = Consumer(queue, "paused", objects)

        async def gate(statement: Any) -> None:
            if _is_move(statement):
                paused.store.gate = None
                queue.world.outside(0.0002, lambda: paused.process.pause(for_s=40))

        paused.store.gate = gate
        paused.start()
        await asyncio.sleep(12)
        written = len(paused.store.sent_to("work"))
        Consumer(queue, "other", objects).start()
        await asyncio.sleep(45)
        inserted = [each for each in paused.store.sent_to("work")[written:] if isinstance(each, Insert)]
        assert [] == inserted
        await until_retired(queue, 1, within_s=90)
        await until_all_settled(queue, objects, within_s=300)
        check_delivered(queue, objects)

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("seed", range(3))
def test_an_owner_that_leaves_in_the_middle_of_moving_passes_what_he_has_marked(seed: int) -> None:
    """A rolling restart: the next owner takes the lane at once, without waiting for a lease to end."""

    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await fill(queue)
        Catalogue(queue).end_now(3)
        leaving, next_one = Consumer(queue, "leaving", objects), Consumer(queue, "next", objects)
        marks = 0

        async def gate(statement: Any) -> None:
            nonlocal marks
            if _is_move(statement):
                marks += 1
                if marks == 1 + seed:
                    leaving.leave()
                await asyncio.sleep(0.1)

        leaving.store.gate = gate
        leaving.start()
        await asyncio.sleep(8)
        next_one.start()
        await until_settled_once(queue, objects)
        assert marks > seed

    simulate(scenario, seed, settings=ONE_LANE)


def test_a_lane_of_which_a_range_is_lent_is_not_closed_before_the_range_is_back() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        client = queue.client("producer")
        await put_ahead(queue, client, 60, "ahead")
        row = Lane(client.host, queue.settings.tables.lanes, lane_key(queue.settings, 1, 0), queue.settings.lease)
        now_us = client.process.clock.wall_us()
        reserved = pack_reservation(UUID(int=7), first_at(now_us), last_at(now_us + SECOND), now_us + 3600 * SECOND)
        free = await client.process.start(row.read_state())
        assert free is not None
        assert await client.process.start(row.lend(reserved, free, up_to=last_at(now_us + SECOND)))
        Catalogue(queue).end_now(2)
        worker = Consumer(queue, "worker", objects)
        worker.start()
        await asyncio.sleep(15)
        assert not any(map(_is_move, worker.store.sent))
        assert await client.process.start(row.end_reservation(reserved))
        await until_settled_once(queue, objects)

    simulate(scenario, settings=ONE_LANE)


# ---- lanes that nobody holds


async def _close(queue: Queue, client: Client) -> FreeLane:
    settings = queue.settings
    client.producer.settings_changed(settings, read_us=client.process.clock.wall_us())
    sender = client.producer.sender
    lanes = lanes_with(client.host, sender, None)
    work = close_free_lane(lanes, (1, 0), generation=settings.generations[0], host=client.host, sender=sender)
    return await client.process.start(work)


def test_a_lane_that_nobody_holds_is_closed_where_nothing_is_left_to_be_handed_out() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("repair")
        await put_ahead(queue, client, 60, "ahead")
        Catalogue(queue).end_now(2)
        await asyncio.sleep(2)
        assert FreeLane.RETIRED is await _close(queue, client)
        assert FreeLane.RETIRED is await _close(queue, client)
        objects = DeliveryLog()
        Consumer(queue, "worker", objects).start()
        await until_settled_once(queue, objects)
        assert {2} == set(generations_of(queue, objects).values())

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("in_s", [0, 10])
def test_a_lane_of_which_something_is_to_be_handed_out_is_left_as_it_was(in_s: float) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("repair")
        await put_ahead(queue, client, in_s, "soon")
        Catalogue(queue).end_now(2)
        await asyncio.sleep(3)
        assert FreeLane.BUSY is await _close(queue, client)
        objects = DeliveryLog()
        Consumer(queue, "worker", objects).start()
        await until_settled_once(queue, objects)
        assert {1} == set(generations_of(queue, objects).values())

    simulate(scenario, settings=ONE_LANE)


def test_attack_D2_what_a_dead_owner_may_have_died_of_stays_suspect_when_repair_has_checked_the_lane() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("repair")
        await put_ahead(queue, client, 0, "poison")
        dying = Consumer(queue, "dying", DeliveryLog())

        async def die() -> None:
            engine = await dying.open()
            assert await engine.receive(1, wait_us=20 * SECOND)
            dying.process.kill()
            await asyncio.sleep(1)

        dying.process.start(die())
        await asyncio.sleep(25)
        Catalogue(queue).end_now(2)
        await asyncio.sleep(2)
        assert FreeLane.BUSY is await _close(queue, client)
        objects = DeliveryLog()
        Consumer(queue, "worker", objects).start()
        await until_settled_once(queue, objects)
        assert [True] == [each.suspect for _, each in objects.deliveries]

    simulate(scenario, settings=ONE_LANE)
