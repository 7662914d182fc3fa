"""The loop with virtual time: its promises to the tasks that run in it."""

from __future__ import annotations

import asyncio
import time

import pytest

from headgate.testing.virtual_loop import VirtualLoop
from tests.kit.simulated_world import Deadlock, RealWorld, TimeUp, World


async def _sleeper(name: str, seconds: float, woken: list[str]) -> None:
    await asyncio.sleep(seconds)
    woken.append(name)


def test_a_year_passes_at_once() -> None:
    with World() as world:
        began = time.monotonic()
        world.run(asyncio.sleep(365 * 24 * 3600, result="slept"))
        assert time.monotonic() - began < 5
        assert world.now_s() == 365 * 24 * 3600


def test_timers_of_one_time_run_in_the_order_in_which_they_were_set() -> None:
    async def scenario() -> list[int]:
        observations: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_at(1.0, observations.append, number)
        await asyncio.sleep(2)
        return observations

    with World() as world:
        assert world.run(scenario()) == list(range(50))


def test_a_cancelled_timer_never_runs_however_many_there_are() -> None:
    async def scenario() -> list[int]:
        observations: list[int] = []
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(1 + number / 1000, observations.append, number) for number in range(2000)]
        for number, timer in enumerate(timers):
            if number % 10:
                timer.cancel()
        await asyncio.sleep(10)
        return observations

    with World() as world:
        assert world.run(scenario()) == list(range(0, 2000, 10))


def test_a_timer_that_is_due_runs_even_while_others_keep_the_loop_busy() -> None:
    async def scenario() -> bool:
        due = asyncio.Event()
        asyncio.get_running_loop().call_later(0, due.set)
        for _ in range(10):
            await asyncio.sleep(0)
        return due.is_set()

    with World() as world:
        assert world.run(scenario())


def test_the_seed_chooses_the_order_of_what_is_ready_together() -> None:
    def order(seed: int, shuffled: bool) -> list[str]:
        woken: list[str] = []

        async def scenario() -> None:
            await asyncio.gather(*(_sleeper(str(number), 1, woken) for number in range(8)))

        with World(seed, shuffled=shuffled) as world:
            world.run(scenario())
        return woken

    assert order(1, False) == [str(number) for number in range(8)]
    assert order(1, True) == order(1, True)
    assert len({tuple(order(seed, True)) for seed in range(20)}) > 10


def test_a_standstill_is_reported_with_one_that_waits_where() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    with World(seed=3) as world:
        process = world.process("p1")
        process.start(wait_for_nothing())
        with pytest.raises(Deadlock) as raised:
            world.run(wait_for_nothing())
    assert "seed 3" in str(raised.value)
    assert "p1/" in str(raised.value)
    assert "wait_for_nothing line" in str(raised.value)


def test_a_run_past_its_limit_is_ended() -> None:
    async def for_ever() -> None:
        for _ in range(1_000):
            await asyncio.sleep(1)

    with World(until_s=100) as world, pytest.raises(TimeUp):
        world.run(for_ever())


def test_a_run_that_spins_without_letting_time_pass_is_ended() -> None:
    async def spin() -> None:
        for _ in range(10_000_000):
            await asyncio.sleep(0)

    with World() as world, pytest.raises(TimeUp):
        world.run(spin())


@pytest.mark.parametrize("reach", ["thread", "connection", "address", "server", "child"])
def test_the_real_world_is_out_of_reach(reach: str) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        if reach == "thread":
            await asyncio.to_thread(time.monotonic)
        elif reach == "connection":
            await asyncio.open_connection("127.0.0.1", 1)
        elif reach == "address":
            await loop.getaddrinfo("localhost", 1)
        elif reach == "server":
            await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        else:
            await asyncio.create_subprocess_exec("true")

    with World() as world, pytest.raises(RealWorld):
        world.run(scenario())


def test_asyncio_continues_as_usual() -> None:
    async def scenario() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            got = [await queue.get() for _ in range(5)]
        observations: list[object] = [got]
        try:
            async with asyncio.timeout(3):
                await asyncio.sleep(5)
        except TimeoutError:
            observations.append("late")
        lock = asyncio.Lock()
        async with lock:
            observations.append(lock.locked())
        return observations

    with World() as world:
        assert world.run(scenario()) == [[0, 1, 2, 3, 4], "late", True]
        assert world.now_s() == 3


def test_a_loop_stands_alone() -> None:
    loop = VirtualLoop()
    try:
        assert loop.run_until_complete(asyncio.sleep(5, result=7)) == 7
    finally:
        loop.close()
