"""Cancel and reschedule: a message whose cancel was answered is never delivered; else it is too late."""

from __future__ import annotations

import pytest

from headgate.engines.contract import Cancelled, MessageState, NewMessage
from headgate.errors import InvalidRequest
from tests.contract.engines.terms import SECOND_US
from tests.contract.engines.worlds import CaseWorld


async def test_what_was_answered_cancelled_is_never_delivered(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    due_us = member.in_us(3)
    ids = await member.put(*(NewMessage(b"%d" % number, due_us=due_us) for number in range(4)))
    assert Cancelled.CANCELLED is await member.cancel(ids[1])
    other = await queue.member("other")
    assert Cancelled.CANCELLED is await other.cancel(ids[2])
    result = await member.take(2)
    assert {ids[0], ids[3]} == {each.message_id for each in result}
    await member.ack(*result)
    assert [] == await member.receive(wait_s=1)
    assert MessageState.CANCELLED is (await member.where(ids[1])).fate


async def test_a_process_that_cancels_twice_is_reported_the_same_twice(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    message_id = await member.put_one(due_us=member.in_us(60))
    assert [Cancelled.CANCELLED] * 2 == [await member.cancel(message_id) for _ in range(2)]


async def test_it_is_too_late_once_it_was_delivered_or_settled(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    message_id = await member.put_one()
    given = await member.one()
    assert Cancelled.TOO_LATE is await member.cancel(message_id)
    await member.ack(given)
    assert Cancelled.TOO_LATE is await member.cancel(message_id)


async def test_what_is_no_id_of_a_message_is_refused(world: CaseWorld) -> None:
    member = await (await world.queue()).member()
    for text in ("", "nonsense", "!!"):
        with pytest.raises(InvalidRequest):
            await member.cancel(text)
        with pytest.raises(InvalidRequest):
            await member.where(text)


@pytest.mark.parametrize("new_s", [1.5, 6])
async def test_what_is_rescheduled_comes_at_its_new_time_alone(world: CaseWorld, new_s: float) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    message_id = await member.put_one(b"moved", due_us=member.in_us(4), attributes={"a": "b"})
    due_us = member.in_us(new_s)
    answer, new_id = await member.reschedule(message_id, due_us)
    assert (Cancelled.CANCELLED, True) == (answer, new_id not in (None, message_id))
    given = await member.one()
    assert (new_id, b"moved", {"a": "b"}) == (given.message_id, given.payload, dict(given.attributes))
    assert member.now_us() >= due_us
    await member.ack(given)
    assert [] == await member.receive(wait_s=3)


async def test_a_reschedule_that_comes_too_late_changes_nothing(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    message_id = await member.put_one()
    given = await member.one()
    assert (Cancelled.TOO_LATE, None) == await member.reschedule(message_id, member.in_us(60))
    await member.ack(given)
    assert [] == await member.peek()


async def test_a_time_that_cannot_be_kept_is_refused_and_the_message_stays(world: CaseWorld) -> None:
    queue = await world.queue(visibility_s=30)
    member = await queue.member()
    message_id = await member.put_one(due_us=member.in_us(2))
    with pytest.raises(InvalidRequest, match="can store"):
        await member.place.run(member.engine.reschedule(message_id, member.now_us() + 10**9 * 4 * SECOND_US))
    given = await member.one()
    assert message_id == given.message_id
