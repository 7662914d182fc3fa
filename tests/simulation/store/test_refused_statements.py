"""A store that refuses for a while, as when the rights of a role are revoked by mistake and granted again: nothing
ends for good, and what one lane meets concerns no other."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.contract import NewMessage
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.lane_set import LaneSet
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.errors import EnvironmentProblem, HeadgateError, OperationRefused
from headgate.store.model.statements import Insert, Select
from headgate.store.store import OutcomeUnknown, StatementFailed
from tests.simulation.lanes.sharing_members import SHARED, Member, begin, holding
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import DeliveryLog, check_delivered, until_all_settled

KINDS = [
    OperationRefused("Cassandra's role may not do this"),
    EnvironmentProblem("The table in Cassandra differs from its expected schema"),
    StatementFailed("The driver failed"),
]


async def put_steadily(queue: Queue, *, every_s: float = 0.1) -> asyncio.Task[None]:
    """A producer whose own rights stay."""
    client = queue.client("producer")
    client.process.start(queue.keep_fresh(client))

    async def put_all() -> None:
        number = 0
        while True:
            await client.process.start(queue.put(client, NewMessage(b"%d" % number)))
            number += 1
            await asyncio.sleep(every_s)

    return asyncio.get_running_loop().create_task(put_all())


def refuse(members: list[Member], error: HeadgateError | None) -> None:
    """Answer all statements of these members with an error from now on; None: run them again."""

    async def gate(statement: Any) -> None:
        if error is not None:
            raise error

    for each in members:
        each.store.gate = gate


async def handled_by(queue: Queue, objects: DeliveryLog, member: Member, *, within_s: float) -> bool:
    """Whether a member is given anything from now on."""
    before = Counter(name for name, _ in objects.deliveries)[member.process.name]
    until_s = queue.world.now_s() + within_s
    while queue.world.now_s() < until_s:
        if Counter(name for name, _ in objects.deliveries)[member.process.name] > before:
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_two_workers_whose_rights_are_gone_for_eight_seconds_work_within_five_of_their_return(
    error: HeadgateError, seed: int
) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        members = await begin(queue, objects, 2)
        await holding(members, [3, 3], within_s=30)
        putting = await put_steadily(queue)
        await asyncio.sleep(5)
        refuse(members, error)
        await asyncio.sleep(8)
        refuse(members, None)
        assert [True, True] == await asyncio.gather(
            *(handled_by(queue, objects, each, within_s=5) for each in members)
        )
        assert [] == [loop.why_dead() for each in members for loop in loops_of(each) if loop.why_dead()]
        await asyncio.sleep(5)
        putting.cancel()
        await until_all_settled(queue, objects, within_s=120)
        await holding(members, [3, 3], within_s=30)
        assert set() == set(queue.acknowledged) - {each.message_id for _, each in objects.deliveries}

    simulate(scenario, seed, settings=replace(SHARED, part_us=60 * SECOND))


def test_a_read_that_is_refused_ends_no_tenure() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        (member,) = await begin(queue, objects, 1)
        await holding([member], [6], within_s=30)
        putting = await put_steadily(queue)
        await asyncio.sleep(5)
        before = epochs_of(member)

        async def gate(statement: Any) -> None:
            if isinstance(statement, Select) and statement.shape.table.name in ("timeline_work", "timeline_parts"):
                raise OperationRefused("too many tombstones")

        member.store.gate = gate
        await asyncio.sleep(4)
        member.store.gate = None
        assert await handled_by(queue, objects, member, within_s=3)
        assert before == epochs_of(member)
        putting.cancel()
        await until_all_settled(queue, objects, within_s=120)
        check_delivered(queue, objects)

    simulate(scenario, settings=replace(SHARED, part_us=60 * SECOND))


def epochs_of(member: Member) -> dict[LaneName, int]:
    """The lease term of each lane that a member holds."""
    assert member.engine is not None
    return {name: lane.lease_term.epoch for name, lane in member.engine.lanes.held.items()}


def loops_of(member: Member) -> list[Any]:
    """The background loops of a member."""
    assert member.engine is not None
    return member.engine.lanes.loops


def test_a_lane_whose_record_cannot_be_read_keeps_no_other_lane_from_being_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        client = queue.client("producer")
        client.process.start(queue.keep_fresh(client))
        members = await begin(queue, objects, 0)
        ids: list[str] = []
        for number in range(60):
            ids += await client.process.start(queue.put(client, NewMessage(b"%d" % number))) or []
        broken = MessagePlace.from_bytes(id_bytes(ids[0])).row
        key = {"queue": queue.settings.queue, "generation": 1, "shard": broken.shard}
        key |= {"part": broken.part(queue.settings.part_us), "writer": client.host.uuid(), "piece": 0}
        now_us = client.host.now_us()
        record = Insert(queue.settings.tables.settled, {**key, "facts": b"\x09"}, timestamp_us=now_us, ttl_s=3600)
        await client.process.start(client.store.write(record))
        members = [Member(queue, "member", objects)]
        members[0].start()
        await holding(members, [5], within_s=20)
        await asyncio.sleep(30)
        assert members[0].engine is not None
        assert (1, broken.shard) not in members[0].engine.lanes.held
        local = {each for each in ids if MessagePlace.from_bytes(id_bytes(each)).row.shard == broken.shard}
        assert set(ids) - local == {each.message_id for _, each in objects.deliveries}
        taken = [statement for statement in members[0].store.sent if "taken" in repr(statement)]
        assert len(taken) < 15, "a lane that cannot be taken is tried at growing intervals"

    with caplog.at_level(logging.ERROR, logger="headgate.lanes"):
        simulate(scenario, settings=replace(SHARED, part_us=60 * SECOND))
    logged = [record for record in caplog.records if record.getMessage() == "a lane cannot be acquired"]
    assert 1 == len(logged)


def test_a_bug_in_the_loop_that_takes_lanes_ends_it_only_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = LaneSet._take_free

    async def broken(keeper: LaneSet) -> None:
        raise KeyError("nobody thought of this")

    async def scenario(queue: Queue) -> None:
        monkeypatch.setattr(LaneSet, "_take_free", broken)
        members = await begin(queue, DeliveryLog(), 1)
        await asyncio.sleep(70)
        dead = [loop.why_dead() for loop in loops_of(members[0])]
        assert [True, False, False] == [reason is not None for reason in dead]
        assert "nobody thought of this" in str(dead[0])
        monkeypatch.setattr(LaneSet, "_take_free", real)
        await holding(members, [6], within_s=5)

    with caplog.at_level(logging.ERROR, logger="headgate.lanes"):
        simulate(scenario, settings=SHARED)
    logged = [record for record in caplog.records if record.name == "headgate.lanes"]
    assert ["background loop failed; restarting"] == [record.getMessage() for record in logged]
    assert SHARED.name == logged[0].__dict__["queue"]
    assert "nobody thought of this" in str(logged[0].exc_info)


def test_a_lane_that_is_stopped_while_the_clock_is_in_doubt_ends_nothing_else() -> None:
    async def scenario(queue: Queue) -> None:
        objects = DeliveryLog()
        members = await begin(queue, objects, 2)
        await holding(members, [3, 3], within_s=30)
        engine: TimelineQueue | None = members[0].engine
        assert engine is not None
        name, lane = next(iter(engine.lanes.held.items()))
        real = members[0].host.now_us
        object.__setattr__(members[0].host, "now_us", in_doubt)
        lane._end("stopped")
        await asyncio.sleep(3)
        object.__setattr__(members[0].host, "now_us", real)
        assert name not in engine.lanes.held
        assert 1 == engine.lanes.stops
        assert engine.lanes.loops[0].is_running
        putting = await put_steadily(queue)
        await asyncio.sleep(20)
        putting.cancel()
        await until_all_settled(queue, objects, within_s=120)
        check_delivered(queue, objects)

    simulate(scenario, settings=replace(SHARED, part_us=60 * SECOND))


def in_doubt() -> int:
    """A clock that is not to be relied on."""
    from headgate.store.clock.clock import ClockNotTrusted

    raise ClockNotTrusted("in doubt")


@pytest.mark.parametrize("error", KINDS[:2], ids=lambda each: type(each).__name__)
def test_a_put_that_is_refused_is_refused_at_once_and_nothing_is_stored(error: HeadgateError) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        before_s = queue.world.now_s()
        client.store.gate = refusing(error)
        with pytest.raises(type(error), match=error.message):
            await client.process.start(client.producer.put([NewMessage(b"refused")]))
        assert queue.world.now_s() < before_s + 1
        client.store.gate = None
        await client.process.start(client.producer.put([NewMessage(b"allowed")]))
        assert 1 == len(await client.store.read(rows_of_work(queue, client)))

    simulate(scenario, settings=replace(SHARED, generations=(GenerationSettings(1, 1),), part_us=3600 * SECOND))


def test_a_put_that_is_refused_when_it_is_sent_again_may_have_been_written() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")

        async def gate(statement: Any) -> None:
            if not isinstance(statement, Select):
                client.store.gate = refusing(KINDS[0])
                raise OutcomeUnknown("held back in this test")

        client.store.gate = gate
        with pytest.raises(OutcomeUnknown):
            await client.process.start(client.producer.put([NewMessage(b"perhaps")]))

    simulate(scenario, settings=SHARED)


def refusing(error: HeadgateError) -> Any:
    """A gate that refuses every write."""

    async def gate(statement: Any) -> None:
        if not isinstance(statement, Select):
            raise error

    return gate


def rows_of_work(queue: Queue, client: Client) -> Select:
    """All rows of the one partition that a test puts into."""
    part = client.process.clock.wall_us() // queue.settings.part_us
    key = {"queue": queue.settings.queue, "generation": 1, "part": part, "sub": 0, "shard": 0}
    return Select(queue.settings.tables.work, key)
