"""Processes of the simulated world: paused as by SIGSTOP, killed as by kill -9, with clocks that lie."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from headgate.errors import Bug
from headgate.process.background_tasks import SharedWork
from tests.kit.simulated_world import EPOCH_S, Process, World


async def _tick(process: Process, observation: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        observation.append(process.world.now_s())


def test_a_paused_process_runs_late_and_all_at_once() -> None:
    observations: list[float] = []

    async def scenario(world: World) -> None:
        process = world.process("p")
        loop = asyncio.get_running_loop()
        for second in range(1, 6):
            loop.call_at(second, lambda: observations.append(world.now_s()), context=process.context)
        await asyncio.sleep(1.5)
        process.pause(for_s=10)
        await asyncio.sleep(20)

    with World() as world:
        world.run(scenario(world))
    assert observations == [1.0, 11.5, 11.5, 11.5, 11.5]


def test_a_pause_holds_tasks_between_two_awaits() -> None:
    observations: list[float] = []

    async def scenario(world: World) -> None:
        process = world.process("p")
        process.start(_tick(process, observations))
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5)
        process.resume()
        await asyncio.sleep(1.5)

    with World() as world:
        world.run(scenario(world))
    assert observations == [1.0, 2.0, 7.5, 8.5]


def test_a_killed_process_runs_no_finally_and_nothing_else() -> None:
    observations: list[str] = []

    async def work() -> None:
        try:
            observations.append("begun")
            await asyncio.sleep(10)
            observations.append("continued")
        except BaseException:
            observations.append("except")
            raise
        finally:
            observations.append("finally")

    async def scenario(world: World) -> None:
        process = world.process("p")
        process.start(work())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(100)
        gc.collect()

    with World() as world:
        world.run(scenario(world))
        assert observations == ["begun"]


def test_the_dead_leave_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        process = world.process("p")
        process.start(work())
        process.start(asyncio.sleep(50))
        await asyncio.sleep(1)
        process.kill()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with World() as world:
            world.run(scenario(world))
        del world
        gc.collect()
    assert caplog.records == []


def test_a_name_can_live_again_and_a_living_one_not_twice() -> None:
    with World() as world:
        first = world.process("p")
        with pytest.raises(Bug):
            world.process("p")
        first.kill()
        second = world.process("p")
        assert second is not first
        assert second.uuid() != first.uuid(), "and does not repeat earlier random values"


def test_an_error_that_its_process_is_killed_before_hearing_of_concerns_nobody() -> None:
    """Of work that its caller has left, and that ends in the step before the kill."""

    async def scenario(world: World) -> None:
        process, answer = world.process("p"), asyncio.get_running_loop().create_future()
        shared = SharedWork[str, None]("reads")

        async def read() -> None:
            shared.forget("all")
            await answer

        async def ask() -> None:
            await shared.run("all", read)

        asking = process.start(ask())
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.sleep(1)
        answer.add_done_callback(lambda _: process.kill())
        answer.set_exception(ValueError("no answer"))
        await asyncio.sleep(1)

    with World() as world:
        world.run(scenario(world))


def test_a_process_can_be_killed_before_each_of_its_steps() -> None:
    def run(kill_before: int | None) -> tuple[list[str], int]:
        done: list[str] = []

        async def work() -> None:
            for name in "abc":
                await asyncio.sleep(1)
                done.append(name)

        async def scenario(world: World) -> int:
            process = world.process("p")
            process.count_steps()
            if kill_before is not None:
                process.kill_before_step(kill_before)
            process.start(work())
            await asyncio.sleep(10)
            return process.steps

        with World() as world:
            steps = world.run(scenario(world))
        return done, steps

    whole, steps = run(None)
    assert whole == ["a", "b", "c"]
    outcomes = [run(step)[0] for step in range(1, steps + 1)]
    assert outcomes[0] == []
    assert {tuple(outcome) for outcome in outcomes} == {(), ("a",), ("a", "b")}


def test_what_a_process_had_sent_lands_after_its_death() -> None:
    landed: list[str] = []

    async def scenario(world: World) -> None:
        source, target = world.process("source"), world.process("target")

        async def send() -> None:
            world.network.send("letter", source, target, landed.append, "sent before")
            await asyncio.sleep(0)
            world.network.send("letter", source, target, landed.append, "sent after")

        source.kill_before_step(2)
        source.start(send())
        await asyncio.sleep(1)

    with World() as world:
        world.run(scenario(world))
    assert landed == ["sent before"]


def test_an_error_that_nobody_took_ends_the_run() -> None:
    async def fail() -> None:
        raise ValueError("nobody awaits this")

    async def scenario(world: World) -> None:
        world.process("p").start(fail())
        await asyncio.sleep(1)

    with World() as world, pytest.raises(ValueError, match="nobody awaits this"):
        world.run(scenario(world))


def test_an_error_that_somebody_took_does_not() -> None:
    async def fail() -> None:
        raise ValueError

    async def scenario(world: World) -> str:
        task = world.process("p").start(fail())
        try:
            await task
        except ValueError:
            return "taken"
        return "?"

    with World() as world:
        assert world.run(scenario(world)) == "taken"


def test_clocks_are_skewed_step_and_drift_one_by_one() -> None:
    async def scenario(world: World) -> None:
        right, wrong = world.process("right"), world.process("wrong")
        wrong.clock.step(2.5)
        boot = wrong.clock.boottime_s()
        await asyncio.sleep(10)
        assert right.clock.wall_us() == (EPOCH_S + 10) * 1_000_000
        assert wrong.clock.wall_us() == (EPOCH_S + 12) * 1_000_000 + 500_000
        assert wrong.clock.boottime_s() - boot == pytest.approx(10)
        wrong.clock.step(-5)
        assert wrong.clock.error_s() == pytest.approx(-2.5)
        right.clock.run_at(1.01)
        await asyncio.sleep(100)
        assert right.clock.error_s() == pytest.approx(1.0)

    with World() as world:
        world.run(scenario(world))


def test_only_a_pause_of_the_machine_stops_the_monotonic_clock() -> None:
    async def scenario(world: World) -> tuple[float, float, float]:
        process = world.process("p")
        boot, mono = process.clock.boottime_s(), process.clock.monotonic_s()
        process.pause(for_s=7)
        await asyncio.sleep(10)
        after_stop = process.clock.monotonic_s() - mono
        process.pause(for_s=7, machine=True)
        await asyncio.sleep(10)
        return after_stop, process.clock.monotonic_s() - mono, process.clock.boottime_s() - boot

    with World() as world:
        assert world.run(scenario(world)) == pytest.approx((10, 13, 20))
