"""Two owners of one lane, which leases make impossible: the net below them. The owner by the lane's row stays, the
other is stopped; owners that follow one another are never taken for two. The prose is
docs/internals/protocols/balance.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from headgate.engines.contract import Ack, NewMessage, Settled
from headgate.engines.lanes.balance.decide_dual_owners import DualOwnership
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm, RenewalResult
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.expiry import Promise
from headgate.store.model.statements import UpdateIf, is_
from tests.simulation.lanes.sharing_members import SHARED, Member, begin, holding
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

FOR_EVER_US = 2**62
OBSERVED_WITHIN_S = 10


def held_by(member: Consumer) -> dict[LaneName, Dispatcher]:
    """The lanes that it takes for its own."""
    assert member.engine is not None
    return member.engine.lanes.held


def dual_owners_of(members: list[Member]) -> set[DualOwnership]:
    """The cases of two owners that they have noticed."""
    return {result for each in members if each.engine is not None for result in each.engine.lanes.dual_owners}


def breaks_its_lease(dispatcher: Dispatcher) -> None:
    """Trust without end, and touches that are not sent: what no owner does by its rules."""
    dispatcher.lease_term = replace(dispatcher.lease_term, promise=Promise.until(FOR_EVER_US, sent_us=0))

    async def touch(lease_term: LeaseTerm, **_: Any) -> tuple[RenewalResult, LeaseTerm, None]:
        return RenewalResult.RENEWED, lease_term, None

    dispatcher.lane.touch = touch  # type: ignore[method-assign,assignment]


async def row_of(queue: Queue, name: LaneName) -> Any:
    """The lane as its row shows it."""
    looker = queue.client(f"looker at {queue.world.now_s()}")
    lane = Lane(looker.host, queue.settings.tables.lanes, lane_key(queue.settings, *name), queue.settings.lease)
    return await looker.process.start(lane.read_state())


async def taken_by(queue: Queue, member: Member, name: LaneName) -> Dispatcher:
    """The lane, as soon as its lock has run out."""
    while (await row_of(queue, name)).lock is not None:  # noqa: ASYNC110 - a TTL ends without a signal
        await asyncio.sleep(0.5)
    assert member.engine is not None
    await member.process.start(member.engine.lanes._try(name))
    return held_by(member)[name]


def test_of_two_owners_the_earlier_is_stopped_and_the_later_continues() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        wrong, right, _ = members
        name, earlier = next(iter(held_by(wrong).items()))
        breaks_its_lease(earlier)
        later = await taken_by(queue, right, name)
        epoch, taken_s = later.lease_term.epoch, queue.world.now_s()
        assert (True, True) == (earlier.may_act(), later.may_act())
        while earlier.may_act():
            assert queue.world.now_s() - taken_s < OBSERVED_WITHIN_S
            await asyncio.sleep(0.1)
        await asyncio.sleep(30)
        row = await row_of(queue, name)
        assert (epoch, later.lease_term.lock, earlier.lease_term.epoch) == (row.epoch, row.lock, row.stop)
        assert (None, later) == (later.ended, held_by(right)[name])
        assert [1, 0, 0] == [each.engine.lanes.stops for each in members if each.engine is not None]
        assert {DualOwnership(name, earlier.lease_term.epoch, epoch)} == dual_owners_of(members)

    simulate(scenario, settings=SHARED)


def test_one_that_watches_orders_the_stop_though_both_owners_are_blind() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        wrong, right, other = members
        name, earlier = next(iter(held_by(wrong).items()))
        breaks_its_lease(earlier)
        later = await taken_by(queue, right, name)
        for each in (wrong, right):
            assert each.engine is not None
            each.engine.lanes._stop_dual_owners = nothing  # type: ignore[method-assign]
        await asyncio.sleep(OBSERVED_WITHIN_S)
        assert earlier.lease_term.epoch == (await row_of(queue, name)).stop
        await asyncio.sleep(30)
        assert (None, True) == (later.ended, later.may_act())
        assert [0, 0, 0] == [each.engine.lanes.stops for each in members if each.engine is not None]
        assert [] != list(dual_owners_of([other]))

    simulate(scenario, settings=SHARED)


async def nothing() -> None:
    """In place of a check."""


def test_where_both_have_the_same_epoch_both_end_and_a_third_tenure_begins_when_the_lease_is_over() -> None:
    """As where two data centres decided each for itself, or a row was restored."""

    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        wrong, other = members
        name, one = next(iter(held_by(wrong).items()))
        breaks_its_lease(one)
        while (row := await row_of(queue, name)).lock is not None:  # noqa: ASYNC110 - a TTL ends without a signal
            await asyncio.sleep(0.5)
        hand = queue.client("somebody with cqlsh")
        table, key = queue.settings.tables.lanes, lane_key(queue.settings, *name)
        back = UpdateIf(table, key, {"epoch": row.epoch - 1}, is_("epoch", row.epoch), attempt=hand.host.uuid())
        assert (await hand.process.start(hand.store.decide(back))).applied
        another = await taken_by(queue, other, name)
        assert one.lease_term.epoch == another.lease_term.epoch
        began_s, promised_us = queue.world.now_s(), another.lease_term.promise.end_us
        while one.may_act() or another.may_act():
            assert queue.world.now_s() - began_s < OBSERVED_WITHIN_S + SHARED.lease.touch_us / SECOND
            promised_us = max(promised_us, another.lease_term.promise.end_us)
            await asyncio.sleep(0.1)
        while (row := await row_of(queue, name)).epoch == one.lease_term.epoch:
            assert queue.world.now_s() - began_s < 120
            await asyncio.sleep(0.5)
        assert row.touched_us > promised_us, "a stop shortens no lease"

    simulate(scenario, settings=SHARED)


def test_a_process_that_claims_a_lane_that_its_row_gives_to_another_ends_and_nobody_else_does() -> None:
    """The later one is in error: the row was never its own. The owner by right is not stopped."""

    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        right, wrong, _ = members
        name, owner = next(iter(held_by(right).items()))
        _, imagined = next(iter(held_by(wrong).items()))
        breaks_its_lease(imagined)
        imagined.lane = Lane(
            imagined.host, queue.settings.tables.lanes, lane_key(queue.settings, *name), queue.settings.lease
        )
        imagined.lane.touch = lambda lease_term, **_: nothing_new(lease_term)  # type: ignore[method-assign,assignment]
        now_us = wrong.process.clock.wall_us()
        imagined.lease_term = replace(imagined.lease_term, epoch=owner.lease_term.epoch + 5, since_us=now_us)
        held_by(wrong)[name] = imagined
        await asyncio.sleep(OBSERVED_WITHIN_S)
        assert (RenewalResult.LOST.value, None) == (imagined.ended, owner.ended)
        await asyncio.sleep(30)
        row = await row_of(queue, name)
        assert (owner.lease_term.lock, 0) == (row.lock, row.stop)
        assert [0, 1, 0] == [each.engine.lanes.stops for each in members if each.engine is not None]

    simulate(scenario, settings=SHARED)


async def nothing_new(lease_term: LeaseTerm) -> tuple[RenewalResult, LeaseTerm, None]:
    """In place of a touch."""
    return RenewalResult.RENEWED, lease_term, None


def test_a_lane_given_back_whose_answer_is_late_has_not_two_owners_and_settles_nothing_more() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        giver, taker, _ = members
        name, dispatcher = next(iter(held_by(giver).items()))
        assert giver.engine is not None
        giver.engine.lanes.wanted = 0
        lane, release = dispatcher.lane, dispatcher.lane.release

        async def answered_late(*values: Any, **more: Any) -> bool:
            released = await release(*values, **more)
            await asyncio.sleep(12)
            return released

        lane.release = answered_late  # type: ignore[method-assign]
        giving = giver.process.start(dispatcher.give_back())
        later = await taken_by(queue, taker, name)
        await asyncio.sleep(11)
        assert not giving.done(), "the answer is late"
        await giving
        await asyncio.sleep(10)
        assert (set(), None) == (dual_owners_of(members), later.ended)

    simulate(scenario, settings=SHARED)


def test_what_is_settled_while_the_lane_is_given_back_is_not_confirmed() -> None:
    """The next owner may have read the record by then: it would deliver again what was reported as settled."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"one")))
        consumer = Consumer(queue, "worker", DeliveryLog())

        async def settle_between() -> list[Settled]:
            engine = await consumer.open()
            (result,) = await engine.receive(5, wait_us=20 * SECOND, visibility_us=60 * SECOND)
            held = next(each for each in engine.lanes.held.values() if each.delivery_state.in_flight)
            release, released, answered = held.lane.release, asyncio.Event(), asyncio.Event()

            async def answered_late(*values: Any, **more: Any) -> bool:
                done = await release(*values, **more)
                released.set()
                await answered.wait()
                return done

            held.lane.release = answered_late  # type: ignore[method-assign]
            giving = asyncio.ensure_future(held.give_back())
            await released.wait()
            settled = await engine.settle([Ack(result.receipt)])
            answered.set()
            assert await giving
            return settled

        assert [Settled.UNKNOWN] == await consumer.process.start(settle_between())

    simulate(scenario, settings=WORKED)


def test_owners_that_are_killed_paused_and_leave_in_turn_are_never_taken_for_two() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        members[0].process.pause(for_s=20)
        await asyncio.sleep(40)
        members[1].process.kill()
        members.append(Member(queue, "another", DeliveryLog(), ahead_us=200_000))
        members[-1].start()
        await asyncio.sleep(40)
        await members[2].process.start(members[2].leave())
        await asyncio.sleep(30)
        assert set() == dual_owners_of(members)

    simulate(scenario, settings=SHARED)
