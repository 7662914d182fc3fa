"""Groups: their messages come one after the other in the order of their puts, whatever happens, and hold no other."""

from __future__ import annotations

from headgate.engines.contract import Ack, NackDelivery, NewMessage
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld, Member, texts


async def numbered(member: Member, count: int, group: str = "g") -> list[str]:
    """Messages of a group, in one call; their texts."""
    await member.put(*(NewMessage(f"{group}{number}".encode(), group=group) for number in range(count)))
    return [f"{group}{number}" for number in range(count)]


async def test_of_a_group_one_is_given_at_a_time_in_order(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    put = await numbered(member, 6)
    matches: list[str] = []
    for _ in put:
        given = await member.one()
        assert [] == await member.receive(wait_s=0.2)
        matches += texts([given])
        await member.ack(given)
    assert put == matches


async def test_puts_of_one_process_one_after_the_other_are_in_order(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    for number in range(8):
        await member.put_one(b"%d" % number, group="g")
    matches: list[str] = []
    for _ in range(8):
        given = await member.one()
        matches += texts([given])
        await member.ack(given)
    assert list("01234567") == matches


async def test_a_failed_message_holds_its_group_until_its_next_attempt_and_no_other_group(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, visibility_s=30)
    member = await queue.member()
    await numbered(member, 2, "slow")
    first = await member.one()
    begun_us = member.now_us()
    await member.settle(NackDelivery(first.receipt, delay_us=8 * SECOND_US))
    others = await numbered(member, 3, "quick")
    matches: list[str] = []
    for _ in others:
        given = await member.one()
        matches += texts([given])
        await member.ack(given)
    assert (others, True) == (matches, member.now_us() < begun_us + 8 * SECOND_US)
    again = await member.one()
    assert (["slow0"], 2) == (texts([again]), again.attempt)
    assert member.now_us() >= begun_us + 8 * SECOND_US
    await member.ack(again)
    last = await member.one()
    assert ["slow1"] == texts([last])
    await member.ack(last)


async def test_groups_go_beside_each_other(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    for group in "abcde":
        await numbered(member, 2, group)
    result = await member.take(5)
    assert ["a0", "b0", "c0", "d0", "e0"] == sorted(texts(result))
    await member.ack(*result)
    rest = await member.take(5)
    assert ["a1", "b1", "c1", "d1", "e1"] == sorted(texts(rest))


async def test_a_group_stays_in_order_when_its_owner_dies(world: CaseWorld) -> None:
    queue = await world.queue()
    first = await queue.member("first")
    put = await numbered(first, 6)
    matches: list[str] = []
    for _ in range(2):
        given = await first.one()
        matches += texts([given])
        await first.ack(given)
    await first.one()
    first.kill()
    second = await queue.member("second")
    while len(matches) < 6:
        given = await second.one()
        matches += texts([given])
        await second.ack(given)
    assert put == matches


async def test_a_group_stays_in_order_over_a_failure_and_a_change_of_owner(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    first = await queue.member("first")
    put = await numbered(first, 3)
    begun_us = first.now_us()
    await first.settle(NackDelivery((await first.one()).receipt, delay_us=4 * SECOND_US))
    await first.close()
    second = await queue.member("second")
    matches: list[str] = []
    for number in range(3):
        given = await second.one()
        assert number or (given.attempt, True) == (2, second.now_us() >= begun_us + 4 * SECOND_US)
        matches += texts([given])
        await second.ack(given)
    assert put == matches


async def test_a_dead_letter_frees_its_group(world: CaseWorld) -> None:
    queue = await world.queue(dead_letters=True, max_receives=1, visibility_s=30)
    member = await queue.member()
    await numbered(member, 2)
    await member.settle(NackDelivery((await member.one()).receipt))
    given = await member.one()
    assert ["g1"] == texts([given])
    await member.settle(Ack(given.receipt))
