"""A lane that is handed over to another member: it ends, whatever the clock does and whichever member leaves."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from headgate.engines.contract import Ack, ExtendDelivery
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.ownership.lane_set import DRAIN_S
from headgate.engines.timeline.engine import TimelineQueue
from headgate.errors import HeadgateError
from tests.simulation.lanes.sharing_members import SHARED, Member, begin, holding
from tests.simulation.store.test_refused_statements import in_doubt, put_steadily
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import DeliveryLog

HELD = replace(SHARED, part_us=60 * SECOND, visibility_us=8 * SECOND)


class SlowMember(Member):
    """Handles one message of each lane for `slow_s`, extending it, and all others at once."""

    slow_s = 120.0

    def start(self, *, work_s: float = 0.01, batch: int = 20) -> None:
        """Begin to receive; `leave` ends it."""
        self.last_given_s: dict[int, float] = {}
        self.working = self.process.start(self._handle(batch))

    async def _handle(self, batch: int) -> None:
        engine = await self.open()
        slow: set[asyncio.Task[None]] = set()
        while True:
            try:
                result = await engine.receive(batch, wait_us=SECOND)
                for each in result:
                    ((_, lane),) = engine._by_lane([Ack(each.receipt)])
                    if lane not in self.last_given_s:
                        slow.add(asyncio.get_running_loop().create_task(self._slowly(engine, each.receipt)))
                        result = [other for other in result if other is not each]
                    self.last_given_s[lane] = self.queue.world.now_s()
                await engine.settle([Ack(each.receipt) for each in result])
            except HeadgateError:
                await asyncio.sleep(0.2)

    async def _slowly(self, engine: TimelineQueue, receipt: str) -> None:
        until_s = self.queue.world.now_s() + self.slow_s
        while self.queue.world.now_s() < until_s:
            await asyncio.sleep(3)
            try:
                await engine.settle([ExtendDelivery(receipt, 8 * SECOND)])
            except HeadgateError:
                continue
        await engine.settle([Ack(receipt)])


async def handing_over(queue: Queue, *, slow_s: float = 120.0, put_every_s: float = 0.1) -> tuple[SlowMember, Member]:
    """One member with all lanes, one of whose handlers takes long on each; another has come, and half of the lanes
    drain."""
    await begin(queue, DeliveryLog(), 0)
    old, new = SlowMember(queue, "old", DeliveryLog()), Member(queue, "new", DeliveryLog())
    old.slow_s = slow_s
    old.start()
    await holding([old], [6], within_s=30)
    await put_steadily(queue, every_s=put_every_s)
    await asyncio.sleep(15)
    new.start()
    for _ in range(60):
        await asyncio.sleep(0.5)
        if draining(old):
            return old, new
    raise AssertionError("no lane is handed over")


def draining(member: Member) -> int:
    """How many of its lanes hand out nothing."""
    assert member.engine is not None
    return sum(lane._draining for lane in member.engine.lanes.held.values())


async def all_lanes_hand_out(member: SlowMember, *, within_s: float) -> None:
    """Wait until every lane has given something from now on."""
    began_s = member.queue.world.now_s()
    while member.queue.world.now_s() < began_s + within_s:
        if 6 == sum(at_s > began_s for at_s in member.last_given_s.values()):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"lanes that stand still: {draining(member)} of 6 drain")


def test_a_hand_over_is_taken_back_when_the_member_that_was_to_have_the_lane_leaves() -> None:
    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue)
        await new.process.start(new.leave())
        await all_lanes_hand_out(old, within_s=20)
        assert 0 == draining(old)

    simulate(scenario, settings=HELD)


async def longest_pause_s(member: SlowMember, *, within_s: float) -> float:
    """The longest time from now on in which some lane of the member delivers nothing."""
    world = member.queue.world
    began_s, longest_s = world.now_s(), 0.0
    while world.now_s() < began_s + within_s:
        await asyncio.sleep(0.5)
        assert member.engine is not None
        for _, lane in member.engine.lanes.held:
            longest_s = max(longest_s, world.now_s() - max(began_s, member.last_given_s[lane]))
    return longest_s


def test_a_lane_that_is_handed_over_never_pauses_for_as_long_as_its_longest_handler() -> None:
    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue, slow_s=400.0, put_every_s=0.5)
        assert await longest_pause_s(old, within_s=250) < DRAIN_S + 10
        assert 6 == old.lanes, "each has a message that is handled for minutes"
        await holding([old, new], [3, 3], within_s=300)

    simulate(scenario, settings=HELD)


def test_a_lane_whose_handlers_overlap_is_released_between_two_drains_once_nothing_is_in_flight() -> None:
    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue)
        await asyncio.sleep(DRAIN_S + 2)
        assert 0 == draining(old)
        await holding([old, new], [3, 3], within_s=100)

    simulate(scenario, settings=HELD)


def test_a_hand_over_survives_a_clock_in_doubt(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue)
        real = old.host.now_us
        object.__setattr__(old.host, "now_us", in_doubt)
        await asyncio.sleep(0.6)
        object.__setattr__(old.host, "now_us", real)
        await holding([old, new], [3, 3], within_s=150)
        assert 0 == draining(old)

    with caplog.at_level(logging.ERROR, logger="headgate.lanes"):
        simulate(scenario, settings=HELD)
    assert [] == [record.getMessage() for record in caplog.records]


def test_a_hand_over_that_fails_leaves_the_lane_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(lane: Dispatcher) -> bool:
        raise KeyError("nobody thought of this")

    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue)
        monkeypatch.setattr(Dispatcher, "give_back", broken)
        before = set(old.last_given_s)
        await asyncio.sleep(125)
        assert old.engine is not None
        assert 6 == len(old.engine.lanes.held)
        await new.process.start(new.leave())
        await all_lanes_hand_out(old, within_s=20)
        assert before == set(old.last_given_s)

    simulate(scenario, settings=HELD)


def test_a_hand_over_after_a_clock_in_doubt_is_taken_back_too() -> None:
    async def scenario(queue: Queue) -> None:
        old, new = await handing_over(queue)
        await new.process.start(new.leave())
        real = old.host.now_us
        object.__setattr__(old.host, "now_us", in_doubt)
        await asyncio.sleep(0.6)
        object.__setattr__(old.host, "now_us", real)
        await all_lanes_hand_out(old, within_s=20)
        assert 0 == draining(old)

    simulate(scenario, settings=HELD)


def test_a_worker_that_ends_passes_every_lane_though_it_is_alone() -> None:
    async def scenario(queue: Queue) -> None:
        await begin(queue, DeliveryLog(), 0)
        member = SlowMember(queue, "only", DeliveryLog())
        member.slow_s = 5.0
        member.start()
        await holding([member], [6], within_s=30)
        await put_steadily(queue)
        await asyncio.sleep(2)
        assert member.engine is not None
        member.working.cancel()
        await member.process.start(member.engine.lanes.leave())
        await holding([member], [0], within_s=30)

    simulate(scenario, settings=HELD)
