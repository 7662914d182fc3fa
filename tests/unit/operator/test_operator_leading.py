"""The Lease: one leads, nobody acts on an old promise, and the other takes over in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import NAMESPACE
from headgate_operator.process.leader_election import MARGIN_S, POLL_EVERY_S, TTL_S, LeaderElection
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_world import Process, World

SYSTEM = "headgate-system"


class Candidates:
    """An API server and the candidates for leadership."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = SimulatedApi(world)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
        self.api.server.must(ApiRequest("create", NAMESPACE, body=body, query={"fieldManager": "test"}))

    def cut(self, name: str, *, for_s: float) -> None:
        network, server = self.world.network, self.api.process.name
        network.cut(name, server)
        self.world.outside(for_s, lambda: network.heal(name, [server]))

    def start(self, name: str) -> tuple[Process, LeaderElection]:
        process = self.world.process(name)
        leading = LeaderElection(
            SimulatedCluster(self.api, process),
            namespace=SYSTEM,
            identity=name,
            boot_s=process.clock.boottime_s,
            wall_us=process.clock.wall_us,
            rng=process.rng,
        )
        process.start(leading.keep())
        return process, leading


def run(scenario: Callable[[Candidates], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        world.run(scenario(Candidates(world)))


async def until(world: World, holds: Callable[[], bool], within_s: float) -> float:
    began_s = world.now_s()
    while not holds():
        assert world.now_s() - began_s <= within_s
        await asyncio.sleep(0.05)
    return world.now_s() - began_s


def test_of_two_one_leads_and_continues_leading() -> None:
    async def scenario(candidates: Candidates) -> None:
        (_, one), (_, two) = candidates.start("one"), candidates.start("two")
        await until(candidates.world, lambda: one.may_act() or two.may_act(), 5)
        for _ in range(300):
            await asyncio.sleep(0.5)
            assert 1 == one.may_act() + two.may_act()
        assert {one.holder(), two.holder()} in ({"one"}, {"two"})

    run(scenario)


def test_a_process_that_is_killed_is_followed_within_the_length_of_the_lease_and_a_check() -> None:
    async def scenario(candidates: Candidates) -> None:
        process, one = candidates.start("one")
        await until(candidates.world, one.may_act, 5)
        _, two = candidates.start("two")
        await asyncio.sleep(10)
        process.kill()
        waited_s = await until(candidates.world, two.may_act, TTL_S + 2 * POLL_EVERY_S)
        assert waited_s > MARGIN_S

    run(scenario)


def test_a_process_that_gives_up_is_followed_at_once() -> None:
    async def scenario(candidates: Candidates) -> None:
        process, one = candidates.start("one")
        await until(candidates.world, one.may_act, 5)
        _, two = candidates.start("two")
        await asyncio.sleep(5)
        await process.start(one.give_up())
        assert not one.may_act()
        process.kill()
        await until(candidates.world, two.may_act, POLL_EVERY_S + 0.5)

    run(scenario)


def test_cut_from_the_api_nothing_is_begun_once_the_promise_is_over_and_continues_after_it() -> None:
    async def scenario(candidates: Candidates) -> None:
        _, one = candidates.start("one")
        await until(candidates.world, one.may_act, 5)
        candidates.world.network.cut("one", candidates.api.process.name)
        await until(candidates.world, lambda: not one.may_act(), TTL_S - MARGIN_S + 0.1)
        candidates.world.network.heal("one", [candidates.api.process.name])
        await until(candidates.world, one.may_act, 6)
        assert not one.lost.is_set()

    run(scenario)


def test_two_never_act_at_once_whatever_is_cut_and_paused() -> None:
    async def scenario(candidates: Candidates) -> None:
        (first, one), (second, two) = candidates.start("one"), candidates.start("two")
        rng = candidates.world.rng("pauses")
        for _ in range(200):
            await asyncio.sleep(rng.uniform(0.1, 3))
            assert one.may_act() + two.may_act() <= 1
            struck = rng.choice((first, second))
            if rng.random() < 0.2:
                struck.pause(for_s=rng.uniform(1, 25))
            elif rng.random() < 0.2:
                candidates.cut(struck.name, for_s=10)

    run(scenario)


def test_a_process_that_lost_it_to_another_reports_it() -> None:
    async def scenario(candidates: Candidates) -> None:
        process, one = candidates.start("one")
        await until(candidates.world, one.may_act, 5)
        _, two = candidates.start("two")
        await asyncio.sleep(5)
        process.pause(for_s=40)
        await until(candidates.world, two.may_act, TTL_S + 2 * POLL_EVERY_S)
        await until(candidates.world, one.lost.is_set, 45)
        assert not one.may_act()

    run(scenario)
