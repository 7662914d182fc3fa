"""Receiving: how many, how long it waits, how long they stay hidden, and in what order they come."""

from __future__ import annotations

from headgate.engines.contract import NewMessage
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld, texts


async def test_a_queue_that_holds_nothing_gives_nothing_when_the_wait_is_over(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    begun_us = member.now_us()
    assert [] == await member.receive(wait_s=1)
    assert SECOND_US <= member.now_us() - begun_us < 10 * SECOND_US


async def test_no_more_come_than_were_asked_for(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    member = await queue.member()
    await member.put(*(NewMessage(b"%d" % number) for number in range(20)))
    first = await member.receive(7)
    assert 7 == len(first)
    rest = await member.take(13)
    assert 20 == len({each.message_id for each in first + rest})
    await member.ack(*first, *rest)


async def test_a_process_that_waits_gets_what_comes_meanwhile_and_waits_no_longer(world: CaseWorld) -> None:
    queue = await world.queue()
    producer, consumer = await queue.member("producer"), await queue.member("consumer")
    assert [] == await consumer.receive(wait_s=0.5)
    begun_us = consumer.now_us()
    due_us = producer.in_us(1.5)
    await producer.put_one(due_us=due_us)
    await consumer.one(wait_s=60)
    assert consumer.now_us() < begun_us + 10 * SECOND_US


async def test_what_is_not_settled_comes_again_when_its_visibility_is_over(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=1.5)
    member = await queue.member()
    message_id = await member.put_one()
    first = await member.one()
    second = await member.one()
    assert (message_id, 1, 2) == (second.message_id, first.attempt, second.attempt)
    assert first.receipt != second.receipt
    assert member.now_us() >= first.visible_until_us
    await member.ack(second)


async def test_a_visibility_of_its_own_counts_instead_of_that_of_the_queue(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member = await queue.member()
    await member.put_one()
    first = await member.one(visibility_s=1)
    second = await member.one(wait_s=10)
    assert (1, 2) == (first.attempt, second.attempt)


async def test_one_lane_is_ordered_by_due(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, visibility_s=30)
    member = await queue.member()
    times = [4.5, 2.0, 3.5, 2.5, 3.0, 4.0]
    begun_us = member.now_us()
    await member.put(
        *(NewMessage(str(each).encode(), due_us=begun_us + round(each * SECOND_US)) for each in times),
        NewMessage(b"0.0"),
    )
    result = await member.take(7)
    assert ["0.0", *map(str, sorted(times))] == texts(result)
    await member.ack(*result)


async def test_one_message_is_given_to_one_of_many_receivers(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    members = [await queue.member(f"consumer-{number}") for number in range(3)]
    ids = await members[0].put(*(NewMessage(b"%d" % number) for number in range(90)))
    matches: list[str] = []
    while len(matches) < 90:
        for member in members:
            given = await member.receive(10, wait_s=0.3)
            matches += [each.message_id for each in given]
            await member.ack(*given)
    assert sorted(ids) == sorted(matches)


async def test_receivers_of_one_process_wait_beside_each_other(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    other = await queue.member("producer")
    assert [] == await member.receive(wait_s=0.5)
    ids = await other.put(NewMessage(b"a"), NewMessage(b"b"))
    first = await member.one(wait_s=10, limit=1)
    second = await member.one(wait_s=10, limit=1)
    assert set(ids) == {first.message_id, second.message_id}
