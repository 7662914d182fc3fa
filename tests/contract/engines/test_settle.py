"""Settling: durable when it is answered, honoured for the one receipt that holds the message, refused for others."""

from __future__ import annotations

import pytest

from headgate.engines.contract import Ack, ExtendDelivery, NackDelivery, NewMessage, Settled
from headgate.errors import InvalidRequest
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld


async def test_what_is_acknowledged_does_not_come_again(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=1)
    member = await queue.member()
    await member.put_one()
    assert [Settled.DONE] == await member.ack(await member.one())
    assert [] == await member.receive(wait_s=3)


async def test_what_is_acknowledged_is_so_for_the_next_owner_too(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    ids = await first.put(*(NewMessage(b"%d" % number) for number in range(10)))
    result = await first.take(10)
    done = result[::2]
    await first.ack(*done)
    first.kill()
    second = await queue.member("second")
    rest: list[str] = []
    while len(rest) < 5:
        given = await second.receive()
        assert given
        rest += [each.message_id for each in given]
        await second.ack(*given)
    assert set(ids) - {each.message_id for each in done} == set(rest)
    assert [] == await second.receive(wait_s=2)


async def test_a_failed_message_comes_again_at_once_and_reports_its_attempt(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member = await queue.member()
    message_id = await member.put_one()
    for attempt in (1, 2, 3, 4):
        given = await member.one()
        assert (message_id, attempt) == (given.message_id, given.attempt)
        if attempt < 4:
            assert [Settled.DONE] == await member.settle(NackDelivery(given.receipt))
    await member.ack(given)


async def test_a_failed_message_waits_for_the_delay_that_it_is_given(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member = await queue.member()
    message_id = await member.put_one()
    begun_us = member.now_us()
    await member.settle(NackDelivery((await member.one()).receipt, delay_us=2 * SECOND_US))
    given = await member.one()
    assert message_id == given.message_id
    assert begun_us + 2 * SECOND_US <= member.now_us() < begun_us + 10 * SECOND_US


async def test_a_delay_longer_than_a_lease_holds_up_nobody_else(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, visibility_s=60)
    member = await queue.member()
    slow = await member.put_one(b"slow", attributes={"a": "b"})
    await member.settle(
        NackDelivery((await member.one()).receipt, delay_us=(queue.terms.lease_s + 2) * SECOND_US, reason="later")
    )
    begun_us = member.now_us()
    quick = await member.put_one(b"quick")
    given = await member.one()
    assert quick == given.message_id
    await member.ack(given)
    again = await member.one()
    assert (slow, b"slow", {"a": "b"}, 2) == (again.message_id, again.payload, dict(again.attributes), again.attempt)
    assert member.now_us() >= begun_us + queue.terms.lease_s * SECOND_US
    await member.ack(again)


async def test_what_was_given_back_without_charge_is_at_its_first_attempt_still(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member = await queue.member()
    message_id = await member.put_one()
    assert [Settled.DONE] == await member.settle(NackDelivery((await member.one()).receipt, charged=False))
    given = await member.one()
    assert (message_id, 1) == (given.message_id, given.attempt)


async def test_an_extension_keeps_it_hidden_and_its_receipt_good(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=1)
    member = await queue.member()
    await member.put_one()
    given = await member.one()
    assert [Settled.DONE] == await member.settle(ExtendDelivery(given.receipt, 4 * SECOND_US))
    assert [] == await member.receive(wait_s=2.5)
    assert [Settled.DONE] == await member.ack(given)


async def test_an_extension_counts_from_the_time_it_is_asked_for(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=60)
    member = await queue.member()
    await member.put_one()
    given = await member.one()
    begun_us = member.now_us()
    await member.settle(ExtendDelivery(given.receipt, SECOND_US))
    again = await member.one()
    assert (2, True) == (again.attempt, begun_us + SECOND_US <= member.now_us() < begun_us + 10 * SECOND_US)


async def test_a_receipt_is_stale_when_its_visibility_is_over(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=1)
    member = await queue.member()
    message_id = await member.put_one()
    given = await member.one()
    await world.advance(1.5)
    assert [Settled.STALE] == await member.ack(given)
    assert [Settled.STALE] == await member.settle(ExtendDelivery(given.receipt, SECOND_US))
    again = await member.one()
    assert message_id == again.message_id


async def test_a_receipt_is_stale_once_the_message_was_delivered_again(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=1)
    member = await queue.member()
    await member.put_one()
    first = await member.one()
    second = await member.one(visibility_s=30)
    assert [Settled.STALE] == await member.ack(first)
    assert [Settled.STALE] == await member.settle(NackDelivery(first.receipt))
    assert [Settled.DONE] == await member.ack(second)


async def test_a_receipt_is_stale_where_the_lane_is_another_s_by_now(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    await first.put_one()
    given = await first.one(visibility_s=60)
    await first.close()
    second = await queue.member("second")
    assert [] == await second.receive(wait_s=2)
    assert [Settled.STALE] == await second.ack(given)


async def test_twice_the_same_is_honoured_once(world: CaseWorld) -> None:
    queue = await world.queue()
    member = await queue.member()
    await member.put_one()
    given = await member.one()
    assert [Settled.DONE] == await member.ack(given)
    assert [Settled.STALE] == await member.ack(given)
    await member.put_one(b"y")
    other = await member.one()
    assert [Settled.DONE, Settled.STALE] == await member.ack(other, other)


async def test_a_receipt_of_another_queue_is_refused(world: CaseWorld) -> None:
    one, other = await world.queue(), await world.queue()
    member, stranger = await one.member(), await other.member()
    await member.put_one()
    given = await member.one()
    with pytest.raises(InvalidRequest, match="Not a receipt"):
        await stranger.settle_unseen(Ack(given.receipt))
    assert [Settled.DONE] == await member.ack(given)


@pytest.mark.parametrize("place", [0, 9, 20, -1])
async def test_a_receipt_that_was_changed_is_refused(world: CaseWorld, place: int) -> None:
    queue = await world.queue()
    member = await queue.member()
    await member.put_one()
    given = await member.one()
    pending_messages = list(given.receipt)
    pending_messages[place] = "A" if pending_messages[place] != "A" else "Q"
    for text in ("".join(pending_messages), given.receipt[:-1], given.receipt + "AAAA", "", "nonsense", "ß" * 20):
        with pytest.raises(InvalidRequest, match="Not a receipt"):
            await member.settle_unseen(Ack(text))
    assert [Settled.DONE] == await member.ack(given)


async def test_settles_of_one_call_are_answered_each_for_itself_in_order(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    await member.put(*(NewMessage(b"%d" % number) for number in range(5)))
    result = await member.take(5)
    await member.ack(result[1])
    assert [Settled.DONE, Settled.STALE, Settled.DONE, Settled.DONE, Settled.STALE] == await member.settle(
        Ack(result[0].receipt),
        Ack(result[1].receipt),
        NackDelivery(result[2].receipt),
        ExtendDelivery(result[3].receipt, SECOND_US),
        NackDelivery(result[0].receipt),
    )
    again = [each.message_id for each in await member.take(2)]
    assert [result[2].message_id, result[3].message_id] == again


async def test_nothing_to_settle_is_no_answer(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    assert [] == await member.settle()
