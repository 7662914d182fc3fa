"""The putting side of a timeline queue under slow answers, skewed clocks, pauses and kills at every step."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from headgate.engines.contract import NewMessage
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, Reader, check, simulate


async def put_for_a_while(queue: Queue, client: Client, name: str, until_s: float, rng: Random) -> None:
    """One caller: single puts, batches, groups and delays, one after the other."""
    number = 0
    while queue.world.now_s() < until_s:
        kind = rng.randrange(5)
        now_us = client.process.clock.wall_us()
        count = rng.randrange(1, 8) if kind == 1 else 1
        messages = [
            NewMessage(
                f"{name}-{number + each}".encode(),
                due_us=now_us + rng.randrange(3 * SECOND) if kind in (2, 4) else None,
                group=name if kind in (3, 4) else None,
                attributes={"a": "b"} if kind == 2 else {},
            )
            for each in range(count)
        ]
        number += count
        await queue.put(client, *messages)
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() * 0.5)


async def finish(queue: Queue, reader: Reader, after_s: float = 20.0) -> None:
    """Let everything fall due, repair, and hold it against what has to be true."""
    queue.world.network.calm()
    await asyncio.sleep(after_s)
    await reader.process.start(reader.turn())
    await reader.process.start(reader.repair())
    check(queue, reader)


async def harm(queue: Queue, clients: list[Client], rng: Random) -> None:
    """Slow nodes, held and lost messages, pauses."""
    network = queue.world.network
    for _ in range(12):
        await asyncio.sleep(rng.random() * 1.5)
        what = rng.randrange(6)
        if what == 0:
            network.slow(f"n{rng.randrange(1, 4)}", rng.random() * 0.6)
        elif what == 1:
            network.delay("write", by_s=rng.random() * 8, count=rng.randrange(1, 12))
        elif what == 2:
            network.lose("answer", count=rng.randrange(1, 4))
        elif what == 3:
            rng.choice(clients).process.pause(for_s=rng.random() * 4)
        elif what == 4:
            network.delay("request", by_s=rng.random() * 4, count=2)
        else:
            network.calm()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_acknowledged_is_delivered_once_and_in_time_whatever_the_clocks_and_the_network_do(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        rng = queue.world.rng("scenario")
        clients = [queue.client("fast", ahead_us=245_000), queue.client("slow", ahead_us=-245_000)]
        reader = Reader(queue, ahead_us=rng.choice([245_000, 0, -245_000]))
        reader.process.start(reader.run())
        callers = [
            client.process.start(put_for_a_while(queue, client, f"{client.host.name}{number}", 15.0, rng))
            for client in clients
            for number in range(4)
        ]
        await harm(queue, clients, rng)
        queue.world.network.calm()
        for caller in callers:
            await caller
        await finish(queue, reader)
        assert len(queue.acknowledged) > 100

    simulate(scenario, seed)


def steps_of_a_put() -> int:
    """How many steps a producer makes until everything of a small scenario is acknowledged."""

    async def scenario(queue: Queue) -> int:
        client = queue.client("producer")
        client.process.count_steps()
        await client.process.start(puts_of_all_kinds(queue, client))
        return client.process.steps

    return simulate(scenario)


async def puts_of_all_kinds(queue: Queue, client: Client) -> None:
    """One of each."""
    now_us = client.process.clock.wall_us()
    await queue.put(client, NewMessage(b"at once"))
    await queue.put(client, NewMessage(b"in a group", group="g"), NewMessage(b"after it", group="g"))
    await queue.put(client, NewMessage(b"later", due_us=now_us + 5 * SECOND))


def test_attack_A13_a_put_killed_before_any_step_leaves_nothing_acknowledged_that_is_not_read() -> None:
    for step in range(1, steps_of_a_put() + 1):

        async def scenario(queue: Queue, step: int = step) -> None:
            client = queue.client("producer")
            reader = Reader(queue)
            reader.process.start(reader.run())
            client.process.kill_before_step(step)
            client.process.start(puts_of_all_kinds(queue, client))
            await finish(queue, reader)

        simulate(scenario)


def test_a_run_of_one_seed_is_the_same_each_time() -> None:
    async def scenario(queue: Queue) -> str:
        client = queue.client("producer")
        await client.process.start(puts_of_all_kinds(queue, client))
        return queue.world.history.digest()

    assert simulate(scenario, 5) == simulate(scenario, 5)
