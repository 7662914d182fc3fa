"""The position of a lane that nobody works is moved over what bulk jobs settled: over that, and over nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.engines.contract import Settled
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.lane_records import read_passed
from headgate.engines.timeline.repair.skip_settled import pass_over_settled
from headgate.store.model.positions import position_order
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.test_timeline_lending import Job, Scene, scene_of
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

ONE_LANE = replace(WORKED, generations=(GenerationSettings(1, 1),))


async def settled_by_a_job(scene: Scene, job: Job, *, leave: frozenset[int] = frozenset()) -> list[bytes]:
    """Borrow all there is, settle all but some rows, give back; what was left."""
    now_us = job.client.process.clock.wall_us()
    reserved = await job.process.start(job.begin(job.reservation(0, now_us)))
    rows = await job.process.start(job.read(reserved))
    kept = [row for at, row in enumerate(rows) if at not in leave]
    assert Settled.DONE is await job.process.start(job.settle(reserved, kept))
    assert await job.process.start(job.reserver.give_back(job.reserved))
    return [payload for payload in job.worked if payload not in job.done]


async def passed_over(queue: Queue, name: str) -> bool:
    """By a process of its own."""
    client = queue.client(name)
    return await client.process.start(pass_over_settled(client.host, client.producer.sender, (1, 0)))


async def rest_of(queue: Queue) -> list[bytes]:
    """The messages that a consumer receives afterwards."""
    consumer = Consumer(queue, "after", DeliveryLog())
    engine = await consumer.process.start(consumer.open())
    matches = []

    async def work() -> None:
        for _ in range(15):
            matches.extend(await engine.receive(50, wait_us=SECOND, visibility_us=60 * SECOND))

    await consumer.process.start(work())
    return sorted(each.payload for each in matches)


@pytest.mark.parametrize(
    "left", [frozenset[int](), frozenset({0}), frozenset({5}), frozenset({5, 11}), frozenset({11})]
)
def test_it_stops_before_the_first_message_that_is_not_settled(left: frozenset[int]) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(12)
        await asyncio.sleep(2)
        job = Job(queue)
        open_ = await settled_by_a_job(scene, job, leave=left)
        before = await scene.lane()
        assert await passed_over(queue, "passer") is (0 not in left)
        after = await scene.lane()
        assert (None, None) == (after.lock, after.reserved)
        if 0 not in left:
            assert position_order(after.last) > position_order(before.last)
        assert position_order(after.last) <= position_order(after.read_to) or 0 in left
        assert sorted(open_) == await rest_of(queue)
        assert sorted(put[at] for at in left) == sorted(open_)

    simulate(scenario, settings=ONE_LANE)


def test_a_lane_that_somebody_works_or_has_lent_is_left_alone() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        await scene.put(5)
        await asyncio.sleep(2)
        job = Job(queue)
        now_us = job.client.process.clock.wall_us()
        await job.process.start(job.begin(job.reservation(0, now_us)))
        assert not await passed_over(queue, "while lent")
        assert await job.process.start(job.reserver.give_back(job.reserved))
        consumer = Consumer(queue, "owner", DeliveryLog())
        engine = await consumer.process.start(consumer.open())
        await consumer.process.start(engine.receive(1, wait_us=20 * SECOND))
        assert not await passed_over(queue, "while owned")
        await consumer.process.start(engine.close())

    simulate(scenario, settings=ONE_LANE)


def test_what_was_passed_is_on_record_so_that_repair_puts_none_of_it_again() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        began_us = queue.client("clock").process.clock.wall_us()
        await scene.put(12)
        await asyncio.sleep(2)
        await settled_by_a_job(scene, Job(queue))
        assert await passed_over(queue, "passer")
        client = queue.client("reader")
        parts = range(
            began_us // queue.settings.part_us, client.process.clock.wall_us() // queue.settings.part_us + 1
        )
        record = [await client.process.start(read_passed(client.host, queue.settings, 1, 0, part)) for part in parts]
        dues = {row.place.due for row in Disks(queue.cluster, queue.settings).rows()}
        assert 12 == sum(len(of_part.among(dues)) for of_part in record)
        assert [] == await rest_of(queue)

    simulate(scenario, settings=ONE_LANE)
