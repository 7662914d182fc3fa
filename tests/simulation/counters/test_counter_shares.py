"""A pass of the collector that is shared out by buckets among processes, as Spark does, comes to what one makes."""

from __future__ import annotations

import asyncio

from headgate.counters.model.decide_shards import TALLY
from tests.simulation.counters.counter_scenes import UNTIL_FINAL_S, Scene, play

KEYS = [f"key {number}" for number in range(12)]


async def counted(scene: Scene) -> None:
    """Each key by two mutators, which are final by now."""
    for key in KEYS:
        await scene.shards(1, 2, key=key)
    await scene.world.sleep(UNTIL_FINAL_S)


def test_shares_of_a_pass_side_by_side_collect_all_and_the_pass_is_full() -> None:
    async def scenario(scene: Scene) -> None:
        await counted(scene)
        driver, one, other = (scene.actor(name) for name in ("driver", "one", "other"))
        pass_us = await driver.process.start(driver.collector.begin())
        reports = await asyncio.gather(
            one.process.start(one.collector.run_share(pass_us, [0, 2])),
            other.process.start(other.collector.run_share(pass_us, [1, 3])),
        )
        assert (12, 24) == (sum(each.keys for each in reports), sum(each.collected for each in reports))
        assert await driver.process.start(driver.collector.end(pass_us))
        assert {(TALLY,)} == {tuple(scene.rows("n1", key)) for key in KEYS}
        assert [3] * 12 == [await scene.value(key) for key in KEYS]
        standing = await driver.process.start(driver.collector.read_result())
        assert pass_us == standing.full_us

    play(scenario, buckets=4)


def test_a_pass_with_a_share_that_was_not_done_is_not_full_and_the_next_run_continues_with_it() -> None:
    async def scenario(scene: Scene) -> None:
        await counted(scene)
        driver, one = scene.actor("driver"), scene.actor("one")
        pass_us = await driver.process.start(driver.collector.begin())
        first = await one.process.start(one.collector.run_share(pass_us, [0, 2]))
        assert not await driver.process.start(driver.collector.end(pass_us))
        rest = await driver.process.start(driver.collector.run())
        assert (pass_us, True, 12) == (rest.pass_us, rest.full, first.keys + rest.keys)
        again = await one.process.start(one.collector.run_share(pass_us, [0, 2]))
        assert 0 == again.keys

    play(scenario, buckets=4)
