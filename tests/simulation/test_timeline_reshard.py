"""Another number of shards under load: every message of the old generation is handed out there or moves on, once and
in time, the order of groups holds, and the old lanes are retired (rule R6; attacks A8, A15, C2, D6)."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engines.contract import Message
from tests.simulation.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline_workers import (
    WORKED,
    Catalogue,
    Consumer,
    Seen,
    check_seen,
    lanes_ready,
    until_all_settled,
    until_retired,
)

STALE_S = 55
"""How seldom producers read the catalogue here: nearly as seldom as they may."""


async def read_seldom(queue: Queue, client: Client, every_s: float = STALE_S) -> None:
    """Know of the catalogue what was true up to so long ago."""
    while True:
        await asyncio.sleep(every_s)
        client.producer.settings_changed(queue.settings, read_us=client.process.clock.wall_us())


async def put_for(queue: Queue, name: str, seconds: float, *, every_s: float = 0.5, ahead_s: float = 0.0) -> None:
    """A producer that puts one message after the other, and every third for up to `ahead_s` later."""
    chance = queue.world.chance(f"puts of {name}")
    client = queue.client(name, ahead_us=chance.randint(-200_000, 200_000))
    client.process.start(read_seldom(queue, client))
    until_s = queue.world.now_s() + seconds
    number = 0
    while queue.world.now_s() < until_s:
        due_us = None
        if ahead_s and number % 3 == 0:
            due_us = client.process.clock.wall_us() + int(chance.uniform(1, ahead_s) * SECOND)
        client.process.start(queue.put(client, Message(f"{name}-{number}".encode(), due_us=due_us)))
        number += 1
        await asyncio.sleep(every_s)
    await client.process.start(client.producer.close())


@pytest.mark.parametrize("seed", range(3))
def test_attack_A8_shards_3_to_6_to_2_under_load_lose_nothing_and_retire_the_old_lanes(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        seen = Seen()
        catalogue = Catalogue(queue)
        await lanes_ready(queue)
        for number in range(2):
            Consumer(queue, f"worker-{number}", seen).start(work_s=0.05)
        putting = [
            asyncio.get_running_loop().create_task(put_for(queue, f"producer-{number}", 220, ahead_s=300))
            for number in range(2)
        ]
        await asyncio.sleep(5)
        await catalogue.reshard(6)
        await asyncio.sleep(15)
        await catalogue.reshard(2)
        await asyncio.gather(*putting)
        await until_retired(queue, 1, within_s=60)
        await until_retired(queue, 2, within_s=60)
        await until_all_settled(queue, seen, within_s=600)
        check_seen(queue, seen)

    simulate(scenario, seed, settings=WORKED)
