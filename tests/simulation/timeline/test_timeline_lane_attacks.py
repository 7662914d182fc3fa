"""Attacks on the owner of a lane, each by its number: what a lease term may leave behind, and what the next one
finds.

Beside `lanes/test_lane_lease.py` (the control row alone) these run whole owners, killed and paused where it hurts.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.contract import Ack, Delivery, ExtendDelivery, NackDelivery, NewMessage, Settled
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.errors import HeadgateError
from headgate.store.model.statements import Batch, Insert, UpdateIf, is_
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, put_many

ONE_LANE = replace(WORKED, generations=(replace(WORKED.generations[0], shards=1),))


async def receives(consumer: Consumer, limit: int = 10, *, visibility_us: int | None = None) -> list[Delivery]:
    """One receive in a consumer's own process, opened if it was not yet."""

    async def receive() -> list[Delivery]:
        engine = consumer.engine or await consumer.open()
        for _ in range(60):
            try:
                result = await engine.receive(limit, visibility_us=visibility_us, wait_us=SECOND)
            except HeadgateError:
                continue
            if result:
                return result
        return []

    return await consumer.process.start(receive())


def test_attack_A13_a_part_that_was_not_in_the_index_when_it_was_read_is_visited_all_the_same() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "early", 1)
        consumer = Consumer(queue, "owner", DeliveryLog())
        (first,) = await receives(consumer)
        assert consumer.engine is not None
        await consumer.process.start(consumer.engine.settle([Ack(first.receipt)]))
        consumer.process.pause(for_s=2.5)
        await asyncio.sleep(4)  # it has read the parts that it had missed: it knows the index of this day
        consumer.process.pause(for_s=4.5)  # within its lease
        await put_many(queue, "meanwhile", 12, every_s=0.3)
        matches: list[bytes] = []
        while len(matches) < 12:
            given = await receives(consumer)
            assert given, f"only {len(matches)} of 12 came"
            matches += [each.payload for each in given]
            await consumer.process.start(consumer.engine.settle([Ack(each.receipt) for each in given]))
        assert 1 == given[0].epoch

    simulate(scenario, settings=replace(ONE_LANE, part_us=SECOND))


def test_attack_C5_each_delivery_carries_the_epoch_and_a_later_owners_is_higher() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        paused, other = Consumer(queue, "paused", DeliveryLog()), Consumer(queue, "other", DeliveryLog())
        (mine,) = await receives(paused)
        paused.process.pause(for_s=30)  # in its handler, after every check that an owner can make
        (theirs,) = await receives(other)
        assert mine.message_id == theirs.message_id
        assert mine.epoch < theirs.epoch
        assert paused.engine is not None
        answer = await paused.process.start(paused.engine.settle([Ack(mine.receipt)]))
        assert Settled.DONE not in answer

    simulate(scenario, settings=ONE_LANE)


def test_a_receipt_of_an_earlier_tenure_is_stale_also_where_the_same_process_owns_the_lane_again() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        consumer = Consumer(queue, "owner", DeliveryLog())
        (first,) = await receives(consumer)
        consumer.process.pause(for_s=15)  # its lease is over when it resumes, and no other process is there
        (again,) = await receives(consumer)
        assert (first.message_id, first.attempt) == (again.message_id, again.attempt)
        assert first.epoch < again.epoch
        assert consumer.engine is not None
        settles = [Ack(first.receipt), Ack(again.receipt)]
        answers = [await consumer.process.start(consumer.engine.settle([each])) for each in settles]
        assert [[Settled.STALE], [Settled.DONE]] == answers

    simulate(scenario, settings=ONE_LANE)


def test_attack_D3_after_a_kill_only_what_was_in_flight_is_suspect_and_the_backlog_does_not_wait() -> None:
    async def scenario(queue: Queue) -> tuple[int, int]:
        await lanes_ready(queue)
        client = queue.client("producer")
        for number in range(40):
            messages = [NewMessage(f"{number}.{each}".encode()) for each in range(500)]
            await client.process.start(queue.put(client, *messages))
        await asyncio.sleep(5)
        killed, next_one = Consumer(queue, "killed", DeliveryLog()), Consumer(queue, "next", DeliveryLog())
        assert 100 == len(await receives(killed, 100))
        killed.process.kill()
        killed_s = queue.world.now_s()
        given = await receives(next_one, 100)
        assert queue.world.now_s() < killed_s + 15, "the backlog waited for longer than a lease and 5 s"
        assert not any(each.suspect for each in given)
        assert next_one.engine is not None
        (held,) = next_one.engine.lanes.held.values()
        held.delivery_state.tick(next_one.process.clock.wall_us())
        await next_one.process.start(next_one.engine.receive(20_000, visibility_us=60 * SECOND))
        return held.delivery_state.suspects_waiting.total(), held.delivery_state.suspects_in_flight.total()

    waiting, in_flight = simulate(scenario, settings=ONE_LANE)
    assert (100, True) == (waiting + in_flight, in_flight <= 64)


def test_attack_D2_one_poison_message_is_found_by_halving_and_nothing_else_is_charged() -> None:
    """Each process ends when it meets the poison, with whatever else it has in flight, over several lanes."""

    async def scenario(queue: Queue) -> tuple[int, dict[bytes, int]]:
        await lanes_ready(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, *(NewMessage(b"%d" % number) for number in range(299))))
        await put_many(queue, "producer-2", 1)
        await client.process.start(queue.put(client, NewMessage(b"poison")))
        attempts: dict[bytes, int] = {}
        deaths = 0
        while attempts.get(b"poison", 0) < 3:
            consumer = Consumer(queue, f"worker-{deaths}", DeliveryLog())
            engine = await consumer.process.start(consumer.open())
            while not consumer.process.is_dead and attempts.get(b"poison", 0) < 3:
                for each in await consumer.process.start(engine.receive(50, wait_us=SECOND)):
                    attempts[each.payload] = max(each.attempt, attempts.get(each.payload, 0))
                    if each.payload == b"poison":
                        consumer.process.kill()
                        deaths += 1
                        break
                    await consumer.process.start(engine.settle([Ack(each.receipt)]))
        return deaths, attempts

    deaths, attempts = simulate(
        scenario, settings=replace(ONE_LANE, generations=(replace(WORKED.generations[0], shards=2),))
    )
    assert {b"poison": 3} == {payload: most for payload, most in attempts.items() if most > 1}
    assert deaths <= 1 + 6 + 3


def test_attack_D5_a_new_owner_knows_what_was_settled_though_the_position_was_never_written() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 12, every_s=0.3)
        owner = Consumer(queue, "owner", DeliveryLog())
        result = await receives(owner)
        assert owner.engine is not None
        (held,) = owner.engine.lanes.held.values()

        async def lost(*_: object, **__: object) -> None:
            return None

        held.lane._decide = lost  # type: ignore[method-assign, assignment]
        while len(result) < 12:
            result += await receives(owner)
        settled = await owner.process.start(owner.engine.settle([Ack(each.receipt) for each in result[:-1]]))
        assert {Settled.DONE} == set(settled)
        await asyncio.sleep(4)  # the owner has passed them by now, and no touch that records it was applied
        assert held.position.last > held.source.order_of(None)
        owner.process.kill()
        other = Consumer(queue, "other", DeliveryLog())
        again = await receives(other)
        assert [result[-1].message_id] == [each.message_id for each in again]

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("how", ["extended", "long from the start", "nacked in a group"])
def test_attack_D8_what_is_hidden_for_longer_than_the_lease_stays_hidden_when_its_owner_dies(how: str) -> None:
    async def scenario(queue: Queue) -> float:
        await lanes_ready(queue)
        client = queue.client("producer")
        group = "g" if how == "nacked in a group" else None
        await client.process.start(queue.put(client, NewMessage(b"long", group=group)))
        owner, other = Consumer(queue, "owner", DeliveryLog()), Consumer(queue, "other", DeliveryLog())
        long_us = 60 * SECOND
        given_s = queue.world.now_s()
        (mine,) = await receives(owner, visibility_us=long_us if how == "long from the start" else 5 * SECOND)
        assert owner.engine is not None
        if how == "extended":
            answer = await owner.process.start(owner.engine.settle([ExtendDelivery(mine.receipt, long_us)]))
            assert [Settled.DONE] == answer
        if how == "nacked in a group":
            answer = await owner.process.start(owner.engine.settle([NackDelivery(mine.receipt, delay_us=long_us)]))
            assert [Settled.DONE] == answer
        owner.process.kill()
        (theirs,) = await receives(other)
        if not theirs:
            (theirs,) = await receives(other)
        assert mine.message_id == theirs.message_id
        assert (2 if how == "nacked in a group" else 1) == theirs.attempt, "a death by itself is not charged"
        return queue.world.now_s() - given_s

    assert 59 < simulate(scenario, settings=ONE_LANE) < 90


@pytest.mark.parametrize("end", ["killed", "given back", "nacked"])
def test_attack_D8_an_extension_that_lands_late_hides_nothing_that_a_later_owner_has_handed_out(end: str) -> None:
    """An owner extends for twelve hours, gets no answer, and stands still. The next one delivers the message for two
    seconds and ends. The record of the extension lands before the third owner reads."""

    async def scenario(queue: Queue) -> tuple[int, float]:
        await lanes_ready(queue)
        await put_many(queue, "producer", 1)
        zombie = Consumer(queue, "zombie", DeliveryLog())
        second, third = Consumer(queue, "second", DeliveryLog()), Consumer(queue, "third", DeliveryLog())
        (mine,) = await receives(zombie, visibility_us=5 * SECOND)
        on_the_way: list[Insert] = []

        async def gate(statement: Any) -> None:
            parts = statement.statements if isinstance(statement, Batch) else (statement,)
            if any(isinstance(each, Insert) and each.shape.table.name.endswith("settled") for each in parts):
                on_the_way.extend(parts)
                await asyncio.get_running_loop().create_future()

        zombie.store.gate = gate
        assert zombie.engine is not None
        extending = zombie.process.start(zombie.engine.settle([ExtendDelivery(mine.receipt, 12 * 3600 * SECOND)]))
        await asyncio.sleep(1)
        assert not extending.done()
        zombie.process.pause()
        (theirs,) = await receives(second, visibility_us=2 * SECOND)
        assert mine.message_id == theirs.message_id
        assert on_the_way
        network = queue.client("network")
        await network.process.start(network.store.write(Batch(on_the_way)))
        assert second.engine is not None
        if end == "killed":
            second.process.kill()
        else:
            settle = NackDelivery(theirs.receipt, delay_us=0, charged=False)
            if end == "nacked":
                await second.process.start(second.engine.settle([settle]))
            await second.process.start(second.engine.close())
        ended_s = queue.world.now_s()
        for _ in range(3):
            if given := await receives(third):
                assert mine.message_id == given[0].message_id
                return given[0].epoch - mine.epoch, queue.world.now_s() - ended_s
        raise AssertionError("hidden by an extension that its owner was never confirmed")

    epochs, within_s = simulate(scenario, settings=ONE_LANE)
    assert epochs >= 2
    assert within_s < 30


def test_attack_E3_a_stop_is_an_epoch_and_stops_no_later_owner_however_late_it_lands() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        stopper = queue.client("stopper")
        key = lane_key(queue.settings, 1, 0)
        lane = Lane(stopper.host, queue.settings.tables.lanes, key, queue.settings.lease)
        first, second = Consumer(queue, "first", DeliveryLog()), Consumer(queue, "second", DeliveryLog())
        await put_many(queue, "producer", 1)
        (mine,) = await receives(first)
        assert await stopper.process.start(lane.stop(mine.epoch))
        first.process.kill()
        (theirs,) = await receives(second)
        assert second.engine is not None
        assert not await stopper.process.start(lane.stop(mine.epoch))  # it lands late: the epoch is another
        assert [Settled.DONE] == await second.process.start(second.engine.settle([Ack(theirs.receipt)]))
        await asyncio.sleep(30)
        (held,) = second.engine.lanes.held.values()
        assert theirs.epoch == held.lease_term.epoch
        assert held.may_act()

    simulate(scenario, settings=ONE_LANE)


def test_attack_E8_a_row_of_which_only_cells_written_by_lwt_are_left_is_passed_unseen() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        place = client.producer.sender.fix_place(client.process.clock.wall_us())
        row = place.row
        values = {
            "queue": queue.settings.queue,
            "generation": row.generation,
            "part": row.part(queue.settings.part_us),
            "sub": row.sub,
            "shard": row.shard,
            "due": row.due,
        }
        zombie = UpdateIf(
            queue.settings.tables.work,
            values,
            {"moved": place.to_bytes()},
            is_("moved", None),
            attempt=client.host.uuid(),
        )
        assert (await client.process.start(client.store.decide(zombie))).applied
        await put_many(queue, "after", 1)
        consumer = Consumer(queue, "worker", DeliveryLog())
        (result,) = await receives(consumer)
        assert b"after-0" == result.payload
        assert consumer.engine is not None
        await consumer.process.start(consumer.engine.settle([Ack(result.receipt)]))
        await asyncio.sleep(5)
        assert [] == Disks(queue.cluster, queue.settings).undrained(client.process.clock.wall_us())

    simulate(scenario, settings=ONE_LANE)
