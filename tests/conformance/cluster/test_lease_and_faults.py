"""Leases, throttling, answers that never come, and events."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate_operator.kinds import EVENT
from headgate_operator.port import Denial, Denied, LeaderLease, Note
from tests.conformance.cluster.documents import queue, queue_at
from tests.conformance.cluster.grounds import Ground, applied, denied, page


def lease_of(ground: Ground, holder: str) -> LeaderLease:
    return LeaderLease(
        ground.namespace, "headgate-operator", holder, 15, 1_700_000_000_000_000, 1_700_000_000_250_000
    )


def written(answer: LeaderLease | Denied) -> LeaderLease:
    assert isinstance(answer, LeaderLease), str(answer)
    return answer


async def test_49_a_lease_is_taken_at_the_version_that_was_seen(ground: Ground) -> None:
    assert denied(await ground.port.read_lease(ground.namespace, "headgate-operator")).denial is Denial.NOT_FOUND
    made = written(await ground.port.write_lease(lease_of(ground, "a")))
    assert replace(made, version=None) == lease_of(ground, "a")
    renewed = written(await ground.port.write_lease(replace(made, renewed_us=1_700_000_005_000_001)))
    assert written(await ground.port.read_lease(ground.namespace, "headgate-operator")) == renewed
    taken = written(await ground.port.write_lease(replace(renewed, holder="b", transitions=1)))
    assert (taken.holder, taken.transitions) == ("b", 1)
    late = denied(await ground.port.write_lease(replace(renewed, renewed_us=1_700_000_010_000_000)))
    assert (late.denial, late.reason) == (Denial.CONFLICT, "Conflict")


async def test_49_a_lease_that_is_given_up_has_no_holder(ground: Ground) -> None:
    made = written(await ground.port.write_lease(lease_of(ground, "a")))
    left = written(await ground.port.write_lease(replace(made, holder="", ttl_s=1)))
    assert (left.holder, left.ttl_s) == ("", 1)


async def test_50_of_two_takers_one_wins(ground: Ground) -> None:
    takers = [lease_of(ground, name) for name in ("a", "b")]
    first = await asyncio.gather(*(ground.port.write_lease(lease) for lease in takers))
    assert sorted(type(answer).__name__ for answer in first) == ["Denied", "LeaderLease"]
    (held,) = [answer for answer in first if isinstance(answer, LeaderLease)]
    again = [replace(held, holder=name, transitions=1) for name in ("c", "d")]
    second = await asyncio.gather(*(ground.port.write_lease(lease) for lease in again))
    assert sorted(type(answer).__name__ for answer in second) == ["Denied", "LeaderLease"]
    assert [answer.denial for answer in second if isinstance(answer, Denied)] == [Denial.CONFLICT]


async def test_51_a_client_that_asks_too_much_is_reported_when_to_come_again(ground: Ground) -> None:
    async with ground.throttled() as port:

        async def is_throttled() -> Denied | None:
            asked = [port.apply(queue(ground), manager="one") for _ in range(20)]
            answers = [denied(answer) for answer in await asyncio.gather(*asked)]
            return next((answer for answer in answers if answer.status == 429), None)

        refused = await ground.until(is_throttled)
    assert (refused.denial, refused.retry_after_s, refused.may_have_landed) == (Denial.THROTTLED, 1.0, False)
    assert denied(await ground.port.get(queue_at(ground))).denial is Denial.NOT_FOUND


async def test_52_what_was_not_answered_may_have_landed(ground: Ground) -> None:
    async with ground.unanswered() as port:
        unknown = denied(await port.apply(queue(ground, spec={"shards": 9}), manager="one", within_s=2))
    assert (unknown.denial, unknown.status, unknown.may_have_landed) == (Denial.UNKNOWN, 0, True)
    landed = applied(await ground.port.get(queue_at(ground)))
    assert landed.document["spec"]["shards"] == 9
    again = applied(await ground.port.apply(queue(ground, spec={"shards": 9}), manager="one"))
    assert (again.uid, again.version) == (landed.uid, landed.version)


async def test_52_an_event_reported_twice_is_one(ground: Ground) -> None:
    made = applied(await ground.port.apply(queue(ground), manager="one"))
    note = Note(queue_at(ground), made.uid, "Ready", "all is as it should be", 1_700_000_000_000_000)
    assert await ground.port.emit(note) is None
    assert denied(await ground.port.emit(note)).reason == "AlreadyExists"
    report = page(await ground.port.list(EVENT, ground.namespace)).items
    assert [
        (one["reason"], one["note"], one["regarding"]["uid"]) for one in report if one.get("note") == note.message
    ] == [("Ready", "all is as it should be", made.uid)]
