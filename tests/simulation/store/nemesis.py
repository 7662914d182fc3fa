"""Faults by chance, from the seed: what happens to a ring while others work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from tests.kit.simulated_world import ProcessState
from tests.simulation.store.ring import Ring

KINDS = ("request", "answer", "write", "write-ack", "rows", "prepare", "promise", "propose", "accept", "commit")


async def torment(ring: Ring, until_s: float) -> None:
    """One fault after the other, some at once, until a given time; then all is healed, but for what is on its way."""
    rng = ring.world.rng("nemesis")
    acts: tuple[Callable[[], object], ...] = (
        *_losses(ring, rng),
        lambda: _stop(ring, rng.choice(list(ring.cluster.nodes)), rng.uniform(0.1, 6)),
        lambda: _cut(ring, rng.choice(list(ring.cluster.nodes)), rng.uniform(0.5, 12), rng.random() < 0.4),
        lambda: _slow(ring, rng.choice(list(ring.cluster.nodes)), rng.uniform(0.01, 1.5), rng.uniform(1, 8)),
        lambda: ring.world.network.delay(rng.choice(KINDS), by_s=rng.choice((0.5, 3, 30)), count=rng.randint(1, 4)),
        lambda: ring.cluster.nodes[rng.choice(list(ring.cluster.nodes))].process.clock.step(rng.uniform(-3, 3)),
    )
    await _act(ring, acts, rng, until_s)


async def lose(ring: Ring, until_s: float) -> None:
    """Only what makes things never happen: messages lost, nodes killed. Nothing is late."""
    rng = ring.world.rng("nemesis")
    await _act(ring, _losses(ring, rng), rng, until_s)


def _losses(ring: Ring, rng: Random) -> tuple[Callable[[], object], ...]:
    return (
        lambda: ring.world.network.lose(rng.choice(KINDS), count=rng.randint(1, 5)),
        lambda: _kill(ring, rng.choice(list(ring.cluster.nodes)), rng.uniform(1, 20)),
        lambda: _kill_in_a_step(ring, rng.choice(list(ring.cluster.nodes)), rng.randint(1, 60)),
    )


async def _act(ring: Ring, acts: tuple[Callable[[], object], ...], rng: Random, until_s: float) -> None:
    while ring.world.now_s() < until_s:
        rng.choice(acts)()
        await asyncio.sleep(rng.expovariate(0.8))
    heal(ring)


def heal(ring: Ring) -> None:
    """End all faults of links and processes."""
    ring.world.network.calm()
    for name, node in ring.cluster.nodes.items():
        ring.cluster.go_on(name)
        if node.process.state is ProcessState.DEAD:
            ring.cluster.restart(name)


def _can_go(ring: Ring, name: str) -> bool:
    """Never the last one that runs: this torments the service, and does not end it."""
    running = [each for each, node in ring.cluster.nodes.items() if node.process.state is ProcessState.RUNNING]
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
    if ring.cluster.nodes[name].process.state is ProcessState.DEAD:
        ring.cluster.restart(name)


def _cut(ring: Ring, name: str, for_s: float, one_way: bool) -> None:
    others = [other for other in ring.cluster.nodes if other != name]
    ring.world.network.cut(name, others, one_way=one_way)
    ring.world.outside(for_s, lambda: ring.world.network.heal(name, others))


def _slow(ring: Ring, name: str, by_s: float, for_s: float) -> None:
    ring.world.network.slow(name, by_s)
    ring.world.outside(for_s, lambda: ring.world.network.slow(name, 0))
