"""The queue of keys: deduplicated, by urgency, starving nobody, with pauses that double."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
import uvloop

from headgate.telemetry.metrics import Registry
from headgate_operator.informers.work_queue import DEADLINES_SPARE, RETRY_S, RETRY_S_MAX, Class, WorkQueue
from headgate_operator.model.names import Key
from tests.kit.simulated_world import World

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def key(name: str) -> Key:
    return Key("Queue", "shop", name)


def run(work: Coroutine[Any, Any, None]) -> None:
    """In virtual time."""
    with World(1) as world:
        world.run(work)


def queue(**how: Any) -> WorkQueue:
    return WorkQueue(rng=Random(1), **how)


async def taken(keys: WorkQueue, count: int) -> list[str]:
    """The next keys, each done at once."""
    matches = []
    for _ in range(count):
        got = await keys.get()
        keys.done(got)
        matches.append(got.name)
    return matches


def test_a_key_waits_once_and_the_most_urgent_class_counts() -> None:
    async def work() -> None:
        keys = queue()
        keys.add(key("b"), Class.NEW)
        keys.add(key("a"), Class.RESYNC)
        keys.add(key("a"), Class.CHANGED)
        keys.add(key("a"), Class.FAILED)
        assert 2 == len(keys)
        assert ["a", "b"] == await taken(keys, 2)

    run(work())


def test_a_key_that_is_added_while_it_is_worked_is_worked_again_and_never_by_two() -> None:
    async def work() -> None:
        keys = queue()
        keys.add(key("a"), Class.NEW)
        got = await keys.get()
        keys.add(got, Class.RESYNC)
        keys.add(got, Class.CHANGED)
        assert 0 == len(keys)
        keys.done(got)
        again = await keys.get()
        assert (got, Class.CHANGED) == (again, keys.class_of(again))

    run(work())


def test_of_eight_takes_one_is_of_the_lowest_class() -> None:
    async def work() -> None:
        keys = queue()
        for number in range(20):
            keys.add(key(f"changed-{number:02}"), Class.CHANGED)
        keys.add(key("resync"), Class.RESYNC)
        names = await taken(keys, 8)
        assert "resync" == names[7]
        assert [f"changed-{number:02}" for number in range(7)] == names[:7]

    run(work())


def test_reserved_reconcilers_take_changes_alone() -> None:
    async def work() -> None:
        keys = queue()
        waiting = asyncio.get_running_loop().create_task(keys.get(reserved=True))
        keys.add(key("new"), Class.NEW)
        await asyncio.sleep(1)
        assert not waiting.done()
        keys.add(key("changed"), Class.CHANGED)
        assert "changed" == (await waiting).name

    run(work())


def test_a_change_wakes_a_reserved_reconciler_and_leaves_the_others_asleep() -> None:
    async def work() -> None:
        keys = queue()
        loop = asyncio.get_running_loop()
        anyone, reserved = loop.create_task(keys.get()), loop.create_task(keys.get(reserved=True))
        await asyncio.sleep(0)
        keys.add(key("changed"), Class.CHANGED)
        await asyncio.sleep(1)
        assert (False, True) == (anyone.done(), reserved.done())
        keys.add(key("new"), Class.NEW)
        assert "new" == (await anyone).name

    run(work())


def test_what_comes_while_a_change_waits_wakes_somebody_that_may_take_it() -> None:
    async def work() -> None:
        keys = queue()
        reserved = [asyncio.ensure_future(keys.get(reserved=True)) for _ in range(2)]
        other = asyncio.ensure_future(keys.get())
        await asyncio.sleep(0)
        keys.add(key("changed"), Class.CHANGED)
        keys.add(key("new"), Class.NEW)
        async with asyncio.timeout(1):
            assert key("new") == await other
        assert [True, False] == [each.done() for each in reserved]
        reserved[1].cancel()

    run(work())


def test_once_it_is_released_nothing_waits_while_somebody_is_idle() -> None:
    async def work() -> None:
        keys = queue(settle=True)
        getters = [asyncio.ensure_future(keys.get()) for _ in range(3)]
        await asyncio.sleep(0)
        for name in "abc":
            keys.add(key(name), Class.NEW)
        keys.release()
        async with asyncio.timeout(1):
            assert [key("a"), key("b"), key("c")] == await asyncio.gather(*getters)

    run(work())


def test_a_getter_that_is_cancelled_passes_its_wake_up_on() -> None:
    async def work() -> None:
        keys = queue()
        loop = asyncio.get_running_loop()
        first, second = loop.create_task(keys.get()), loop.create_task(keys.get())
        await asyncio.sleep(0)
        keys.add(key("a"), Class.NEW)
        first.cancel()
        assert "a" == (await second).name

    run(work())


def test_retries_double_to_five_minutes_and_begin_again_once_it_went_well() -> None:
    async def work() -> None:
        keys = queue()
        pauses = [keys.retry(key("a")) for _ in range(14)]
        for number, pause_s in enumerate(pauses):
            assert pytest.approx(min(RETRY_S * 2**number, RETRY_S_MAX), rel=0.21) == pause_s
        keys.forget(key("a"))
        assert pytest.approx(RETRY_S, rel=0.21) == keys.retry(key("a"))

    run(work())


def test_of_several_times_the_earliest_counts_and_a_take_forgets_them() -> None:
    async def work() -> None:
        keys = queue()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        keys.add_in(key("a"), 50)
        keys.add_in(key("a"), 10, Class.FAILED)
        keys.add_in(key("a"), 30)
        got = await keys.get()
        assert (10.0, Class.FAILED) == (pytest.approx(loop.time() - began_s), keys.class_of(got))
        keys.done(got)
        assert keys.next_due_in_s() is None

    run(work())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_time_that_is_now_or_past_is_as_good_as_another_on_either_loop(new_loop: NewLoop) -> None:
    async def work() -> None:
        keys = queue()
        keys.add_in(key("past"), -1)
        keys.add_in(key("now"), 0.0001)  # below uvloop's millisecond
        keys.add_in(key("later"), 0.01)
        assert ["past", "now", "later"] == await asyncio.wait_for(taken(keys, 3), 10)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


def test_a_time_within_the_next_millisecond_is_not_searched_for_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        keys = queue()
        checks = 0
        fall_due = keys._fall_due

        def counted() -> None:
            nonlocal checks
            checks += 1
            fall_due()

        monkeypatch.setattr(keys, "_fall_due", counted)
        for number in range(20):
            keys.add_in(key(f"{number}"), 0.0004)  # uvloop calls at once what is due in less than half of one
            await taken(keys, 1)
        assert checks <= 2 * 20

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def test_times_that_nobody_waits_for_any_more_are_not_kept() -> None:
    async def work() -> None:
        keys = queue()
        keys.add_in(key("rare"), 5_000)
        for number in range(5 * DEADLINES_SPARE):
            keys.add_in(key("often"), 10_000 - number)
            keys.add(key("often"), Class.CHANGED)
            await taken(keys, 1)
        assert len(keys._deadlines) <= DEADLINES_SPARE + 4
        keys.add_in(key("often"), 6_000)
        assert ["rare", "often"] == await taken(keys, 2)

    run(work())


def test_a_change_during_a_pause_is_worked_at_once() -> None:
    async def work() -> None:
        keys = queue()
        keys.retry(key("a"))
        keys.add(key("a"), Class.CHANGED)
        assert "a" == (await asyncio.wait_for(keys.get(), 0.1)).name

    run(work())


def test_beyond_its_bound_it_owes_a_resync_and_loses_none_that_waits() -> None:
    async def work() -> None:
        keys = queue(keys_max=2)
        for name in "abc":
            keys.add(key(name), Class.NEW)
        assert (2, True) == (len(keys), keys.resync_owed)
        keys.add(key("a"), Class.CHANGED)
        assert ["a", "b"] == await taken(keys, 2)

    run(work())


def test_it_holds_all_keys_until_it_is_released() -> None:
    async def work() -> None:
        keys = queue(settle=True)
        keys.add(key("a"), Class.CHANGED)
        getting = asyncio.get_running_loop().create_task(keys.get(reserved=True))
        await asyncio.sleep(5)
        assert not getting.done()
        keys.release()
        assert "a" == (await getting).name

    run(work())


def test_metrics_are_those_of_controller_runtime() -> None:
    async def work() -> None:
        registry = Registry()
        keys = queue(registry=registry)
        keys.add(key("a"), Class.NEW)
        keys.add(key("b"), Class.NEW)
        await keys.get()
        await asyncio.sleep(3)
        values = {sample.name: sample for sample in registry.samples()}
        assert {"name": "headgate"} == dict(values["workqueue_depth"].labels)
        assert (1.0, 2.0) == (values["workqueue_depth"].value, values["workqueue_adds"].value)
        assert pytest.approx(3.0) == values["workqueue_longest_running_processor_seconds"].value
        assert pytest.approx(3.0) == values["workqueue_unfinished_work_seconds"].value
        assert {"workqueue_retries", "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"} <= set(
            values
        )

    run(work())
