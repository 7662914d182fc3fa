"""One seed, one life of a timeline queue: producers and consumers at work while faults strike at random, then calm.

Everything comes from the seed: who puts what, who fails, which process is paused or killed, which replica stops,
which link is cut, whose clock is off. In the end all that was acknowledged has to be settled, once, none of it early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from penstock.engines.contract import Ack, Message, Nack, Settled
from penstock.errors import PenstockError
from penstock.testing.world import State
from tests.simulation.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline_workers import (
    WORKED,
    Consumer,
    Seen,
    check_seen,
    lanes_ready,
    until_all_settled,
)

STORM_S = 40
STORM_END_S = 60
CALM_WITHIN_S = 300
SKEW_US_MAX = 200_000


def live(seed: int) -> str:
    """Run one seed; its history, for who wants to read it."""

    async def scenario(queue: Queue) -> str:
        await _life(queue)
        return queue.world.history.text()

    return simulate(scenario, seed, settings=WORKED)


async def _life(queue: Queue) -> None:
    chance = queue.world.chance("weather")
    seen = Seen()
    await lanes_ready(queue)
    names = [f"consumer-{number}" for number in range(chance.randint(1, 3))]
    consumers = {name: _consumer(queue, name, seen, chance) for name in names}
    putting = [_put(queue, f"producer-{number}", chance) for number in range(chance.randint(1, 3))]
    storm = _storm(queue, consumers, seen, chance)
    await asyncio.gather(storm, *putting)
    queue.world.network.heal()
    queue.world.network.calm()
    for name, node in queue.cluster.nodes.items():
        if node.process.state is State.PAUSED:
            queue.cluster.go_on(name)
    for consumer in consumers.values():
        if consumer.process.state is State.PAUSED:
            consumer.process.resume()
    _consumer(queue, "last", seen, chance, steady=True)
    await until_all_settled(queue, seen, within_s=CALM_WITHIN_S)
    check_seen(queue, seen)


async def _put(queue: Queue, name: str, chance: Random) -> None:
    client = queue.client(name, ahead_us=chance.randint(-SKEW_US_MAX, SKEW_US_MAX))
    client.process.start(queue.keep_fresh(client))
    until_s = queue.world.now_s() + STORM_S
    number = 0
    while queue.world.now_s() < until_s:
        messages = [_message(client, f"{name}-{number}-{each}", chance) for each in range(chance.randint(1, 4))]
        client.process.start(queue.put(client, *messages))
        number += 1
        await asyncio.sleep(chance.expovariate(2))
    await client.process.start(client.producer.close())


def _message(client: Client, payload: str, chance: Random) -> Message:
    due_us = None
    if chance.random() < 0.2:
        due_us = client.process.clock.wall_us() + int(chance.uniform(0, 20) * SECOND)
    return Message(payload.encode(), due_us=due_us)


def _consumer(queue: Queue, name: str, seen: Seen, chance: Random, *, steady: bool = False) -> Consumer:
    consumer = Consumer(queue, name, seen, ahead_us=chance.randint(-SKEW_US_MAX, SKEW_US_MAX))
    own = queue.world.chance(f"work of {name} {queue.world.now_s()}")
    fails_until_s = 0.0 if steady else STORM_END_S

    async def work() -> None:
        engine = await consumer.open()
        while True:
            try:
                found = await engine.receive(own.randint(1, 20), wait_us=SECOND)
                for each in found:
                    seen.deliveries.append((name, each))
                    if consumer.process.clock.wall_us() < each.due_us:
                        seen.early.append(each.message_id)
                await asyncio.sleep(own.expovariate(10))
                settles: list[Ack | Nack] = []
                for each in found:
                    fails = queue.world.now_s() < fails_until_s and own.random() < 0.1
                    delay_us = int(own.uniform(0, 15) * SECOND)
                    settles.append(Nack(each.receipt, delay_us=delay_us) if fails else Ack(each.receipt))
                seen.tried |= {
                    each.message_id for each, settle in zip(found, settles, strict=True) if isinstance(settle, Ack)
                }
                answers = await engine.settle(settles) if settles else []
                for each, settle, answer in zip(found, settles, answers, strict=True):
                    seen.acked[each.message_id] += isinstance(settle, Ack) and answer is Settled.DONE
            except PenstockError:
                await asyncio.sleep(0.3)

    consumer.process.start(work())
    return consumer


async def _storm(queue: Queue, consumers: dict[str, Consumer], seen: Seen, chance: Random) -> None:
    until_s = queue.world.now_s() + STORM_S
    faults: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: _stop_replica(queue, chance),
        lambda: _cut_replica(queue, chance),
        lambda: _slow_replica(queue, chance),
        lambda: _pause_consumer(consumers, chance),
        lambda: _kill_consumer(queue, consumers, seen, chance),
    ]
    while queue.world.now_s() < until_s:
        await asyncio.sleep(chance.expovariate(1 / 5))
        await chance.choice(faults)()


async def _stop_replica(queue: Queue, chance: Random) -> None:
    queue.cluster.stop(chance.choice(sorted(queue.cluster.nodes)), for_s=chance.uniform(0.5, 15))


async def _cut_replica(queue: Queue, chance: Random) -> None:
    network = queue.world.network
    name = chance.choice(sorted(queue.cluster.nodes))
    others = [each for each in queue.world.processes if each != name]
    network.cut(name, others, one_way=chance.random() < 0.5)
    await asyncio.sleep(chance.uniform(0.5, 12))
    network.heal()


async def _slow_replica(queue: Queue, chance: Random) -> None:
    name = chance.choice(sorted(queue.cluster.nodes))
    queue.world.network.slow(name, chance.uniform(0.05, 1.5))
    await asyncio.sleep(chance.uniform(1, 10))
    queue.world.network.slow(name, 0)


async def _pause_consumer(consumers: dict[str, Consumer], chance: Random) -> None:
    consumer = consumers[chance.choice(sorted(consumers))]
    if consumer.process.state is State.RUNNING:
        consumer.process.pause(for_s=chance.uniform(0.5, 25))


async def _kill_consumer(queue: Queue, consumers: dict[str, Consumer], seen: Seen, chance: Random) -> None:
    name = chance.choice(sorted(consumers))
    if consumers[name].process.state is not State.DEAD:
        consumers[name].process.kill()
    await asyncio.sleep(chance.uniform(0, 8))
    consumers[name] = _consumer(queue, name, seen, chance)
