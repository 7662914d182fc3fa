"""Once: the same key makes one message, from any process, before and after it was delivered."""

from __future__ import annotations

import asyncio

from headgate.engines.contract import NewMessage
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld, Member


async def test_the_same_key_is_answered_with_the_same_id_and_comes_once(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    ids = [await member.put_one(b"first", once="key"), await member.put_one(b"second", once="key")]
    assert 1 == len(set(ids))
    given = await member.one()
    assert (ids[0], b"first") == (given.message_id, given.payload)
    await member.ack(given)
    assert [] == await member.receive(wait_s=1.5)


async def test_the_same_key_is_answered_with_the_same_id_after_the_message_was_settled(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    message_id = await member.put_one(b"first", once="key")
    await member.ack(await member.one())
    assert message_id == await member.put_one(b"second", once="key")
    other = await queue.member("other")
    assert message_id == await other.put_one(b"third", once="key")
    assert [] == await member.receive(wait_s=2)


async def test_processes_that_put_the_same_keys_at_the_same_time_make_each_once(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    members = [await queue.member(f"producer-{number}") for number in range(3)]

    async def put(member: Member) -> list[str]:
        return await member.put(
            *(NewMessage(f"{member.name} {number}".encode(), once=str(number)) for number in range(10))
        )

    one, *others = await asyncio.gather(*map(put, members))
    assert [one, one] == others
    assert 10 == len(set(one))
    result = await members[0].take(10)
    assert set(one) == {each.message_id for each in result}
    await members[0].ack(*result)
    assert [] == await members[0].receive(wait_s=1)


async def test_the_same_key_twice_in_one_call_is_one_message(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    first, plain, second = await member.put(
        NewMessage(b"a", once="key"), NewMessage(b"plain"), NewMessage(b"b", once="key")
    )
    assert (first, True) == (second, plain != first)
    result = await member.take(2)
    assert {first, plain} == {each.message_id for each in result}


async def test_scopes_keep_the_same_key_apart(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    ids = await member.put(
        NewMessage(b"a", once="key", once_scope="one"),
        NewMessage(b"b", once="key", once_scope="other"),
        NewMessage(b"c", once="key"),
    )
    assert 3 == len(set(ids))
    assert ids[1] == await member.put_one(b"d", once="key", once_scope="other")
    assert set(ids) == {each.message_id for each in await member.take(3)}


async def test_a_key_may_be_put_for_later_and_is_one_still(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    due_us = member.in_us(3)
    message_id = await member.put_one(b"later", once="key", due_us=due_us)
    assert message_id == await member.put_one(b"now", once="key")
    given = await member.one()
    assert (b"later", True) == (given.payload, member.now_us() >= due_us)
    await member.ack(given)


async def test_a_key_is_free_again_when_its_window_is_over(world: CaseWorld) -> None:
    queue = await world.queue(once_window_s=4)
    member = await queue.member()
    message_id = await member.put_one(b"first", once="key")
    await member.ack(await member.one())
    await world.advance(6)
    queue.ledger.forget_keys()
    assert message_id != await member.put_one(b"second", once="key")
    given = await member.one()
    assert b"second" == given.payload
    assert given.put_us > member.now_us() - 60 * SECOND_US
