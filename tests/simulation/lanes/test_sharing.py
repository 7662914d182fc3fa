"""Members that share the lanes of a queue: evenly, again when one comes, leaves, dies or hangs; and nothing is lost
or settled twice on the way. The prose is docs/internals/protocols/balance.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

import pytest

from headgate.engines.contract import LaneOwner, NewMessage
from headgate.engines.crash_suspects import ProcessLife
from headgate.engines.lanes.balance import membership
from headgate.engines.lanes.balance.decide_dual_owners import LaneClaim, LaneClaims
from headgate.engines.lanes.balance.decide_shares import Member as ShareMember
from headgate.engines.lanes.balance.decide_shares import watchers
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.timeline.model.settings import GenerationSettings
from tests.simulation.lanes.sharing_members import SHARED, Member, begin, holding
from tests.simulation.timeline.timeline_puts import Queue, simulate
from tests.simulation.timeline.timeline_workers import (
    DeliveryLog,
    check_delivered,
    lanes_ready,
    put_many,
    until_all_settled,
)


def test_one_member_alone_holds_all_lanes() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 1)
        await holding(members, [6], within_s=5)

    simulate(scenario, settings=SHARED)


def test_one_process_takes_a_hundred_lanes_within_two_seconds() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 1)
        await holding(members, [100], within_s=2)

    simulate(scenario, settings=replace(SHARED, generations=(GenerationSettings(1, 100),)))


def test_which_lanes_a_member_watches_is_computed_once_for_each_list_of_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(queue: Queue) -> None:
        asked: list[LaneName] = []

        def counted(lane: LaneName, members: Collection[ShareMember]) -> set[UUID]:
            asked.append(lane)
            return watchers(lane, members)

        monkeypatch.setattr(membership, "watchers", counted)
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        await asyncio.sleep(10)
        asked.clear()
        await asyncio.sleep(60)
        assert [] == asked

    simulate(scenario, settings=SHARED)


def test_members_that_begin_together_share_evenly_at_once() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 3)
        await holding(members, [2, 2, 2], within_s=25)
        assert [3, 3, 3] == [sharers_of(each) for each in members]

    simulate(scenario, settings=SHARED)


def sharers_of(member: Member) -> int:
    """Among how many the lanes are shared, as it knows: a rate that is given to all is divided by it."""
    assert member.engine is not None
    assert member.engine.lanes.sharing is not None
    return member.engine.lanes.sharing.sharers


def test_a_process_that_has_no_share_since_there_are_more_members_than_lanes_is_not_counted() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 8)
        await holding(members, [1] * 6 + [0] * 2, within_s=25)
        assert [6] * 8 == [sharers_of(each) for each in members]

    simulate(scenario, settings=SHARED)


def test_a_process_that_comes_later_gets_its_share_under_load_and_nothing_is_delivered_twice() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        members = await begin(queue, objects, 1)
        putting = asyncio.ensure_future(put_many(queue, "producer", 400, every_s=0.1))
        await holding(members, [6], within_s=5)
        members.append(Member(queue, "late", objects))
        members[-1].start()
        await holding(members, [3, 3], within_s=25)
        await putting
        await until_all_settled(queue, objects, within_s=90)
        check_delivered(queue, objects)
        twice = [each for each, count in Counter(d.message_id for _, d in objects.deliveries).items() if count > 1]
        assert [] == twice

    simulate(scenario, settings=SHARED)


def test_a_process_that_leaves_is_followed_within_seconds() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        leaver = members[0]
        await leaver.process.start(leaver.leave())
        assert await holding(members[1:], [6], within_s=6) <= 5

    simulate(scenario, settings=SHARED)


def test_a_process_that_dies_is_followed_when_its_row_and_its_leases_are_over() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        members[0].process.kill()
        assert await holding(members[1:], [6], within_s=25) <= 20

    simulate(scenario, settings=SHARED)


def test_an_owner_whose_loop_hangs_while_it_touches_is_stopped_and_its_lane_moves_within_a_minute() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        members = await begin(queue, objects, 2)
        await holding(members, [3, 3], within_s=25)
        hanging = members[0]
        assert hanging.engine is not None
        name, dispatcher = next(iter(hanging.engine.lanes.held.items()))

        async def never(after: int, *, bytes_max: int) -> None:
            await asyncio.Event().wait()

        async def take_no_answer() -> None:
            """Whatever it holds hangs, also what it takes later."""
            while True:
                assert hanging.engine is not None
                for each in hanging.engine.lanes.held.values():
                    each.source.read = never  # type: ignore[assignment,method-assign,unused-ignore]
                await asyncio.sleep(0.1)

        hanging.process.start(take_no_answer())
        epoch = dispatcher.lease_term.epoch
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        for number in range(12):
            await client.process.start(queue.put(client, NewMessage(f"{number}".encode())))
        began_s = queue.world.now_s()
        while True:
            now = [each.engine.lanes.held.get(name) for each in members[1:] if each.engine is not None]
            if any(each is not None and each.lease_term.epoch > epoch and each.may_act() for each in now):
                break
            assert queue.world.now_s() - began_s < 60
            await asyncio.sleep(0.5)
        await until_all_settled(queue, objects, within_s=90)
        check_delivered(queue, objects)

    simulate(scenario, settings=SHARED)


def test_a_lane_that_its_member_cannot_take_is_taken_by_another_after_a_while() -> None:
    """Extra processing: the member writes its row, but its keeper hangs, so its lanes stay free."""

    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        await lanes_ready(queue)
        absent = queue.client("absent")
        await absent.process.start(_member_only(absent.host, queue))
        worker = Member(queue, "worker", objects)
        worker.start()
        await holding([worker], [3], within_s=5)
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        for number in range(12):
            await client.process.start(queue.put(client, NewMessage(f"{number}".encode())))
        await holding([worker], [6], within_s=45)
        await until_all_settled(queue, objects, within_s=90)
        check_delivered(queue, objects)

    simulate(scenario, settings=SHARED)


async def _member_only(host: object, queue: Queue) -> None:
    Sharing(host, queue.settings.queue).join(100)  # type: ignore[arg-type]


def test_members_that_cannot_read_the_list_keep_what_they_have() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        assert all(member.engine is not None and member.engine.lanes.sharing is not None for member in members)
        for member in members:
            assert member.engine is not None and member.engine.lanes.sharing is not None
            member.engine.lanes.sharing._read = _cannot  # type: ignore[method-assign,assignment]
        await asyncio.sleep(30)
        assert [3, 3] == [each.lanes for each in members]

    simulate(scenario, settings=SHARED)


async def _cannot() -> None:
    from headgate.errors import Unavailable

    raise Unavailable("held back in this test")


def test_of_two_that_claim_a_lane_the_later_one_is_named_as_its_owner() -> None:
    async def scenario(queue: Queue) -> None:
        members = await begin(queue, DeliveryLog(), 2)
        await holding(members, [3, 3], within_s=25)
        assert members[0].engine is not None
        sharing = members[0].engine.lanes.sharing
        assert sharing is not None
        earlier, later = (
            LaneClaims(UUID(int=epoch), 0, (LaneClaim((1, 9), epoch, 0),), f"10.0.0.{epoch}:4711", epoch)
            for epoch in (3, 4)
        )
        for claims in ((earlier, later), (later, earlier)):
            sharing.other_claims = claims
            assert LaneOwner(UUID(int=4), "10.0.0.4:4711", 4) == await sharing.owner_of((1, 9))
        assert None is await sharing.owner_of((1, 10))

    simulate(scenario, settings=SHARED)


def test_a_process_that_is_no_member_reads_the_owner_from_the_list() -> None:
    async def scenario(queue: Queue) -> None:
        (member,) = await begin(queue, DeliveryLog(), 1)
        await holding([member], [6], within_s=25)
        await asyncio.sleep(6)
        stranger = queue.client("stranger")
        sharing = Sharing(stranger.host, queue.settings.queue)
        owner = await stranger.process.start(sharing.owner_of((1, 3)))
        assert owner is not None and member.engine is not None and member.engine.lanes.sharing is not None
        assert (member.engine.lanes.sharing.me, "") == (owner.member, owner.address)
        assert owner.until_us > stranger.process.clock.wall_us()

    simulate(scenario, settings=SHARED)


@pytest.mark.parametrize("end", ["kill", "leave", "pause"])
def test_whether_a_member_has_ended_is_known_within_its_rows_life(end: str) -> None:
    """Of one that was killed, of one that left, and of one that was merely paused for longer than a lease."""

    async def scenario(queue: Queue) -> list[tuple[ProcessLife, int]]:
        watching, other = queue.client("watching"), queue.client("other")
        mine, theirs = (Sharing(each.host, queue.settings.queue) for each in (watching, other))
        for client, sharing in ((watching, mine), (other, theirs)):
            await client.process.start(_joined(sharing))
        await asyncio.sleep(12)
        since_us = watching.process.clock.wall_us()
        if end == "kill":
            other.process.kill()
        elif end == "pause":
            other.process.pause(for_s=9)
        else:
            await other.process.start(theirs.leave())
        began_s, lives = queue.world.now_s(), [(mine.life_of(theirs.me, since_us=since_us), 0)]
        while lives[-1][0] is ProcessLife.UNKNOWN and len(lives) < 30:
            await asyncio.sleep(1)
            lives.append((mine.life_of(theirs.me, since_us=since_us), round(queue.world.now_s() - began_s)))
        assert mine.life_of(mine.me, since_us=since_us) is ProcessLife.ALIVE
        return lives

    first, *_, (life, after_s) = simulate(scenario, settings=SHARED)
    assert first == (ProcessLife.UNKNOWN, 0)
    assert (life, after_s <= 18) == (ProcessLife.ALIVE if end == "pause" else ProcessLife.ENDED, True)


async def _joined(sharing: Sharing) -> None:
    sharing.join(1)
