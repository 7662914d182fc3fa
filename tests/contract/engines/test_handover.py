"""Owners that end: in good order nothing is delivered twice or early; killed, all comes again, and in time."""

from __future__ import annotations

from headgate.engines.contract import ExtendDelivery, NackDelivery, NewMessage, Settled
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld


async def test_what_is_open_when_its_owner_ends_in_good_order_stays_hidden_as_promised(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    ids = await first.put(NewMessage(b"short"), NewMessage(b"long"))
    short = await first.one(limit=1, visibility_s=2)
    long = await first.one(limit=1, visibility_s=6)
    await first.close()
    second = await queue.member("second")
    again = await second.one(visibility_s=60)
    assert (ids[0], 2, True) == (again.message_id, again.attempt, second.now_us() >= short.visible_until_us)
    later = await second.one()
    assert (ids[1], 2, True) == (later.message_id, later.attempt, second.now_us() >= long.visible_until_us)
    assert not again.suspect and not later.suspect


async def test_what_nobody_was_given_continues_at_once_with_the_next_owner(world: CaseWorld) -> None:
    queue = await world.queue()
    first = await queue.member("first")
    ids = await first.put(*(NewMessage(b"%d" % number) for number in range(40)))
    done = await first.receive(5)
    await first.ack(*done)
    await first.close()
    second = await queue.member("second")
    begun_us = second.now_us()
    rest = await second.take(40 - len(done))
    assert set(ids) == {each.message_id for each in [*done, *rest]}
    assert {1} == {each.attempt for each in rest}
    assert second.now_us() < begun_us + 6 * SECOND_US
    await second.ack(*rest)


async def test_what_a_killed_owner_had_comes_again_within_its_visibility_and_half_a_minute(world: CaseWorld) -> None:
    queue = await world.queue()
    first = await queue.member("first")
    ids = await first.put(*(NewMessage(b"%d" % number) for number in range(10)))
    given = await first.take(10)
    first.kill()
    second = await queue.member("second")
    again: list[str] = []
    while len(again) < 10:
        result = await second.receive()
        assert result
        again += [each.message_id for each in result]
        await second.ack(*result)
    assert sorted(ids) == sorted(again)
    assert second.now_us() <= max(each.visible_until_us for each in given) + 30 * SECOND_US


async def test_a_long_visibility_outlives_a_killed_owner(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    message_id = await first.put_one()
    given = await first.one(visibility_s=queue.terms.lease_s + 7)
    first.kill()
    second = await queue.member("second")
    again = await second.one(wait_s=40)
    assert (message_id, 1, True) == (again.message_id, again.attempt, again.suspect), "a death is not charged to it"
    assert second.now_us() >= given.visible_until_us
    assert [Settled.DONE] == await second.ack(again)


async def test_an_extension_outlives_a_killed_owner(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    await first.put_one()
    given = await first.one()
    until_us = first.in_us(queue.terms.lease_s + 6)
    assert [Settled.DONE] == await first.settle(ExtendDelivery(given.receipt, until_us - first.now_us()))
    first.kill()
    second = await queue.member("second")
    await second.one(wait_s=40)
    assert second.now_us() >= until_us - SECOND_US // 10


async def test_a_delay_that_was_answered_outlives_a_killed_owner(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    first = await queue.member("first")
    await first.put_one()
    given = await first.one()
    until_us = first.in_us(queue.terms.lease_s + 8)
    assert [Settled.DONE] == await first.settle(NackDelivery(given.receipt, delay_us=until_us - first.now_us()))
    first.kill()
    second = await queue.member("second")
    again = await second.one(wait_s=40)
    assert (2, True) == (again.attempt, second.now_us() >= until_us - SECOND_US // 10)


async def test_a_higher_epoch_reports_a_handler_of_a_later_owner(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1)
    epochs = []
    for number in range(3):
        member = await queue.member(str(number))
        await member.put_one()
        given = await member.one()
        epochs.append(given.epoch)
        await member.ack(given)
        await member.close()
    assert sorted(set(epochs)) == epochs
