"""Putting: an acknowledged message comes as it was put, when it was asked for; one that cannot be kept is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

import pytest

from headgate.engines.contract import NewMessage, Visibility
from headgate.errors import InvalidRequest
from headgate.store.model.deadline import Deadline
from headgate.store.store import NotSent
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld

DAY_US = 86_400 * SECOND_US


async def test_a_message_comes_as_it_was_put(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    before_us = member.now_us()
    attributes = {"name": "Zoë", "key": b"\x00\xff"}
    message_id = await member.put_one(bytes(range(256)), attributes=attributes, group="grüße")
    given = await member.one()
    assert (message_id, bytes(range(256)), "grüße", 1) == (
        given.message_id,
        given.payload,
        given.group,
        given.attempt,
    )
    assert attributes == dict(given.attributes)
    assert before_us <= given.put_us <= given.due_us + SECOND_US and given.due_us >= before_us
    assert not given.suspect


async def test_many_put_in_one_call_have_ids_of_their_own_in_order_and_all_come(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    ids = await member.put(*(NewMessage(b"%d" % number) for number in range(700)))
    assert 700 == len(set(ids))
    result = await member.take(700)
    assert {message_id: b"%d" % number for number, message_id in enumerate(ids)} == {
        each.message_id: each.payload for each in result
    }
    await member.ack(*result)


async def test_no_messages_are_no_ids(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    assert [] == await member.put()


async def test_after_its_deadline_a_message_is_not_put_and_before_it_is(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    engine, over = member.engine, Deadline(0.0)
    for message in (NewMessage(b"late"), NewMessage(b"late", group="g"), NewMessage(b"late", once="key")):
        with pytest.raises(NotSent):
            await member.place.run(awaited(engine.put([message], deadline=over)))
        outcomes = await member.place.run(engine.put_each([message], deadline=over))
        assert [NotSent] == [type(each) for each in outcomes]
    ample = Deadline.after(60.0, now_s=asyncio.get_running_loop().time())
    messages = (NewMessage(b"in time", once="key"),)
    (in_time,) = await member.place.run(queue.ledger.put(partial(engine.put, deadline=ample), messages, member.name))
    given = await member.one()
    assert (in_time, b"in time") == (given.message_id, given.payload)
    await member.ack(given)
    assert [] == await member.receive(wait_s=2.0)


async def awaited(put: Awaitable[list[str]]) -> list[str]:
    """As a coroutine."""
    return await put


async def test_an_empty_message_is_a_message(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    message_id = await member.put_one(b"")
    given = await member.one()
    assert (message_id, b"", {}) == (given.message_id, given.payload, dict(given.attributes))


async def test_the_largest_message_comes_and_one_byte_more_is_refused_with_all_of_its_call(world: CaseWorld) -> None:
    queue = await world.queue(message_bytes_max=5_000)
    member = await queue.member()
    message_id = await member.put_one(b"x" * 5_000)
    with pytest.raises(InvalidRequest):
        await member.put(NewMessage(b"a"), NewMessage(b"x" * 5_001))
    given = await member.one()
    assert message_id == given.message_id
    await member.ack(given)
    assert [] == await member.receive(wait_s=1.5)


async def test_put_each_answers_for_each_message_and_refuses_only_what_cannot_be_kept(world: CaseWorld) -> None:
    queue = await world.queue(message_bytes_max=5_000)
    member = await queue.member()
    outcomes = await member.put_each(
        NewMessage(b"first"),
        NewMessage(b"x" * 5_001),
        NewMessage(b"grouped", group="g"),
        NewMessage(b"once", once="key"),
        NewMessage(b"x" * 5_001, once="another"),
        NewMessage(b"once again", once="key"),
        NewMessage(b"last"),
    )
    assert [str, InvalidRequest, str, str, InvalidRequest, str, str] == [type(outcome) for outcome in outcomes]
    assert outcomes[3] == outcomes[5]
    result = await member.take(4)
    assert {
        outcomes[at]: payload for at, payload in ((0, b"first"), (2, b"grouped"), (3, b"once"), (6, b"last"))
    } == {each.message_id: each.payload for each in result}
    await member.ack(*result)
    assert [] == await member.put_each()


async def test_put_by_one_process_is_received_by_another(world: CaseWorld) -> None:
    queue = await world.queue()
    producer, consumer = await queue.member("producer"), await queue.member("consumer")
    message_id = await producer.put_one()
    given = await consumer.one()
    assert message_id == given.message_id


async def test_what_is_due_later_comes_at_its_time(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    due_us = member.in_us(4)
    message_id = await member.put_one(due_us=due_us)
    assert [] == await member.receive(wait_s=2)
    given = await member.one()
    assert (message_id, due_us) == (given.message_id, given.due_us)
    assert due_us <= member.now_us() < due_us + 10 * SECOND_US


async def test_what_was_due_long_ago_comes_at_once(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    message_id = await member.put_one(due_us=member.now_us() - DAY_US)
    given = await member.one()
    assert message_id == given.message_id


async def test_the_delay_of_the_queue_holds_for_what_states_nothing_of_its_own(world: CaseWorld) -> None:
    queue = await world.queue(delay_s=5.0)
    member = await queue.member()
    begun_us = member.now_us()
    slow = await member.put_one(b"slow")
    quick = await member.put_one(b"quick", due_us=begun_us)
    first = await member.one(limit=1)
    assert quick == first.message_id
    await member.ack(first)
    second = await member.one()
    assert (slow, True) == (second.message_id, member.now_us() >= begun_us + 5 * SECOND_US)


async def test_what_is_due_in_years_is_kept_and_seen(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    due_us = member.in_us(3 * 365 * 86_400)
    message_id = await member.put_one(due_us=due_us)
    assert [] == await member.receive(wait_s=1)
    (observation,) = await member.peek()
    assert (message_id, due_us, Visibility.LATER) == (
        observation.message_id,
        observation.due_us,
        observation.standing,
    )


async def test_what_cannot_be_kept_that_long_is_refused_with_the_reason_and_nothing_is_put(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    with pytest.raises(InvalidRequest, match="can store"):
        await member.put(NewMessage(b"now"), NewMessage(b"never", due_us=member.in_us(100 * 365 * 86_400)))
    assert [] == await member.receive(wait_s=1.5)
    assert [] == await member.peek()
