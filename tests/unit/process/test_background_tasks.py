"""Background work has a name, and the way it is started decides what a failure does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headgate.process.background_tasks import (
    BackgroundTasks,
    SharedWork,
    end_task,
    run_together,
    start_task,
)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ValueError("a bug")


def names() -> set[str]:
    """Of all tasks but the test's own."""
    return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}


def reported(scenario: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    """What the event loop's handler gets during a scenario."""
    faults: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        await scenario()

    asyncio.run(run())
    return faults


def test_a_dump_of_tasks_names_each() -> None:
    async def scenario() -> None:
        task = start_task("clock check", for_ever())
        owned = BackgroundTasks("flush")
        owned.start(for_ever())
        shared = SharedWork[str, None]("read of a Secret")
        shared.run("shop", for_ever)
        together = start_task("work", run_together({"watch queues": for_ever()}))
        await asyncio.sleep(0)
        wanted = {"clock check", "flush", "read of a Secret", "work", "watch queues"}
        assert {f"headgate: {name}" for name in wanted} == names()
        await asyncio.gather(end_task(task), end_task(together), owned.stop(), shared.stop())
        assert set() == names()

    asyncio.run(scenario())


def test_tasks_are_ended_without_a_task_more() -> None:
    async def slow_to_end(ages: list[int]) -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            ages.append(len(asyncio.all_tasks()))

    async def scenario() -> None:
        ages: list[int] = []
        tasks = [start_task(f"work {number}", slow_to_end(ages)) for number in range(2)]
        await asyncio.sleep(0)
        before = len(asyncio.all_tasks())
        await end_task(*tasks)
        assert before == max(ages)

    asyncio.run(scenario())


def test_an_owner_gets_the_error_of_its_work() -> None:
    failures: list[BaseException] = []

    async def scenario() -> None:
        tasks = BackgroundTasks("flush", failed=failures.append)
        tasks.start(fail())
        await tasks.wait()
        assert 0 == len(tasks)

    assert [] == reported(scenario)
    assert ["ValueError('a bug')"] == [repr(each) for each in failures]


def test_work_without_an_owner_that_asks_is_reported_once_as_a_bug() -> None:
    async def scenario() -> None:
        tasks = BackgroundTasks("flush")
        tasks.start(fail())
        tasks.start(for_ever())
        await asyncio.sleep(0)
        await tasks.stop()

    (fault,) = reported(scenario)
    assert ("bug in a background task: flush", "a bug") == (fault["message"], str(fault["exception"]))


def test_an_owner_waits_for_tasks_that_do_not_end_no_longer_than_it_wants() -> None:
    async def scenario() -> None:
        async def stubborn() -> None:
            try:
                await for_ever()
            except asyncio.CancelledError:
                await release.wait()

        release = asyncio.Event()
        tasks = BackgroundTasks("slot")
        tasks.start(stubborn())
        await asyncio.sleep(0)
        await tasks.stop(within_s=0.01)
        assert 1 == len(tasks)
        release.set()
        await tasks.wait()
        assert 0 == len(tasks)

    asyncio.run(scenario())


def test_the_first_failure_ends_what_runs_together() -> None:
    async def scenario() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await run_together({"kopf": for_ever(), "work": fail()})
        assert ["ValueError('a bug')"] == [repr(each) for each in raised.value.exceptions]
        assert set() == names()

    asyncio.run(scenario())


def test_callers_share_work_that_is_under_way() -> None:
    async def scenario() -> None:
        begun = 0

        async def read() -> int:
            nonlocal begun
            begun += 1
            number = begun
            await asyncio.sleep(0)
            return number

        shared = SharedWork[str, int]("read")
        assert [1, 1, 2] == await asyncio.gather(*(shared.run(key, read) for key in ("a", "a", "b")))
        assert [] == list(shared)
        assert 3 == await shared.run("a", read)

    asyncio.run(scenario())


def test_a_cancelled_caller_leaves_the_work_to_the_others() -> None:
    async def scenario() -> None:
        async def read() -> str:
            await asyncio.sleep(0.01)
            return "read"

        async def ask() -> str:
            return await shared.run("a", read)

        shared = SharedWork[str, str]("read")
        first, second = start_task("first", ask()), start_task("second", ask())
        await asyncio.sleep(0)
        await end_task(first)
        assert "read" == await second

    assert [] == reported(scenario)


def test_work_that_was_forgotten_knows_it_and_later_callers_start_another() -> None:
    async def scenario() -> None:
        current: list[bool] = []

        async def read() -> None:
            await asyncio.sleep(0)
            current.append(shared.is_current("a"))

        shared = SharedWork[str, None]("read")
        first = shared.run("a", read)
        await asyncio.sleep(0)
        shared.forget("a")
        await asyncio.gather(first, shared.run("a", read))
        assert [False, True] == current

    asyncio.run(scenario())


def test_a_failure_that_no_caller_is_left_to_hear_is_no_fault_of_the_loop() -> None:
    async def scenario() -> None:
        async def ask() -> None:
            await shared.run("a", fail_later)

        async def fail_later() -> None:
            await asyncio.sleep(0.01)
            await fail()

        shared = SharedWork[str, None]("read")
        asking = start_task("ask", ask())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(0.05)

    assert [] == reported(scenario)
