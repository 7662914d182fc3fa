"""Leases, throttling, answers that never come, and events."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate_operator.cluster.port import Denial, Denied, LeaderLease, Note
from headgate_operator.model.kinds import EVENT
from tests.contract.cluster.documents import queue, queue_at
from tests.contract.cluster.worlds import CaseWorld, applied, denied, page


def lease_of(world: CaseWorld, holder: str) -> LeaderLease:
    return LeaderLease(world.namespace, "headgate-operator", holder, 15, 1_700_000_000_000_000, 1_700_000_000_250_000)


def written(answer: LeaderLease | Denied) -> LeaderLease:
    assert isinstance(answer, LeaderLease), str(answer)
    return answer


async def test_49_a_lease_is_taken_at_the_version_that_was_seen(world: CaseWorld) -> None:
    assert denied(await world.port.read_lease(world.namespace, "headgate-operator")).denial is Denial.NOT_FOUND
    made = written(await world.port.write_lease(lease_of(world, "a")))
    assert replace(made, version=None) == lease_of(world, "a")
    renewed = written(await world.port.write_lease(replace(made, renewed_us=1_700_000_005_000_001)))
    assert written(await world.port.read_lease(world.namespace, "headgate-operator")) == renewed
    taken = written(await world.port.write_lease(replace(renewed, holder="b", transitions=1)))
    assert (taken.holder, taken.transitions) == ("b", 1)
    late = denied(await world.port.write_lease(replace(renewed, renewed_us=1_700_000_010_000_000)))
    assert (late.denial, late.reason) == (Denial.CONFLICT, "Conflict")


async def test_49_a_lease_that_is_given_up_has_no_holder(world: CaseWorld) -> None:
    made = written(await world.port.write_lease(lease_of(world, "a")))
    left = written(await world.port.write_lease(replace(made, holder="", ttl_s=1)))
    assert (left.holder, left.ttl_s) == ("", 1)


async def test_50_of_two_takers_one_wins(world: CaseWorld) -> None:
    takers = [lease_of(world, name) for name in ("a", "b")]
    first = await asyncio.gather(*(world.port.write_lease(lease) for lease in takers))
    assert sorted(type(answer).__name__ for answer in first) == ["Denied", "LeaderLease"]
    (held,) = [answer for answer in first if isinstance(answer, LeaderLease)]
    again = [replace(held, holder=name, transitions=1) for name in ("c", "d")]
    second = await asyncio.gather(*(world.port.write_lease(lease) for lease in again))
    assert sorted(type(answer).__name__ for answer in second) == ["Denied", "LeaderLease"]
    assert [answer.denial for answer in second if isinstance(answer, Denied)] == [Denial.CONFLICT]


async def test_51_a_client_that_asks_too_much_is_reported_when_to_come_again(world: CaseWorld) -> None:
    async with world.throttled() as port:

        async def is_throttled() -> Denied | None:
            asked = [port.apply(queue(world), manager="one") for _ in range(20)]
            answers = [denied(answer) for answer in await asyncio.gather(*asked)]
            return next((answer for answer in answers if answer.status == 429), None)

        refused = await world.until(is_throttled)
    assert (refused.denial, refused.retry_after_s) == (Denial.THROTTLED, 1.0)
    assert denied(await world.port.get(queue_at(world))).denial is Denial.NOT_FOUND


async def test_52_what_was_not_answered_may_have_landed(world: CaseWorld) -> None:
    async with world.unanswered() as port:
        unknown = denied(await port.apply(queue(world, spec={"shards": 9}), manager="one", within_s=2))
    assert (unknown.denial, unknown.status) == (Denial.UNKNOWN, 0)
    landed = applied(await world.port.get(queue_at(world)))
    assert landed.document["spec"]["shards"] == 9
    again = applied(await world.port.apply(queue(world, spec={"shards": 9}), manager="one"))
    assert (again.uid, again.version) == (landed.uid, landed.version)


async def test_52_an_event_reported_twice_is_one(world: CaseWorld) -> None:
    made = applied(await world.port.apply(queue(world), manager="one"))
    note = Note(queue_at(world), made.uid, "Ready", "all is as it should be", 1_700_000_000_000_000)
    assert await world.port.emit(note) is None
    assert denied(await world.port.emit(note)).reason == "AlreadyExists"
    report = page(await world.port.list(EVENT, world.namespace)).items
    assert [
        (one["reason"], one["note"], one["regarding"]["uid"]) for one in report if one.get("note") == note.message
    ] == [("Ready", "all is as it should be", made.uid)]
