"""The mark of a query's batch on a simulated ring: one for all tasks of a batch, by the first of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate_spark.write.decide_marks import BatchPassed, BatchTooOld, Mark
from headgate_spark.write.marks import BatchMarks
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, Queue, simulate

WINDOW_US = 3600 * SECOND


def marks_of(queue: Queue, name: str) -> tuple[Any, BatchMarks]:
    """A task's process."""
    client = queue.client(name)
    return client.process, BatchMarks(client.store, QUEUE, client.process.uuid)


async def begin(queue: Queue, name: str, batch: int, *, age_us: int = 0) -> Mark:
    """A task of a batch, that begins now, or this long ago."""
    process, marks = marks_of(queue, name)
    mine = Mark(batch, process.clock.wall_us() - age_us)
    result: Mark = await process.start(marks.begin("q", mine, remembered_us=WINDOW_US, skew_us=SECOND))
    return result


@pytest.mark.parametrize("seed", range(5))
def test_all_tasks_of_a_batch_have_the_mark_of_one_of_them(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        for batch in (0, 1, 7):
            result = await asyncio.gather(*(begin(queue, f"task-{batch}-{at}", batch) for at in range(8)))
            assert 1 == len(set(result))
            assert {batch} == {mark.batch for mark in result}
            assert result[0] == await begin(queue, f"late-{batch}", batch)

    simulate(scenario, seed)


def test_a_task_of_an_earlier_batch_is_refused_and_leaves_the_mark_as_it_is() -> None:
    async def scenario(queue: Queue) -> None:
        latest = await begin(queue, "now", 5)
        with pytest.raises(BatchPassed):
            await begin(queue, "past", 4)
        assert latest == await begin(queue, "again", 5)

    simulate(scenario)


def test_a_batch_is_refused_once_its_keys_may_be_forgotten_and_the_next_is_not() -> None:
    async def scenario(queue: Queue) -> None:
        await begin(queue, "first", 3, age_us=WINDOW_US)
        with pytest.raises(BatchTooOld):
            await begin(queue, "restarted", 3)
        assert 4 == (await begin(queue, "next", 4)).batch

    simulate(scenario)
