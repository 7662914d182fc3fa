"""Pauses double, and a rate lets others pass in the order in which they came."""

from __future__ import annotations

import asyncio

from headgate.process.pacing import ExponentialPause, RateLimit
from tests.kit.simulated_world import World


def test_a_pause_doubles_up_to_its_maximum_until_a_try_succeeds() -> None:
    pause = ExponentialPause(0.5, 3.0)
    assert [0.5, 1.0, 2.0, 3.0, 3.0] == [pause.next_s() for _ in range(5)]
    pause.reset()
    assert [0.5, 1.0] == [pause.next_s(), pause.next_s()]


def test_a_rate_is_kept_in_the_order_of_arrival_and_a_cancelled_caller_takes_no_turn() -> None:
    async def scenario() -> None:
        limit = RateLimit(per_s=2, burst=1)
        loop = asyncio.get_running_loop()
        turns: list[tuple[str, float]] = []

        async def call(name: str) -> None:
            await limit.turn()
            turns.append((name, round(loop.time(), 3)))

        began_s = round(loop.time(), 3)
        tasks = [loop.create_task(call(name)) for name in "abcd"]
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert [("a", began_s), ("c", began_s + 0.5), ("d", began_s + 1.0)] == turns

    with World(1) as world:
        world.run(scenario())
