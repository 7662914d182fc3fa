"""Purge: what was there at the call is settled, and nothing that is put after it."""

from __future__ import annotations

from headgate.engines.contract import NewMessage, Settled
from tests.contract.engines.worlds import CaseWorld


async def test_what_was_there_is_gone_and_what_is_put_after_comes(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    await member.put(*(NewMessage(b"before") for _ in range(20)))
    open_ones = await member.receive(5)
    before_us = await member.purge()
    assert before_us <= member.now_us()
    after = await member.put_one(b"after")
    given = await member.one()
    assert after == given.message_id
    assert {Settled.STALE} == set(await member.ack(*open_ones))
    assert [Settled.DONE] == await member.ack(given)
    assert [] == await member.receive(wait_s=1)


async def test_what_is_due_later_is_purged_too(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    await member.put(NewMessage(b"soon", due_us=member.in_us(2)), NewMessage(b"far", due_us=member.in_us(3_000)))
    await member.purge()
    after = await member.put_one(b"after", due_us=member.in_us(3))
    assert [after] == [each.message_id for each in await member.peek()]
    given = await member.one()
    assert after == given.message_id
    await member.ack(given)


async def test_a_purge_by_one_process_holds_for_all(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    producer, consumer = await queue.member("producer"), await queue.member("consumer")
    await producer.put(*(NewMessage(b"%d" % number) for number in range(30)))
    assert await consumer.receive(3)
    await producer.purge()
    assert [] == await consumer.receive(wait_s=2)
    assert [] == await producer.peek()


async def test_a_queue_without_consumers_is_purged_for_one_that_comes_later(world: CaseWorld) -> None:
    queue = await world.queue()
    producer = await queue.member("producer")
    await producer.put(NewMessage(b"a"), NewMessage(b"b"))
    await producer.purge()
    kept = await producer.put_one(b"c")
    consumer = await queue.member("consumer")
    given = await consumer.one()
    assert kept == given.message_id
    await consumer.ack(given)
    assert [] == await consumer.receive(wait_s=1)


async def test_what_was_put_after_the_time_of_a_purge_stays(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    await member.put(NewMessage(b"old"), NewMessage(b"old and later", due_us=member.in_us(2_000)))
    time_us = member.now_us()
    kept = await member.put_one(b"young")
    assert time_us == await member.purge(time_us)
    given = await member.one()
    assert kept == given.message_id
    await member.ack(given)
    assert [] == await member.peek()
