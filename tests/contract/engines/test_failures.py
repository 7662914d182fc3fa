"""A message that fails too often, or kills its handler, is dead-lettered with its reason, and no other is."""

from __future__ import annotations

import pytest

from headgate.engines.contract import DeadLetterDelivery, NackDelivery, NewMessage, Settled
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld

KNOWN_TO_BE_DEAD_S = 35
"""A lease, and until it is known that its process ended."""
DEATHS_OF_TWO = 4
"""Of two messages in flight together both come again together, and then alone. Two deaths alone are the limit."""


async def test_what_failed_too_often_is_a_dead_letter_with_its_reason_and_all_else_of_it(world: CaseWorld) -> None:
    queue = await world.queue(dead_letters=True, max_receives=2)
    member = await queue.member()
    message_id = await member.put_one(b"poison", attributes={"kept": "yes"}, group="g")
    for number in (1, 2):
        given = await member.one()
        assert number == given.attempt
        await member.settle(NackDelivery(given.receipt, reason="it does not like me"))
    assert queue.dead_letters is not None
    digger = await queue.dead_letters.member("digger")
    dead = await digger.one()
    assert (message_id, b"poison", "g", 1) == (dead.message_id, dead.payload, dead.group, dead.attempt)
    assert ("yes", "it does not like me", "2") == (
        dead.attributes["kept"],
        dead.attributes["headgate.dead.reason"],
        dead.attributes["headgate.dead.attempts"],
    )
    assert [Settled.DONE] == await digger.ack(dead)
    assert [] == await member.receive(wait_s=1)


async def test_what_nobody_settles_is_a_dead_letter_in_the_end(world: CaseWorld) -> None:
    queue = await world.queue(dead_letters=True, max_receives=2, visibility_s=1)
    member = await queue.member()
    message_id = await member.put_one()
    assert [1, 2] == [(await member.one()).attempt for _ in range(2)]
    assert queue.dead_letters is not None
    digger = await queue.dead_letters.member("digger")
    dead = await digger.one()
    assert message_id == dead.message_id
    assert "visibility" in str(dead.attributes["headgate.dead.reason"])


async def test_what_is_rejected_is_a_dead_letter_at_once(world: CaseWorld) -> None:
    queue = await world.queue(dead_letters=True, max_receives=5)
    member = await queue.member()
    message_id = await member.put_one()
    given = await member.one()
    assert [Settled.DONE] == await member.settle(DeadLetterDelivery(given.receipt, reason="not for me"))
    assert queue.dead_letters is not None
    dead = await (await queue.dead_letters.member("digger")).one()
    assert (message_id, "not for me") == (dead.message_id, dead.attributes["headgate.dead.reason"])
    assert [] == await member.receive(wait_s=1)


async def test_without_a_dead_letter_queue_it_comes_for_as_long_as_it_fails(world: CaseWorld) -> None:
    queue = await world.queue(max_receives=2, visibility_s=30)
    member = await queue.member()
    await member.put_one()
    for number in range(1, 6):
        given = await member.one()
        assert number == given.attempt
        settle = NackDelivery(given.receipt) if number % 2 else DeadLetterDelivery(given.receipt, reason="no")
        await member.settle(settle)
    await member.ack(await member.one())


async def test_attempts_survive_the_death_of_the_owner(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, visibility_s=1)
    first = await queue.member("first")
    message_id = await first.put_one()
    assert [1, 2] == [(await first.one()).attempt for _ in range(2)]
    first.kill()
    second = await queue.member("second")
    given = await second.one(wait_s=40)
    assert (message_id, 2) == (given.message_id, given.attempt), "the first counts; of the second its owner died"
    await second.ack(given)


async def test_a_message_that_kills_its_process_is_charged_and_no_other(world: CaseWorld) -> None:
    queue = await world.queue(lanes=1, dead_letters=True, max_receives=2)
    producer = await queue.member("producer")
    poison, *others = await producer.put(NewMessage(b"poison"), NewMessage(b"1"), NewMessage(b"2"))
    done: list[str] = []
    workers = [await queue.member("worker")]
    while len(workers) <= DEATHS_OF_TWO or len(done) < len(others):
        worker = workers[-1]
        deliveries = await worker.receive(2, wait_s=KNOWN_TO_BE_DEAD_S)
        assert deliveries, "nothing came again"
        for given in deliveries:
            if given.message_id == poison:
                worker.kill()
                workers.append(await queue.member(f"worker-{len(workers)}"))
                break
            assert 1 == given.attempt, "charged for another's fault"
            assert [Settled.DONE] == await worker.ack(given)
            done.append(given.message_id)
    assert sorted(others) == sorted(done)
    assert queue.dead_letters is not None
    dead = await (await queue.dead_letters.member("digger")).one(wait_s=KNOWN_TO_BE_DEAD_S)
    assert (poison, "2") == (dead.message_id, dead.attributes["headgate.dead.attempts"])
    assert DEATHS_OF_TWO == queue.ledger.times(poison)


@pytest.mark.parametrize("delay_s", [0, 8])
async def test_a_dead_letter_is_one_however_its_owner_ends(world: CaseWorld, delay_s: int) -> None:
    queue = await world.queue(lanes=1, dead_letters=True, max_receives=2, visibility_s=30)
    first = await queue.member("first")
    message_id = await first.put_one()
    await first.settle(NackDelivery((await first.one()).receipt, delay_us=delay_s * SECOND_US))
    await first.settle(NackDelivery((await first.one()).receipt))
    first.kill()
    second = await queue.member("second")
    assert queue.dead_letters is not None
    digger = await queue.dead_letters.member("digger")
    assert [] == await second.receive(wait_s=queue.terms.lease_s + 3)
    dead = await digger.one()
    assert message_id == dead.message_id
    await digger.ack(dead)
    assert [] == await digger.receive(wait_s=1)
