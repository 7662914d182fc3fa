"""Updates without a token: what is acknowledged is counted, whatever becomes of the process, its clock, its memory
and its writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.model.decide_windows import TOTAL
from headgate.counters.write.mutator import FLUSH_UPDATES_MAX, KeyInvalid, MutatorClosed, NotSent, UpdateUnknown
from headgate.errors import Unavailable
from tests.kit.simulated_world import ProcessState
from tests.simulation.counters.counter_life import SECOND
from tests.simulation.counters.counter_scenes import (
    LIFETIME_S,
    REFUSE_S,
    UNTIL_FINAL_S,
    Scene,
    at_every_step,
    ends_in_error,
    play,
)


def test_updates_of_a_key_that_come_together_share_one_write() -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")

        async def count() -> None:
            await asyncio.gather(*(writer.counter.add("home", 1) for _ in range(1000)))

        await writer.process.start(count())
        assert await scene.value() == 1000
        return len([line for line in scene.world.history.lines() if "writer" in line and "asks" in line])

    assert play(scenario) == 1


def test_the_keys_of_a_bucket_are_one_batch_and_updates_that_come_meanwhile_share_the_next() -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")

        async def count() -> None:
            first = [writer.counter.add(f"k{key}", 1) for key in range(20)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second = [writer.counter.add(f"k{key}", 1) for key in range(20) for _ in range(3)]
            await asyncio.gather(*first, *second)

        await writer.process.start(count())
        assert [await scene.value(f"k{key}") for key in range(20)] == [4] * 20
        return len([line for line in scene.world.history.lines() if "writer" in line and "asks" in line])

    assert play(scenario) == 2


def test_more_updates_than_one_write_takes_leave_in_several() -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")

        async def count() -> None:
            await asyncio.gather(*(writer.counter.add("home", 1) for _ in range(FLUSH_UPDATES_MAX + 1)))

        await writer.process.start(count())
        return await scene.value()

    assert play(scenario) == FLUSH_UPDATES_MAX + 1


SURROUNDINGS: dict[str, dict[str, Any]] = {
    "one mutator": {},
    "each state is read back": {"memory_bytes_max": 1},
    "each update has a mutator of its own": {"life": LifeTerms((REFUSE_S + 1) * SECOND, REFUSE_S * SECOND)},
    "windows": {"grains_us": (60 * SECOND,)},
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_killed_at_every_step_a_process_has_acknowledged_nothing_that_is_not_counted(surroundings: str) -> None:
    keys = ("cart", "home")

    async def scenario(scene: Scene, step: int) -> bool:
        writer = scene.actor("writer")
        tales = [scene.ledger.begin(keys[number // 2 % 2]) for number in range(6)]

        async def count() -> None:
            for first in range(0, 6, 2):
                some = tales[first : first + 2]
                for tale in some:
                    scene.ledger.attempt(tale)
                await asyncio.gather(*(writer.counter.add(tale.key, tale.amount) for tale in some))
                for tale in some:
                    scene.ledger.acknowledged(tale)
                await asyncio.sleep(1)

        async def judge() -> None:
            began_us = scene.ledger.now_us()
            for key in keys:
                scene.ledger.check(key, await scene.value(key), began_us=began_us)
                if scene.settings.grains_us:
                    first_us = born_us // (60 * SECOND) * 60 * SECOND
                    reader = scene.actor("judge of windows")
                    state = await reader.process.start(
                        reader.counter.read_between(key, first_us, first_us + 120 * SECOND)
                    )
                    scene.ledger.check(key, state, began_us=began_us)

        born_us = writer.now_us()
        writer.process.kill_before_step(step)
        writer.process.start(count())
        await scene.world.sleep(8)
        struck = writer.process.state is ProcessState.DEAD
        await judge()
        for key in keys:
            await scene.shards(0, key=key)
        await scene.world.sleep(UNTIL_FINAL_S)
        for key in keys:
            await scene.actor("collector").collect(key)
        await judge()
        assert scene.ledger.broken == []
        return struck

    assert at_every_step(scenario, **SURROUNDINGS[surroundings]) > 8


@pytest.mark.parametrize("back_s", [0.0, 0.3, 3600.0])
def test_a_clock_that_stands_still_or_is_stepped_back_overwrites_nothing_with_something_older(back_s: float) -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")
        stopped_us = writer.now_us()
        writer.host.__dict__["now_us"] = lambda: stopped_us
        for number in range(5):
            assert await writer.add(1 << number)
        writer.host.__dict__["now_us"] = lambda: stopped_us - round(back_s * SECOND)
        for number in range(5, 9):
            assert await writer.add(1 << number)
        return await scene.value()

    assert play(scenario) == 511


def test_a_write_that_times_out_is_sent_again_until_it_is_known_and_then_continues() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        scene.world.network.cut("writer", list(scene.cluster.nodes))
        first = writer.process.start(ends_in_error(_added(writer.counter.add("home", 1))))
        await scene.world.sleep(1)
        second = writer.process.start(ends_in_error(_added(writer.counter.add("home", 2))))
        assert type(await first) is UpdateUnknown
        assert type(await second) is NotSent
        assert writer.counter.mutator.unknown_writes == 1
        scene.world.network.heal()
        await scene.world.sleep(30)
        assert writer.counter.mutator.unknown_writes == 0
        assert await scene.value() == 1  # the second was not sent, as its answer shows
        assert await writer.add(4)
        assert await scene.value() == 5

    play(scenario)


async def _added(future: asyncio.Future[None]) -> None:
    await future


def test_a_mutator_that_is_done_makes_room_for_another_and_both_count() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        assert await writer.add(1)
        await scene.world.sleep(LIFETIME_S - REFUSE_S - 1)
        assert await writer.add(2)
        assert scene.shards_left() == 1
        await scene.world.sleep(2)
        assert await writer.add(4)
        assert scene.shards_left() == 2
        assert writer.counter.mutator.born == 2
        assert await scene.value() == 7

    play(scenario)


def test_while_the_clock_is_not_to_be_relied_on_nothing_is_sent_nor_acknowledged() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")

        def refuses() -> int:
            raise Unavailable("the clock is off")

        trusted, writer.host.__dict__["now_us"] = writer.host.now_us, refuses
        error = await ends_in_error(writer.add(1))
        assert error is not None
        assert error.message == "the clock is off"
        writer.host.__dict__["now_us"] = trusted
        assert await scene.value() == 0
        assert await writer.add(2)
        assert await scene.value() == 2

    play(scenario)


@pytest.mark.parametrize("budget", [1, 500, 2_000])
def test_culling_under_pressure_keeps_every_total(budget: int) -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        own = scene.world.rng("keys")
        expected: dict[str, int] = {}

        async def count() -> None:
            key = f"k{own.randrange(12)}"
            expected[key] = expected.get(key, 0) + 1
            await asyncio.sleep(own.random() * 0.05)
            await writer.counter.add(key, 1)

        async def all_of_it() -> None:
            for _ in range(20):
                await asyncio.gather(*(count() for _ in range(25)))

        await writer.process.start(all_of_it())
        assert writer.counter.mutator.culled > 5
        assert {key: await scene.value(key) for key in expected} == expected
        assert {scene.shards_left(key) for key in expected} == {1}

    for seed in range(3):
        play(scenario, seed=seed, memory_bytes_max=budget, buckets=2)


def test_a_key_whose_write_is_unknown_is_never_culled() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        assert await writer.add(1, "k1")
        assert writer.counter.mutator._living is not None
        memory = writer.counter.mutator._living.memory
        memory._bytes_max = 1
        scene.world.network.cut("writer", list(scene.cluster.nodes))
        unknown = writer.process.start(ends_in_error(_added(writer.counter.add("k1", 2))))
        assert type(await unknown) is UpdateUnknown
        memory.cull()
        assert memory.find("k1", TOTAL) is not None
        scene.world.network.heal()
        await scene.world.sleep(20)
        assert await writer.add(4, "k1")
        assert await scene.value("k1") == 7
        assert memory.find("k1", TOTAL) is None

    play(scenario)


def test_a_caller_that_left_before_the_write_is_not_counted() -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")

        async def count() -> None:
            gone, stays = writer.counter.add("home", 1), writer.counter.add("home", 2)
            gone.cancel()
            await stays

        await writer.process.start(count())
        return await scene.value()

    assert play(scenario) == 2


def test_an_update_that_the_type_cannot_take_is_reported_to_its_caller_alone() -> None:
    async def scenario(scene: Scene) -> int:
        writer = scene.actor("writer")

        async def count() -> None:
            bad, good = writer.counter.add("home", "many"), writer.counter.add("home", 2)
            with pytest.raises(TypeError):
                await bad
            await good
            with pytest.raises(KeyInvalid):
                await writer.counter.add("", 1)
            with pytest.raises(KeyInvalid):
                await writer.counter.add("k" * 2000, 1)

        await writer.process.start(count())
        return await scene.value()

    assert play(scenario) == 2


def test_closing_writes_what_waits_and_refuses_what_comes_later() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")

        async def close() -> None:
            adding = writer.counter.add("home", 1)
            await writer.counter.close()
            await adding
            with pytest.raises(MutatorClosed):
                await writer.counter.add("home", 1)

        await writer.process.start(close())
        assert await scene.value() == 1

    play(scenario)


def test_windows_report_what_was_counted_when() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        minute = 60 * SECOND
        start = (writer.now_us() // (10 * minute) + 1) * 10 * minute
        await scene.world.sleep((start - writer.now_us()) / SECOND)
        for number in range(12):
            assert await writer.add(1 << number)
            await scene.world.sleep(60)

        async def between(first: int, last: int) -> int:
            return int(
                await writer.process.start(
                    writer.counter.read_between("home", start + first * minute, start + last * minute)
                )
            )

        assert await between(0, 12) == 4095
        assert await between(0, 10) == 1023
        assert await between(3, 12) == 4095 - 7
        assert await between(5, 6) == 32
        assert await scene.value() == 4095

    play(scenario, grains_us=(60 * SECOND, 600 * SECOND))
