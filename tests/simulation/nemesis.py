"""Faults by chance, from the seed: what happens to a ring while others work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from headgate.testing.world import State
from tests.simulation.ring import Ring

KINDS = ("request", "answer", "write", "write-ack", "rows", "prepare", "promise", "propose", "accept", "commit")


async def torment(ring: Ring, until_s: float) -> None:
    """One fault after the other, some at once, until a given time; then all is healed, but for what is on its way."""
    chance = ring.world.chance("nemesis")
    acts: tuple[Callable[[], object], ...] = (
        *_losses(ring, chance),
        lambda: _stop(ring, chance.choice(list(ring.cluster.nodes)), chance.uniform(0.1, 6)),
        lambda: _cut(ring, chance.choice(list(ring.cluster.nodes)), chance.uniform(0.5, 12), chance.random() < 0.4),
        lambda: _slow(ring, chance.choice(list(ring.cluster.nodes)), chance.uniform(0.01, 1.5), chance.uniform(1, 8)),
        lambda: ring.world.network.delay(
            chance.choice(KINDS), by_s=chance.choice((0.5, 3, 30)), count=chance.randint(1, 4)
        ),
        lambda: ring.cluster.nodes[chance.choice(list(ring.cluster.nodes))].process.clock.step(chance.uniform(-3, 3)),
    )
    await _act(ring, acts, chance, until_s)


async def lose(ring: Ring, until_s: float) -> None:
    """Only what makes things never happen: messages lost, nodes killed. Nothing is late."""
    chance = ring.world.chance("nemesis")
    await _act(ring, _losses(ring, chance), chance, until_s)


def _losses(ring: Ring, chance: Random) -> tuple[Callable[[], object], ...]:
    return (
        lambda: ring.world.network.lose(chance.choice(KINDS), count=chance.randint(1, 5)),
        lambda: _kill(ring, chance.choice(list(ring.cluster.nodes)), chance.uniform(1, 20)),
        lambda: _kill_in_a_step(ring, chance.choice(list(ring.cluster.nodes)), chance.randint(1, 60)),
    )


async def _act(ring: Ring, acts: tuple[Callable[[], object], ...], chance: Random, until_s: float) -> None:
    while ring.world.now_s() < until_s:
        chance.choice(acts)()
        await asyncio.sleep(chance.expovariate(0.8))
    mend(ring)


def mend(ring: Ring) -> None:
    """End all faults of links and processes."""
    ring.world.network.calm()
    for name, node in ring.cluster.nodes.items():
        ring.cluster.go_on(name)
        if node.process.state is State.DEAD:
            ring.cluster.restart(name)


def _can_go(ring: Ring, name: str) -> bool:
    """Never the last one that runs: this torments the service, and does not end it."""
    running = [each for each, node in ring.cluster.nodes.items() if node.process.state is State.RUNNING]
    return name in running and len(running) > 1


def _stop(ring: Ring, name: str, for_s: float) -> None:
    if not _can_go(ring, name):
        return
    ring.cluster.stop(name, for_s=for_s)


def _kill(ring: Ring, name: str, for_s: float) -> None:
    if not _can_go(ring, name):
        return
    ring.cluster.kill(name)
    ring.world.outside(for_s, lambda: _start_again(ring, name))


def _kill_in_a_step(ring: Ring, name: str, step: int) -> None:
    """In the middle of what it does, and not between two of our own ticks."""
    if not _can_go(ring, name):
        return
    ring.cluster.nodes[name].process.kill_before_step(step)
    ring.world.outside(10, lambda: _start_again(ring, name))


def _start_again(ring: Ring, name: str) -> None:
    if ring.cluster.nodes[name].process.state is State.DEAD:
        ring.cluster.restart(name)


def _cut(ring: Ring, name: str, for_s: float, one_way: bool) -> None:
    others = [other for other in ring.cluster.nodes if other != name]
    ring.world.network.cut(name, others, one_way=one_way)
    ring.world.outside(for_s, lambda: ring.world.network.heal(name, others))


def _slow(ring: Ring, name: str, by_s: float, for_s: float) -> None:
    ring.world.network.slow(name, by_s)
    ring.world.outside(for_s, lambda: ring.world.network.slow(name, 0))
