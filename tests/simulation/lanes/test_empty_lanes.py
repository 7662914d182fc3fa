"""Lanes in which nothing lies: they share one poll, their leases are renewed seldom and one after the other, and a
message that comes is delivered as soon as it is due."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.contract import Ack, NewMessage
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm, RenewalResult
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import BatchIf, Select
from headgate.store.store import OutcomeUnknown
from tests.simulation.lanes.sharing_members import SHARED, Member, begin, holding
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import DeliveryLog, due_of

MINUTE = replace(SHARED, part_us=60 * SECOND)
LANES = 100


async def with_lanes(queue: Queue, count: int) -> Member:
    """A member that holds this number of empty lanes, and whose sources are quiet."""
    await begin(queue, DeliveryLog(), 0)
    member = Member(queue, "only", DeliveryLog(), lanes_max=count)
    member.start()
    await holding([member], [count], within_s=10)
    await asyncio.sleep(8)
    return member


def engine_of(member: Member) -> TimelineQueue:
    """The queue as that member has it."""
    assert member.engine is not None
    return member.engine


def with_gate(member: Member, note: Callable[[Any], None]) -> None:
    """Show each statement of a member before it is sent."""

    async def gate(statement: Any) -> None:
        note(statement)

    member.store.gate = gate


def test_a_thousand_lanes_are_taken_within_five_seconds() -> None:
    async def scenario(queue: Queue) -> None:
        await begin(queue, DeliveryLog(), 0)
        member = Member(queue, "only", DeliveryLog(), lanes_max=1_000)
        member.start()
        await holding([member], [1_000], within_s=5)

    simulate(scenario, settings=replace(MINUTE, generations=(GenerationSettings(1, 1_000),)))


def test_empty_lanes_share_one_poll_and_renew_their_leases_seldom_and_one_after_the_other() -> None:
    async def scenario(queue: Queue) -> None:
        member = await with_lanes(queue, LANES)
        renewals: Counter[int] = Counter()
        reads: Counter[str] = Counter()

        def note(statement: Any) -> None:
            if isinstance(statement, BatchIf):
                renewals[round(queue.world.now_s() * 20)] += 1
            elif isinstance(statement, Select):
                reads[statement.shape.table.name] += 1

        with_gate(member, note)
        await asyncio.sleep(30)
        assert 10 * LANES == pytest.approx(sum(renewals.values()), rel=0.1), "every 3 s, with a lease of 10 s"
        assert max(renewals.values()) <= 6, "in one twentieth of a second: their mean is 1.7"
        assert reads["timeline_parts"] <= 30 * 1.5
        assert reads["timeline_work"] == 0

    simulate(scenario, settings=replace(MINUTE, generations=(GenerationSettings(1, LANES),)))


def test_the_position_of_an_empty_lane_follows_the_time() -> None:
    async def scenario(queue: Queue) -> None:
        member = await with_lanes(queue, 6)
        await asyncio.sleep(100)
        for dispatcher in engine_of(member).lanes.held.values():
            state = await member.process.start(dispatcher.lane.read_state())
            assert state is not None
            assert member.host.now_us() - time_us_of(state.last) < 4 * SECOND

    simulate(scenario, settings=MINUTE)


@pytest.mark.parametrize("part_s", [60, 10, 1])
def test_a_message_that_comes_into_an_empty_queue_is_delivered_as_soon_as_it_is_due(part_s: int) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        member = await with_lanes(queue, 6)
        member.working.cancel()
        engine = engine_of(member)
        late_us = []
        for number in range(12):
            await asyncio.sleep(part_s + 3 + 0.37 * number % part_s)
            await client.process.start(queue.put(client, NewMessage(b"%d" % number)))
            given = await member.process.start(engine.receive(1, wait_us=10 * SECOND))
            late_us += [member.host.now_us() - due_of(each.message_id) for each in given]
            await member.process.start(engine.settle([Ack(each.receipt) for each in given]))
        assert 12 == len(late_us)
        assert max(late_us) < 0.6 * SECOND

    simulate(scenario, settings=replace(SHARED, part_us=part_s * SECOND))


def test_a_message_scheduled_for_the_begin_of_a_part_is_delivered_as_soon_as_it_is_due() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        member = await with_lanes(queue, 6)
        member.working.cancel()
        engine = engine_of(member)
        for millis in (0, 1, 20, 50, 1, 150, 400, 700):
            part = client.host.now_us() // queue.settings.part_us + 3
            due_us = part * queue.settings.part_us + millis * 1_000
            await client.process.start(queue.put(client, NewMessage(b"later", due_us=due_us)))
            (given,) = await member.process.start(engine.receive(1, wait_us=60 * SECOND))
            assert member.host.now_us() - due_us < 0.5 * SECOND
            await member.process.start(engine.settle([Ack(given.receipt)]))

    simulate(scenario, settings=replace(SHARED, part_us=7 * SECOND))


def test_a_lease_of_an_empty_lane_survives_two_renewals_that_fail_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(queue: Queue) -> None:
        member = await with_lanes(queue, 6)
        before = {name: each.lease_term.epoch for name, each in engine_of(member).lanes.held.items()}
        failed: Counter[int] = Counter()
        touch = Lane.touch

        async def sometimes(lane: Lane, lease_term: LeaseTerm, **moved: Any) -> Any:
            failed[id(lane)] += 1
            if failed[id(lane)] <= 2:
                return RenewalResult.UNKNOWN, lease_term, None
            return await touch(lane, lease_term, **moved)

        monkeypatch.setattr(Lane, "touch", sometimes)
        await asyncio.sleep(30)
        assert before == {name: each.lease_term.epoch for name, each in engine_of(member).lanes.held.items()}
        assert [each.ended for each in engine_of(member).lanes.held.values()] == [None] * 6
        assert min(failed.values()) > 2

    simulate(scenario, settings=MINUTE)


def test_while_the_poll_fails_each_lane_reads_for_itself() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        member = await with_lanes(queue, 6)
        index = next(iter(engine_of(member)._engine_lanes._indexes.values()))

        async def broken(ahead_us: int) -> bool:
            raise OutcomeUnknown("held back in this test")

        index.find_arrivals = broken  # type: ignore[method-assign]
        await asyncio.sleep(10)
        await client.process.start(queue.put(client, NewMessage(b"news")))
        await asyncio.sleep(5)
        assert 1 == len(member.delivery_log.deliveries)

    simulate(scenario, settings=MINUTE)
