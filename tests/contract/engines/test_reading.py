"""Reading without taking: peek, stats and where report all messages, to the owner of the lanes and to others."""

from __future__ import annotations

import pytest

from headgate.engines.contract import MessageState, NackDelivery, NewMessage, Stats, Visibility
from headgate.errors import InvalidRequest
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld, Member


def counts(stats: Stats) -> tuple[int, int, int]:
    """Backlog, in flight, delayed."""
    return stats.backlog, stats.in_flight, stats.delayed


async def settled_in_the_tables(member: Member) -> None:
    """Counts and positions are written every second."""
    await member.queue.world.advance(2.5)


async def test_peek_shows_what_is_live_by_due_and_takes_nothing(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    due_us = member.in_us(60)
    attributes = {"a": "b", "c": b"\x00"}
    ids = [await member.put_one(b"%d" % number, attributes=attributes, group="g") for number in range(3)]
    later = await member.put_one(b"later", due_us=due_us)
    watcher = await queue.member("watcher")
    for each in (member, watcher):
        observation = await each.peek()
        assert [*ids, later] == [one.message_id for one in observation]
        assert [b"0", b"1", b"2", b"later"] == [one.payload for one in observation]
        assert (attributes, "g", due_us) == (
            dict(observation[0].attributes),
            observation[0].group,
            observation[3].due_us,
        )
        assert Visibility.LATER is observation[3].standing
        assert [one.message_id for one in observation] == [one.message_id for one in await each.peek()]
    given = await member.one()
    assert (ids[0], 1) == (given.message_id, given.attempt)


async def test_peek_shows_no_more_than_asked_for_and_begins_where_it_is_reported(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    times = [member.in_us(10 + number) for number in range(8)]
    ids = await member.put(*(NewMessage(b"x", due_us=due_us) for due_us in times))
    assert ids[:3] == [each.message_id for each in await member.peek(3)]
    assert ids[5:] == [each.message_id for each in await member.peek(from_us=times[5])]
    assert ids[5:7] == [each.message_id for each in await member.peek(2, from_us=times[5])]
    for limit in (0, -1, 1_001):
        with pytest.raises(InvalidRequest):
            await member.peek(limit)


async def test_peek_shows_how_what_was_received_stands(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, visibility_s=30)
    member = await queue.member()
    await member.put(*(NewMessage(b"%d" % number) for number in range(4)))
    result = await member.take(4)
    await member.ack(result[0])
    await member.settle(NackDelivery(result[1].receipt, delay_us=3 * SECOND_US), NackDelivery(result[2].receipt))
    again = await member.one(limit=1)
    assert result[2].message_id == again.message_id
    stand = {each.message_id: (each.standing, each.attempt) for each in await member.peek()}
    assert {
        result[1].message_id: (Visibility.IN_FLIGHT, 1),
        result[2].message_id: (Visibility.IN_FLIGHT, 2),
        result[3].message_id: (Visibility.IN_FLIGHT, 1),
    } == stand
    hidden = next(each for each in await member.peek() if each.message_id == result[1].message_id)
    assert member.now_us() < hidden.hidden_until_us <= member.now_us() + 3 * SECOND_US


async def test_peek_sees_nothing_that_is_settled_cancelled_or_purged(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member, watcher = await queue.member(), await queue.member("watcher")
    await member.put(*(NewMessage(b"%d" % number) for number in range(5)))
    await member.ack(*await member.take(5))
    dropped, kept = await member.put(
        NewMessage(b"dropped", due_us=member.in_us(30)), NewMessage(b"kept", due_us=member.in_us(31))
    )
    await member.cancel(dropped)
    assert [[kept]] * 2 == [[each.message_id for each in await one.peek()] for one in (member, watcher)]
    await watcher.purge()
    assert [[]] * 2 == [await one.peek() for one in (member, watcher)]


async def test_peek_finds_what_is_far_ahead(world: CaseWorld) -> None:
    queue = await world.queue(retention_s=86_400)
    member = await queue.member()
    days = [1, 40, 400, 2_000]
    ids = await member.put(*(NewMessage(b"%d" % day, due_us=member.in_us(day * 86_400)) for day in days))
    assert ids == [each.message_id for each in await member.peek()]
    await settled_in_the_tables(member)
    assert (0, 0, 4) == counts(await member.stats())


async def test_stats_count_each_message_once(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member, watcher = await queue.member(), await queue.member("watcher")
    await member.put(*(NewMessage(b"%d" % number) for number in range(30)))
    await member.put(*(NewMessage(b"later", due_us=member.in_us(60 + number)) for number in range(7)))
    result = await member.take(12)
    await member.ack(*result[:5])
    await member.settle(NackDelivery(result[5].receipt, delay_us=5 * SECOND_US))
    await settled_in_the_tables(member)
    for each in (member, watcher):
        stats = await each.stats()
        assert ((18, 7, 7), True) == (counts(stats), stats.complete)
        assert stats.oldest_due_us is not None and stats.oldest_due_us <= member.now_us()


async def test_stats_report_of_a_queue_that_nobody_works(world: CaseWorld) -> None:
    queue = await world.queue()
    producer = await queue.member("producer")
    assert (0, 0, 0) == counts(await producer.stats())
    before_us = producer.now_us()
    ids = await producer.put(*(NewMessage(b"%d" % number) for number in range(50)))
    later = await producer.put_one(due_us=producer.in_us(40))
    await producer.cancel(await producer.put_one(due_us=producer.in_us(50)))
    await settled_in_the_tables(producer)
    stats = await producer.stats()
    assert ((50, 0, 1), False) == (counts(stats), any(lane.owner for lane in stats.lanes))
    assert stats.oldest_due_us is not None and before_us <= stats.oldest_due_us <= producer.now_us()
    assert 51 == len(await producer.peek(1_000)) == len({*ids, later})


async def test_stats_report_which_process_works_each_lane(world: CaseWorld) -> None:
    queue = await world.queue(lanes=2, visibility_s=30)
    member, watcher = await queue.member(), await queue.member("watcher")
    await member.put_one()
    await member.one()
    await settled_in_the_tables(member)
    for each in (member, watcher):
        lanes = (await each.stats()).lanes
        assert (world.kind.lanes(queue.terms), {1}) == (len(lanes), {lane.epoch for lane in lanes})
        assert all(lane.owner and lane.last_us <= lane.read_to_us for lane in lanes)
        assert all(lane.touched_us > member.now_us() - 10 * SECOND_US for lane in lanes)
        assert {each is member} == {lane.is_mine for lane in lanes}
        assert 1 == sum(lane.oldest_due_us is not None for lane in lanes)
    await member.close()
    lanes = (await watcher.stats()).lanes
    assert {None} == {lane.owner for lane in lanes}


async def test_stats_follow_a_purge(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    await member.put(*(NewMessage(b"%d" % number) for number in range(10)))
    await member.put_one(due_us=member.in_us(600))
    await settled_in_the_tables(member)
    assert (10, 0, 1) == counts(await member.stats())
    await member.purge()
    assert [] == await member.receive(wait_s=1)
    assert (0, 0, 0) == counts(await member.stats())


async def test_where_follows_a_message_from_its_put_to_its_end(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member, watcher = await queue.member(), await queue.member("watcher")
    due_us = member.in_us(2)
    message_id = await member.put_one(due_us=due_us)
    for each in (member, watcher):
        report = await each.where(message_id)
        assert (message_id, MessageState.WAITING, due_us, 1) == (
            report.message_id,
            report.fate,
            report.due_us,
            len(report.places),
        )
    given = await member.one()
    assert [MessageState.IN_FLIGHT] * 2 == [(await each.where(message_id)).fate for each in (member, watcher)]
    await member.ack(given)
    assert [MessageState.SETTLED] * 2 == [(await each.where(message_id)).fate for each in (member, watcher)]
    await settled_in_the_tables(member)
    await member.close()
    assert MessageState.SETTLED is (await watcher.where(message_id)).fate


async def test_where_reports_what_was_never_put_cancelled_or_purged(world: CaseWorld) -> None:
    queue, other = await world.queue(), await world.queue()
    member, stranger = await queue.member(), await other.member()
    message_id = await member.put_one(due_us=member.in_us(30))
    assert MessageState.NOT_FOUND is (await stranger.where(message_id)).fate
    cancelled = await member.put_one(due_us=member.in_us(30))
    await member.cancel(cancelled)
    await member.purge()
    assert [MessageState.PURGED, MessageState.CANCELLED] == [
        (await member.where(each)).fate for each in (message_id, cancelled)
    ]


async def test_where_follows_a_message_that_failed_and_one_that_died(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, dead_letters=True, max_receives=2, visibility_s=30)
    member = await queue.member()
    message_id = await member.put_one()
    delay_us = (queue.terms.lease_s + 2) * SECOND_US
    await member.settle(NackDelivery((await member.one()).receipt, delay_us=delay_us))
    await settled_in_the_tables(member)
    report = await member.where(message_id)
    assert (MessageState.WAITING, 1, 2) == (report.fate, report.attempt, len(report.places))
    given = await member.one()
    assert message_id == given.message_id
    await member.settle(NackDelivery(given.receipt, reason="again"))
    assert queue.dead_letters is not None
    dead = await (await queue.dead_letters.member("digger")).one()
    assert message_id == dead.message_id
    await settled_in_the_tables(member)
    assert MessageState.DEAD is (await member.where(message_id)).fate
