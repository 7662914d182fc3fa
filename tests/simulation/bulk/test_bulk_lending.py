"""Lanes for bulk jobs in the simulated world: what a job may work, beside consumers, and after its range
reservation."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headgate import Put
from headgate.client.message import Message
from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.engines.lanes.reservation_by_job import RangeTaken
from headgate_spark.engines.contract import Budget, RangePlan
from headgate_spark.engines.timeline.entry import ENGINE
from headgate_spark.engines.timeline.lanes import TimelineLane, TimelineLending
from headgate_spark.jobs.decide_batch import BatchDecision, BatchPlan, Reported, decide_outcomes
from headgate_spark.schemas import OF_JOBS
from tests.simulation.bulk.bulk_world import AS_TASKS
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text
from tests.simulation.sdk.test_sdk import opened, receive_all, simulate

JOB, OTHER = UUID(int=7), UUID(int=8)
SECOND = 1_000_000
MINUTE = 60 * SECOND
ALL = Budget(messages_max=100_000, bytes_max=1 << 30, rows_max=100_000)


class Driver:
    """The driver of a job, and its tasks, in one process."""

    def __init__(self, shop: Shop, queue: Queue, program: Program, job: UUID = JOB) -> None:
        self.program = program
        self.queue = queue
        self.lending = TimelineLending(queue, job)

    async def reserve(self, budget: Budget = ALL, *, for_us: int = MINUTE) -> list[tuple[TimelineLane, RangePlan]]:
        """The next range of each lane."""
        return await self.program.process.start(self._reserve(budget, for_us))

    async def _reserve(self, budget: Budget, for_us: int) -> list[tuple[TimelineLane, RangePlan]]:
        now_us = self.queue.now_us()
        matches = []
        for lane in await self.lending.lanes(from_us=None, until_us=now_us):
            preview = await lane.preview(budget)
            if preview is not None:
                matches.append((lane, await lane.reserve(preview, now_us + for_us)))
        return matches

    async def read(self, plans: list[tuple[TimelineLane, RangePlan]]) -> dict[str, bytes]:
        """The payloads that tasks read, by id."""
        return await self.program.process.start(self._read(plans))

    async def _read(self, plans: list[tuple[TimelineLane, RangePlan]]) -> dict[str, bytes]:
        entries: dict[str, bytes] = {}
        for lane, plan in plans:
            async for batch in ENGINE.scan.read_picked(self.queue, AS_TASKS, lane.name, plan.picks):
                for row in batch.to_pylist():
                    assert row["id"] not in entries
                    entries[row["id"]] = row["payload"]
        return entries

    async def settle(self, plans: list[tuple[TimelineLane, RangePlan]]) -> set[Settled]:
        """All of it."""
        works = [
            self.program.process.start(lane.settle(plan, {at: pick.mask for at, pick in enumerate(plan.picks)}))
            for lane, plan in plans
        ]
        return set(await asyncio.gather(*works))

    async def give_back(self, plans: list[tuple[TimelineLane, RangePlan]]) -> None:
        """The owners' again."""
        for lane, plan in plans:
            await self.program.process.start(lane.give_back(plan))


async def driver_of(shop: Shop, name: str = "driver", job: UUID = JOB) -> Driver:
    """One with a process of its own."""
    program = shop.program(name)
    return Driver(shop, await opened(program), program, job)


async def put(shop: Shop, count: int, *, first: int = 0) -> dict[str, bytes]:
    """Messages of a producer of its own, which are due by now; payloads by id."""
    program = shop.program(f"producer {first}")
    queue = await opened(program)
    payloads = [b"%d" % number for number in range(first, first + count)]
    ids = await program.process.start(queue.put_many([Put(each) for each in payloads]))
    await asyncio.sleep(2)
    return dict(zip(ids, payloads, strict=True))


def everything_done(plans: list[tuple[TimelineLane, RangePlan]], ids: list[str]) -> BatchDecision:
    """The answer of a handler that calls all of these done."""
    plan = BatchPlan(tuple(one for _, one in plans))
    message = [Reported(row, "done", 1 << index) for row, index in map(ENGINE.ids.split, ids)]
    return decide_outcomes(plan, ENGINE.ids, message)


def test_a_job_reads_each_message_once_knows_it_by_its_id_and_what_it_settles_nobody_gets() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        sent = await put(shop, 90)
        driver = await driver_of(shop)
        plans = await driver.reserve()
        result = await driver.read(plans)
        assert sent == result
        assert result == await driver.read(plans), "a task that is tried again reads the same"
        assert (90, 0, 0) == everything_done(plans, list(sent)).counts
        assert {Settled.DONE} == await driver.settle(plans)
        await driver.give_back(plans)
        more = await put(shop, 3, first=90)
        consumer = shop.program("consumer")
        queue = await opened(consumer)
        observations: list[Message] = []
        await consumer.process.start(receive_all(consumer, queue, observations, until=3))
        assert set(more) == {message.id for message in observations}

    simulate(scenario)


def test_a_small_budget_borrows_a_lane_range_by_range_and_leaves_nothing_out() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        sent: dict[str, bytes] = {}
        for turn in range(6):
            sent |= await put(shop, 5, first=5 * turn)
        driver = await driver_of(shop)
        (lane,) = await driver.program.process.start(_lanes(driver.lending, driver.queue.now_us()))
        entries: dict[str, bytes] = {}
        ranges = 0
        budget = Budget(messages_max=8, bytes_max=1 << 30, rows_max=100)
        while (preview := await driver.program.process.start(lane.preview(budget))) is not None:
            deadline_us = driver.queue.now_us() + MINUTE
            plan = await driver.program.process.start(lane.reserve(preview, deadline_us))
            entries |= await driver.read([(lane, plan)])
            await driver.settle([(lane, plan)])
            await driver.give_back([(lane, plan)])
            ranges += 1
        assert sent == entries
        assert 2 <= ranges

    simulate(scenario)


async def _lanes(lending: TimelineLending, until_us: int) -> list[TimelineLane]:
    return list(await lending.lanes(from_us=None, until_us=until_us))


def test_while_a_range_is_lent_consumers_get_nothing_of_it_and_another_job_has_to_wait() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        sent = await put(shop, 30)
        driver, rival = await driver_of(shop), await driver_of(shop, "rival", OTHER)
        consumer = shop.program("consumer")
        queue = await opened(consumer)
        plans = await driver.reserve(for_us=20 * SECOND)
        with pytest.raises(RangeTaken):
            await rival.reserve()
        assert [] == await consumer.process.start(queue.receive(50, wait=8))
        await driver.give_back(plans)
        observations: list[Message] = []
        await consumer.process.start(receive_all(consumer, queue, observations, until=30))
        assert set(sent) == {message.id for message in observations}

    simulate(scenario)


def test_a_later_run_of_the_job_takes_over_its_own_range_at_once() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        sent = await put(shop, 30)
        first = await driver_of(shop)
        await first.reserve(for_us=10 * MINUTE)
        first.program.process.kill()
        heir = await driver_of(shop, "heir")
        plans = await heir.reserve()
        assert sent == await heir.read(plans)
        assert {Settled.DONE} == await heir.settle(plans)

    simulate(scenario)


def test_what_was_committed_is_settled_after_the_loan_where_nobody_got_it_in_between() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        sent = await put(shop, 40)
        driver = await driver_of(shop)
        ((lane, plan),) = await driver.reserve(for_us=10 * SECOND)
        consumer = shop.program("consumer")
        queue = await opened(consumer)
        await asyncio.sleep(14)
        taken: list[Message] = []
        await consumer.process.start(_some(queue, taken, 10))
        masks = {at: pick.mask for at, pick in enumerate(plan.picks)}
        assert Settled.STALE is await driver.program.process.start(lane.settle(plan, masks))
        deadline_us = driver.queue.now_us() + MINUTE
        how = await driver.program.process.start(driver.lending.settle_again(plan, masks, deadline_us))
        assert Settled.DONE is how
        assert [] == await consumer.process.start(queue.receive(50, wait=8))
        assert {message.id for message in taken} < set(sent)

    simulate(scenario)


async def _some(queue: Queue, taken: list[Message], count: int) -> None:
    while len(taken) < count:
        for message in await queue.receive(count - len(taken), wait=10):
            await message.ack()
            taken.append(message)


def test_history_reports_each_message_once_settled_or_not_and_also_what_was_tried_again() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 2, visibilityTimeout: 5s}"))
        sent = await put(shop, 20)
        consumer = shop.program("consumer")
        queue = await opened(consumer)
        await consumer.process.start(_settled_and_returned(queue, 20))
        await asyncio.sleep(120)
        driver = await driver_of(shop)
        report = await driver.program.process.start(_history(driver.queue))
        assert sorted(sent.values()) == sorted(report.values())
        assert set(sent) == set(report)

    simulate(scenario)


def test_history_for_jobs_leaves_out_what_was_cancelled() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 2}"))
        sent = await put(shop, 5)
        program = shop.program("canceller")
        queue = await opened(program)
        await program.process.start(_cancelled(queue))
        await asyncio.sleep(90)
        driver = await driver_of(shop)
        assert sent == await driver.program.process.start(_history(driver.queue))

    simulate(scenario)


async def _cancelled(queue: Queue) -> None:
    assert await queue.cancel(await queue.put(b"never", delay=60))


async def _settled_and_returned(queue: Queue, count: int) -> None:
    """Half is settled, half comes again much later, at another place."""
    observation = 0
    while observation < count:
        for message in await queue.receive(50, wait=10):
            observation += 1
            await (message.ack() if observation % 2 else message.nack(delay=60))
    await asyncio.sleep(65)
    await queue.receive(50, wait=5)


async def _history(queue: Queue) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    for split in await ENGINE.scan.history(queue, 0, queue.now_us()):
        async for batch in ENGINE.scan.read_history(queue, split, OF_JOBS):
            for row in batch.to_pylist():
                assert row["id"] not in entries
                entries[row["id"]] = row["payload"]
    return entries
