"""Invariants of every history, whatever the seed: LWTs are linearizable, and acknowledged quorum writes are read.

The register is an epoch that only an LWT moves, from one number to the next, so its whole order is known. No two
writers get an acknowledgement of the same number, and a call that ended before another began has no higher number.
That is linearizability for such a register.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from headgate.errors import Unavailable
from headgate.store.model.statements import Batch, Insert, Select, UpdateIf, is_
from tests.kit.simulated_store import SimulatedStore
from tests.simulation.store.nemesis import heal, lose, torment
from tests.simulation.store.ring import LOCKS, ROWS, SERIAL, Ring, simulate

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "12"))
LASTS_S = 40.0


@dataclass(frozen=True)
class DeliveryLog:
    """One operation that was answered: when it was called, when it ended, and the epoch that it made or read."""

    called_s: float
    ended_s: float
    epoch: int
    made: bool


async def _move(ring: Ring, store: SimulatedStore, objects: list[DeliveryLog], in_doubt: set[int]) -> None:
    """Read the epoch and make the next, again and again, and note what stays in doubt."""
    rng = store.process.rng
    epoch = 0
    while ring.world.now_s() < LASTS_S:
        try:
            called_s = ring.world.now_s()
            rows = await store.read(Select(LOCKS, {"p": "a"}, ["epoch"], consistency=SERIAL), within_s=8)
            epoch = rows[0].epoch
            objects.append(DeliveryLog(called_s, ring.world.now_s(), epoch, made=False))
            await asyncio.sleep(rng.uniform(0, 0.3))
            called_s = ring.world.now_s()
            to = UpdateIf(LOCKS, {"p": "a"}, {"epoch": epoch + 1}, is_("epoch", epoch), attempt=store.process.uuid())
            outcome = await store.decide(to, within_s=8)
            if outcome.resolved and not outcome.applied and outcome.rows[0].epoch != epoch:
                in_doubt.add(epoch + 1)  # not applied, or applied and overwritten since: the store cannot know either
            if outcome.applied:
                objects.append(DeliveryLog(called_s, ring.world.now_s(), epoch + 1, made=True))
        except Unavailable:
            in_doubt.add(epoch + 1)
            await asyncio.sleep(rng.uniform(0, 1))


def _contenders(ring: Ring) -> list[SimulatedStore]:
    """Three clients; in every other run each has a coordinator of its own, so that they meet in Paxos."""
    stores = [ring.client(f"p{number}") for number in range(3)]
    if ring.world.seed % 2:
        for store, name in zip(stores, ring.cluster.nodes, strict=True):
            store.exclude(frozenset(ring.cluster.nodes) - {name})
    return stores


@pytest.mark.parametrize("shuffled", [False, True])
def test_lwts_are_linearizable_under_any_faults(shuffled: bool) -> None:
    made_in_all = 0
    for seed in range(SEEDS):

        async def scenario(ring: Ring) -> tuple[list[DeliveryLog], int]:
            await ring.create_lock()
            objects: list[DeliveryLog] = []
            stores = _contenders(ring)
            tasks = [store.process.start(_move(ring, store, objects, set())) for store in stores]
            await torment(ring, LASTS_S)
            await asyncio.gather(*tasks)
            await asyncio.sleep(60)
            rows = await ring.store.read(Select(LOCKS, {"p": "a"}, ["epoch"], consistency=SERIAL), within_s=60)
            return objects, rows[0].epoch

        objects, last = simulate(scenario, seed, shuffled=shuffled)
        made = [each.epoch for each in objects if each.made]
        assert len(made) == len(set(made)), f"seed {seed}: two writers made the same number"
        assert max(made, default=0) <= last, f"seed {seed}: what was made is gone"
        _check_real_time(seed, objects)
        made_in_all += len(made)
    assert made_in_all > 10 * SEEDS, "the faults leave room for something to happen"


def test_a_process_that_is_reported_that_an_lwt_is_not_its_is_reported_the_truth_if_nothing_is_late() -> None:
    """Each epoch has a writer with an acknowledgement or without any answer."""
    for seed in range(SEEDS):

        async def scenario(ring: Ring) -> tuple[set[int], set[int], int]:
            await ring.create_lock()
            objects: list[DeliveryLog] = []
            in_doubt: set[int] = set()
            stores = _contenders(ring)
            tasks = [store.process.start(_move(ring, store, objects, in_doubt)) for store in stores]
            await lose(ring, LASTS_S)
            await asyncio.gather(*tasks)
            await asyncio.sleep(60)
            rows = await ring.store.read(Select(LOCKS, {"p": "a"}, ["epoch"], consistency=SERIAL), within_s=60)
            return {each.epoch for each in objects if each.made}, in_doubt, rows[0].epoch

        made, in_doubt, last = simulate(scenario, seed)
        orphans = set(range(1, last + 1)) - made - in_doubt
        assert orphans == set(), f"seed {seed}: applied, and its writer got the answer that it was not"


def _check_real_time(seed: int, objects: list[DeliveryLog]) -> None:
    for later in objects:
        before = [earlier.epoch for earlier in objects if earlier.ended_s < later.called_s]
        bound = max(before, default=0) + (1 if later.made else 0)
        assert later.epoch >= bound, f"seed {seed}: {later} after {bound}"


def test_what_was_acknowledged_at_quorum_is_read_by_everybody_under_any_faults() -> None:
    acknowledged_in_all = 0
    for seed in range(SEEDS):

        async def scenario(ring: Ring) -> int:
            acknowledged: dict[str, int] = {}
            count = 0

            async def work(store: SimulatedStore, partition: str) -> None:
                nonlocal count
                for number in range(1, 400):
                    if ring.world.now_s() > LASTS_S:
                        return
                    values = {"p": partition, "c": 1, "v": f"{number:06}"}
                    try:
                        await store.write(Insert(ROWS, values, timestamp_us=number), within_s=5)
                        acknowledged[partition] = number
                        count += 1
                    except Unavailable:
                        pass
                    await asyncio.sleep(store.process.rng.uniform(0, 0.2))

            async def inspection(store: SimulatedStore) -> None:
                while ring.world.now_s() < LASTS_S:
                    partition = store.process.rng.choice("xyz")
                    least = acknowledged.get(partition, 0)
                    try:
                        rows = await store.read(Select(ROWS, {"p": partition}, ["v"]), within_s=5)
                    except Unavailable:
                        continue
                    assert int(rows[0].v if rows else 0) >= least, f"seed {ring.world.seed}"
                    await asyncio.sleep(store.process.rng.uniform(0, 0.2))

            works = [ring.client(f"w{partition}") for partition in "xyz"]
            checks = [ring.client(f"l{number}") for number in range(2)]
            tasks = [store.process.start(work(store, store.process.name[1])) for store in works]
            tasks += [store.process.start(inspection(store)) for store in checks]
            await torment(ring, LASTS_S)
            await asyncio.gather(*tasks)
            for partition, least in acknowledged.items():
                rows = await ring.store.read(Select(ROWS, {"p": partition}, ["v"]), within_s=60)
                assert int(rows[0].v) >= least, f"seed {ring.world.seed}"
            return count

        acknowledged_in_all += simulate(scenario, seed)
    assert acknowledged_in_all > 30 * SEEDS


def test_logged_batches_are_all_or_nothing_in_the_end_under_any_faults() -> None:
    for seed in range(SEEDS):

        async def scenario(ring: Ring) -> None:
            for number in range(1, 60):
                parts = [ring.insert("x", p=f"{side}{number}") for side in "ab"]
                with contextlib.suppress(Unavailable):
                    await ring.store.attempt(Batch(parts, logged=True), 3)
                await asyncio.sleep(0.1)

        async def tormented(ring: Ring) -> None:
            task = ring.store.process.start(scenario(ring))
            await lose(ring, 20)
            await task
            heal(ring)
            await asyncio.sleep(300)
            for number in range(1, 60):
                sides = [await ring.get(p=f"{side}{number}") for side in "ab"]
                assert sides[0] == sides[1], f"seed {ring.world.seed}: half of batch {number} stayed"

        simulate(tormented, seed)


_PRINT_A_HISTORY = """
import sys
from tests.simulation.store.test_store_histories import history_of
print(history_of(int(sys.argv[1])))
"""


def history_of(seed: int) -> str:
    """A short run with faults and everything in it, as text."""

    async def scenario(ring: Ring) -> str:
        ring.world.history.traced = True
        await ring.create_lock()
        objects: list[DeliveryLog] = []
        stores = [ring.client(f"p{number}") for number in range(2)]
        tasks = [store.process.start(_move(ring, store, objects, set())) for store in stores]
        for number in range(20):
            try:
                await ring.store.attempt(
                    Batch([ring.insert("x", p="a", c=number), ring.insert("y", p="b", c=number)], logged=True), 2
                )
            except Unavailable as error:
                ring.store.process.note("failed", str(error))
        await torment(ring, LASTS_S)
        await asyncio.gather(*tasks)
        return ring.world.history.text()

    return simulate(scenario, seed, shuffled=True)


def test_the_same_seed_gives_the_same_history_in_any_process() -> None:
    local = history_of(7)
    assert len(local.splitlines()) > 1_000
    assert local == history_of(7)
    assert local != history_of(8)
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        there = subprocess.run(
            [sys.executable, "-c", _PRINT_A_HISTORY, "7"], env=environment, capture_output=True, text=True, check=True
        )
        assert there.stdout.rstrip("\n") == local
