"""What the engine in memory does beyond the conformance suite: retention, crash suspects, bounds."""

from __future__ import annotations

import asyncio
from itertools import count
from uuid import UUID

import pytest

from headgate.engines.contract import Ack, Cancelled, MessageState, NackDelivery, NewMessage, Settled
from headgate.engines.memory import lane as lanes
from headgate.engines.memory import server as servers
from headgate.engines.memory.engine import MemoryQueue
from headgate.engines.memory.lane import MemoryLane
from headgate.engines.memory.server import MemoryServer
from headgate.engines.memory.settings import DAY_US, SECOND_US, MemorySettings
from headgate.errors import OperationRefused
from tests.unit.runtime.workers import in_virtual_time


def settings(number: int = 1, *, retention_us: int = DAY_US, max_receives: int = 3) -> MemorySettings:
    """A queue."""
    return MemorySettings(
        UUID(int=number),
        "shop/emails",
        visibility_us=30 * SECOND_US,
        delay_us=0,
        max_receives=max_receives,
        message_bytes_max=1_000,
        retention_us=retention_us,
        once_window_us=60 * SECOND_US,
        skew_us=SECOND_US // 2,
        receipt_key=b"key",
    )


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.us = 1_000 * SECOND_US

    def __call__(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        """Set it forwards."""
        self.us += round(seconds * SECOND_US)


class Shop:
    """A server, and one queue with its dead-letter queue."""

    def __init__(self, **terms: int) -> None:
        self.clock = Clock()
        self.server = MemoryServer(self.clock)
        self.dead_settings = settings(2)
        self.settings = settings(**terms)

    def open(self, name: str = "one") -> MemoryQueue:
        """A connection's queue."""
        return MemoryQueue(self.server, self.settings, name=name, dead_letters=self.dead_settings)

    @property
    def lane(self) -> MemoryLane:
        """The contents."""
        return self.server.lane(self.settings)


def test_an_unsettled_message_expires_at_the_end_of_its_retention() -> None:
    async def scenario() -> None:
        shop = Shop(retention_us=10 * SECOND_US)
        queue = shop.open()
        ready, later = await queue.put([NewMessage(b"a"), NewMessage(b"b", shop.clock.us + 60 * SECOND_US)])
        shop.clock.advance(11)
        assert [] == await queue.receive(10)
        assert [later] == [each.message_id for each in await queue.peek(10)]
        assert MessageState.NOT_FOUND is (await queue.where(ready)).fate
        shop.clock.advance(60)
        assert (0, 0) == (len(await queue.peek(10)), shop.lane.size_bytes)

    in_virtual_time(scenario)


def test_a_message_that_is_in_flight_at_the_end_of_its_retention_can_be_settled() -> None:
    async def scenario() -> None:
        shop = Shop(retention_us=10 * SECOND_US)
        queue = shop.open()
        await queue.put([NewMessage(b"a"), NewMessage(b"b")])
        first, second = await queue.receive(10)
        shop.clock.advance(11)
        assert [Settled.DONE] * 2 == await queue.settle([Ack(first.receipt), NackDelivery(second.receipt)])
        assert [] == await queue.peek(10)

    in_virtual_time(scenario)


def test_a_group_continues_when_its_first_message_expires() -> None:
    async def scenario() -> None:
        shop = Shop(retention_us=10 * SECOND_US)
        queue = shop.open()
        await queue.put([NewMessage(b"a", group="g")])
        shop.clock.advance(5)
        await queue.put([NewMessage(b"b", group="g")])
        shop.clock.advance(6)
        assert [b"b"] == [each.payload for each in await queue.receive(10)]

    in_virtual_time(scenario)


def test_after_a_crash_its_messages_come_in_groups_until_one_is_alone_and_charged() -> None:
    async def scenario() -> None:
        shop = Shop()
        queue = shop.open()
        await queue.put([NewMessage(b"%d" % number) for number in range(100)])
        deliveries = await queue.receive(100)
        for together in (64, 32, 16, 8, 4, 2, 1, 1):
            queue.crash()
            queue = shop.open()
            shop.clock.advance(31)
            deliveries = [each for each in await queue.receive(100) if each.suspect]
            assert together == len(deliveries)
            assert [] == [each for each in await queue.receive(100) if each.suspect]
        assert 2 == deliveries[0].attempt, "only the second time alone is known to be its own fault"
        await queue.settle([Ack(each.receipt) for each in deliveries])
        assert [1] * 1 == [each.attempt for each in await queue.receive(100)][:1]

    in_virtual_time(scenario)


def test_a_message_that_had_its_receives_before_the_limit_was_lowered_is_a_dead_letter() -> None:
    async def scenario() -> None:
        shop = Shop()
        queue = shop.open()
        (message_id,) = await queue.put([NewMessage(b"a")])
        for _ in range(2):
            (delivery,) = await queue.receive(1)
            await queue.settle([NackDelivery(delivery.receipt)])
        queue.settings_changed(settings(max_receives=2), read_us=0)
        assert [] == await queue.receive(1)
        (dead,) = await MemoryQueue(shop.server, shop.dead_settings, name="digger").receive(1)
        assert (message_id, "received too often") == (dead.message_id, dead.attributes["headgate.dead.reason"])

    in_virtual_time(scenario)


def test_a_cancel_within_the_difference_of_clocks_is_too_late_as_on_a_server() -> None:
    async def scenario() -> None:
        shop = Shop()
        queue = shop.open()
        soon, later = await queue.put([NewMessage(b"", shop.clock.us + each * SECOND_US) for each in (1, 2)])
        assert (Cancelled.TOO_LATE, Cancelled.CANCELLED) == (await queue.cancel(soon), await queue.cancel(later))

    in_virtual_time(scenario)


def test_a_receiver_wakes_when_a_timer_of_another_queue_gives_it_a_dead_letter() -> None:
    async def scenario() -> None:
        server = MemoryServer(lambda: round(loop_s() * SECOND_US))
        source, dead = settings(max_receives=1), settings(2)
        queue = MemoryQueue(server, source, name="worker", dead_letters=dead)
        await queue.put([NewMessage(b"a")])
        await queue.receive(1, visibility_us=5 * SECOND_US)
        (dead_letter,) = await MemoryQueue(server, dead, name="digger").receive(1, wait_us=60 * SECOND_US)
        assert (b"a", 5) == (dead_letter.payload, round(loop_s()))

    in_virtual_time(scenario)


def loop_s() -> float:
    """Virtual time."""
    return asyncio.get_running_loop().time()


def test_nothing_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(lanes, "ENDED_MAX", 10)
        monkeypatch.setattr(lanes, "STALE_MIN", 10)
        monkeypatch.setattr(servers, "STALE_MIN", 10)
        shop = Shop()
        queue = shop.open()
        (kept,) = await queue.put([NewMessage(b"kept", shop.clock.us + DAY_US)])
        for number in range(200):
            await queue.put([NewMessage(b"x", once=str(number), group="g")])
            (delivery,) = await queue.receive(1)
            await queue.settle([Ack(delivery.receipt)])
            shop.clock.advance(1)
        lane = shop.lane
        assert ([kept], {}, []) == (list(lane.messages), lane.groups, lane.ready)
        assert (10, True) == (len(lane.ended), len(lane.once) <= 61)
        assert len(shop.server.timers) <= 15
        for _ in range(50):
            await queue.put([NewMessage(b"never received")])
            await queue.purge()
        assert len(lane.ready) <= 15

    in_virtual_time(scenario)


def test_a_full_queue_refuses_messages_until_it_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(lanes, "BYTES_MAX", 1_000)
        queue = Shop().open()
        await queue.put([NewMessage(b"x" * 900)])
        outcomes = await queue.put_each([NewMessage(b"x" * 200), NewMessage(b"x" * 50)])
        assert [OperationRefused, str] == [type(each) for each in outcomes]
        await queue.purge()
        assert 1 == len(await queue.put([NewMessage(b"x" * 900)]))

    in_virtual_time(scenario)


def test_a_closed_queue_takes_and_settles_nothing() -> None:
    async def scenario() -> None:
        queue = Shop().open()
        await queue.put([NewMessage(b"a")])
        (delivery,) = await queue.receive(1)
        await queue.close()
        assert [Settled.STALE] == await queue.settle([Ack(delivery.receipt)])
        assert [] == await queue.receive(1, wait_us=60 * SECOND_US)
        with pytest.raises(OperationRefused, match="closed"):
            await queue.put([NewMessage(b"b")])

    in_virtual_time(scenario)


def test_the_numbers_of_messages_are_apart_from_those_of_other_queues() -> None:
    one, other = (MemoryLane(settings(number), lambda *_: None, count(1)) for number in (1, 2 << 96))
    assert one.put([NewMessage(b"a")], 1) != other.put([NewMessage(b"a")], 1)
