"""Histories: the same seed, the same bytes."""

from __future__ import annotations

import asyncio

from tests.kit.simulated_world import World


def _history(seed: int) -> str:
    async def worker(world: World, name: str) -> None:
        process = world.process(name)

        async def work() -> None:
            for _ in range(5):
                await asyncio.sleep(process.rng.uniform(0, 1))
                process.note("did", ("id", process.uuid()), {"b": 1}, None)

        await process.start(work())

    async def scenario(world: World) -> None:
        await asyncio.gather(*(worker(world, name) for name in "abc"))

    with World(seed, shuffled=True) as world:
        world.run(scenario(world))
        return world.history.text()


def test_the_same_seed_gives_the_same_history_and_another_one_another() -> None:
    assert _history(1) == _history(1)
    assert _history(1) != _history(2)


def test_a_line_shows_when_which_process_and_what() -> None:
    with World() as world:
        world.history.note("p1", "wrote", ("rows", 3), "to", ("at", b"x"))
        assert world.history.text() == "      0.000000 p1           wrote rows=3 to at=b'x'"
        assert len(world.history) == 1
        assert world.history.tail(1) == world.history.text()


def test_streams_of_chance_do_not_touch_each_other() -> None:
    with World(5) as one, World(5) as other:
        one.rng("a").random()
        assert one.rng("b").random() == other.rng("b").random()
        assert one.rng("a").random() != other.rng("b").random()
