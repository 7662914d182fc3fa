"""A repairer dies at any statement, is one of two, or runs out of time: each late row is one message still."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from headgate.engines.contract import PassEnd, Repaired
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.repair.repair import Pass
from headgate.store.model.statements import Insert
from tests.kit.simulated_world import ProcessState
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    DAY_S,
    MINUTE_S,
    REPAIRED,
    Mender,
    index_rows,
    indexed,
    land,
    one_late,
    opened,
    place_of,
    resharded,
    retired,
    stamped,
)


@pytest.mark.parametrize("is_sent", [False, True])
def test_attack_D1_a_repairer_killed_at_any_statement_leaves_one_copy(is_sent: bool) -> None:
    for number in range(1, 60):
        if not simulate(partial(_is_killed_at, number=number, is_sent=is_sent), settings=REPAIRED):
            break
    assert 10 < number < 40


async def _is_killed_at(queue: Queue, *, number: int, is_sent: bool) -> bool:
    """Whether a pass has this number of statements; it dies with this one, and all has to come right."""
    ward = await one_late(queue)
    mender = Mender(queue, "killed")

    async def gate(statement: Any) -> None:
        if len(mender.store.sent) == number:
            if is_sent:
                queue.world.outside(0.0001, mender.process.kill)
                return
            mender.process.kill()
            await asyncio.sleep(1)

    mender.store.gate = gate
    mender.begin()
    await asyncio.sleep(15)
    if mender.process.state is ProcessState.RUNNING:
        return False
    for wait_s in (0, 2 * DAY_S):
        await asyncio.sleep(wait_s)
        assert PassEnd.DONE is (await ward.repair()).end
        await ward.work(20)
    assert [b"late"] == ward.payloads(), f"killed at statement {number}: {mender.store.sent[-1]}"
    return True


@pytest.mark.parametrize("is_ended", [False, True])
def test_two_repairers_at_once_make_one_message(is_ended: bool) -> None:
    class Always:
        def holds(self) -> bool:
            return True

    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        rows = [await indexed(client, stamped(client, b"%d" % each)) for each in range(10)]
        await ward.work(20)
        if is_ended:
            await resharded(queue, 8)
            await retired(queue, 1)
        await asyncio.sleep(2 * MINUTE_S)
        for row in rows:
            await land(queue, row)

        async def one(mender: Mender) -> Repaired:
            engine = TimelineQueue(mender.host, queue.settings, read_us=mender.process.clock.wall_us())
            leader: Any = Always()
            this = Pass(mender.host, queue.settings, engine.producer.sender, leader, deadline_us=2**62)
            return await this.run(dead_letters=None, keeper=None)

        menders = [Mender(queue, name) for name in ("one", "other")]
        done = await asyncio.gather(*(mender.process.start(one(mender)) for mender in menders))
        assert 10 <= sum(each.put_again for each in done)
        await ward.work(30)
        await ward.repair_to_the_end()
        assert [b"%d" % each for each in range(10)] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_second_repairer_leaves_the_queue_to_the_first() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        holder = Mender(queue, "holder")
        halted = asyncio.Event()

        async def gate(statement: Any) -> None:
            if len(holder.store.sent) == 8:
                await halted.wait()

        holder.store.gate = gate
        passing = holder.begin()
        await asyncio.sleep(1)
        assert PassEnd.BUSY is (await ward.repair()).end
        halted.set()
        assert PassEnd.DONE is (await passing).end
        assert PassEnd.DONE is (await ward.repair()).end

    simulate(scenario, settings=REPAIRED)


def test_a_pass_whose_time_is_up_resumes_where_it_stood() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        rows = []
        for each in range(5):
            rows.append(await indexed(client, stamped(client, b"%d" % each)))
            await asyncio.sleep(5)
        await ward.work(30)
        await asyncio.sleep(2 * MINUTE_S)
        for row in rows:
            await land(queue, row)
        stopped = await ward.repair(within_us=0)
        assert (PassEnd.STOPPED, 0) == (stopped.end, stopped.checked)
        assert stopped.oldest_owed_us == (rows[0].part + 1) * REPAIRED.part_us + REPAIRED.late_write_us
        mender = Mender(queue, "slow")

        async def gate(statement: Any) -> None:
            await asyncio.sleep(0.1)

        mender.store.gate = gate
        stopped = await mender.repair(within_us=3 * SECOND)
        assert PassEnd.STOPPED is stopped.end
        assert 0 < stopped.put_again < 5
        rest = await ward.repair()
        assert (PassEnd.DONE, 5 - stopped.put_again, None) == (rest.end, rest.put_again, rest.oldest_owed_us)
        await ward.work(30)
        assert [b"%d" % each for each in range(5)] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_copy_that_came_too_late_itself_is_found_by_a_check_of_its_own_part() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        mender = Mender(queue, "stopped")
        copy: list[Any] = []

        async def gate(statement: Any) -> None:
            if isinstance(statement, Insert) and statement.shape.table.name == "timeline_work":
                copy.append(statement)
                mender.process.kill()
                await asyncio.sleep(1)

        mender.store.gate = gate
        mender.begin()
        await asyncio.sleep(1)
        await ward.work(20)
        sender = queue.client("the wire")
        await sender.store.write(copy[0])
        for statement in index_rows(sender, place_of(copy[0])):
            await sender.store.write(statement)
        await asyncio.sleep(2 * MINUTE_S)
        assert 2 == (await ward.repair()).put_again, "both rows, for one family"
        await ward.work(20)
        assert [b"late"] == ward.payloads()
        await ward.repair_to_the_end()
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)
