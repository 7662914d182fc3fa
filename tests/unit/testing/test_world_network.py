"""The network of the simulated world: messages take time, get lost, arrive late, and do not pass a cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.kit.simulated_world import Weather, World


def _landed(act: Callable[[World], object], *, far: bool = False, times: int = 1) -> list[tuple[float, str]]:
    """The landing times of letters from a to b, one sent per second."""
    landed: list[tuple[float, str]] = []

    async def scenario(world: World) -> None:
        source = world.process("a")
        target = world.process("b", data_centre="dc2" if far else "dc1")
        act(world)
        for number in range(times):
            world.network.send("letter", source, target, lambda n: landed.append((world.now_s(), str(n))), number)
            await asyncio.sleep(1)
        await asyncio.sleep(1000)

    with World(weather=Weather(stragglers=0)) as world:
        world.run(scenario(world))
    return landed


def _nothing(world: World) -> None:
    """No fault."""


def test_a_message_takes_as_long_as_the_way_is() -> None:
    assert 0.0002 <= _landed(_nothing)[0][0] <= 0.001
    assert 0.020 <= _landed(_nothing, far=True)[0][0] <= 0.030


@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        (lambda world: world.network.cut("a", "b"), []),
        (lambda world: world.network.cut("a", "b", one_way=True), []),
        (lambda world: world.network.cut("b", "a", one_way=True), ["0", "1", "2"]),
        (lambda world: world.network.lose("letter"), ["1", "2"]),
        (lambda world: world.network.lose("letter", count=2), ["2"]),
        (lambda world: world.network.lose("letter", target="c"), ["0", "1", "2"]),
        (lambda world: world.network.lose("card"), ["0", "1", "2"]),
        (lambda world: world.network.delay("letter", by_s=500), ["1", "2", "0"]),
    ],
)
def test_faults_touch_what_they_name_and_nothing_else(fault: Callable[[World], object], numbers: list[str]) -> None:
    assert [name for _, name in _landed(fault, times=3)] == numbers


def test_a_slow_endpoint_is_slow_both_ways_until_it_is_not() -> None:
    def slow(world: World) -> None:
        world.network.slow("b", 0.25)
        world.outside(1.5, lambda: world.network.slow("b", 0))

    landed = [round(at_s % 1, 2) for at_s, _ in _landed(slow, times=3)]
    assert landed == [0.25, 0.25, 0.0]


def test_a_cut_between_sending_and_arriving_loses_the_message() -> None:
    def cut_briefly(world: World) -> None:
        world.network.delay("letter", by_s=10)
        world.outside(5, lambda: world.network.cut("a", "b"))
        world.outside(20, world.network.heal)

    assert _landed(cut_briefly) == []


def test_healing_some_links_leaves_the_others_cut() -> None:
    with World() as world:
        world.network.cut("a", ["b", "c"])
        world.network.heal("a", "b")
        assert world.network.passes("a", "b")
        assert not world.network.passes("c", "a")
        world.network.calm()
        assert world.network.passes("c", "a")
