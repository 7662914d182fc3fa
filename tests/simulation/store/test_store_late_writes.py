"""Writes that land late or never: hints, logged batches (attacks A4, A5), and deleted rows that come back (B3)."""

from __future__ import annotations

import asyncio

import pytest

from headgate.store.model.statements import Batch, Delete, Insert
from tests.kit.simulated_store import Settings
from tests.simulation.store.ring import ALL, DAY_S, ONE, ROWS, Ring, ends_unknown, simulate

PATIENT = Settings(speculative_retry_s=None)


async def _down_then_back(ring: Ring, name: str, down_s: float) -> None:
    """A replica is down while something is written, and comes back."""
    ring.cluster.kill(name)
    await asyncio.sleep(60)
    await ring.store.write(ring.insert("x"))
    await asyncio.sleep(down_s)
    ring.cluster.restart(name)


def test_a_replica_that_was_unavailable_gets_what_it_missed_by_hint() -> None:
    async def scenario(ring: Ring) -> None:
        await _down_then_back(ring, "n3", 600)
        assert ring.holders() == {"n1", "n2"}
        await asyncio.sleep(30)
        assert ring.holders() == {"n1", "n2", "n3"}

    simulate(scenario)


def test_a_hint_can_land_hours_later() -> None:
    async def scenario(ring: Ring) -> None:
        await _down_then_back(ring, "n3", 60)
        ring.cluster.hold_hints()
        await asyncio.sleep(5 * 3600)
        assert ring.holders() == {"n1", "n2"}
        ring.cluster.release_hints()
        await asyncio.sleep(30)
        assert ring.holders() == {"n1", "n2", "n3"}

    simulate(scenario)


@pytest.mark.parametrize(("held_s", "lands"), [(DAY_S - 600, True), (DAY_S + 600, False)])
def test_a_hint_older_than_gc_grace_is_dropped(held_s: float, lands: bool) -> None:
    async def scenario(ring: Ring) -> bool:
        await _down_then_back(ring, "n3", 30)
        ring.cluster.hold_hints()
        await asyncio.sleep(held_s)
        ring.cluster.release_hints()
        await asyncio.sleep(60)
        return "n3" in ring.holders()

    assert simulate(scenario) is lands


def test_a_replica_unavailable_for_longer_than_the_hint_window_gets_none() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.kill("n3")
        await asyncio.sleep(4 * 3600)
        await ring.store.write(ring.insert("x"))
        ring.cluster.restart("n3")
        await asyncio.sleep(600)
        assert ring.holders() == {"n1", "n2"}

    simulate(scenario)


def test_hints_die_with_nothing_but_the_disk_of_their_coordinator() -> None:
    async def scenario(ring: Ring) -> None:
        await _down_then_back(ring, "n3", 30)
        for name in ("n1", "n2"):
            ring.cluster.kill(name)
        await asyncio.sleep(60)
        assert ring.holders() == {"n1", "n2"}
        for name in ("n1", "n2"):
            ring.cluster.restart(name)
        await asyncio.sleep(60)
        assert ring.holders() == {"n1", "n2", "n3"}

    simulate(scenario)


async def _log_a_batch_and_lose_its_writes(ring: Ring) -> None:
    """Its keepers have it, no replica has any of it, and its coordinator dies before it can leave a hint."""
    ring.world.network.lose("write", count=6)
    batch = Batch([ring.insert("x", p="a"), ring.insert("x", p="b")], logged=True)
    ring.store.exclude(frozenset({"n2", "n3"}))
    task = ring.store.process.start(ring.store.attempt(batch, 10))
    await asyncio.sleep(0.5)
    ring.cluster.kill("n1")
    assert await ends_unknown(_awaited(task))
    assert ring.holders(p="a") == ring.holders(p="b") == set()


async def _awaited(task: asyncio.Task[object]) -> object:
    return await task


def test_a_logged_batch_lands_minutes_later_and_whole() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.hold_batchlog()
        await _log_a_batch_and_lose_its_writes(ring)
        await asyncio.sleep(3600)
        assert ring.holders(p="a") == ring.holders(p="b") == set()
        ring.cluster.release_batchlog()
        await asyncio.sleep(60)
        assert ring.holders(p="a") == ring.holders(p="b") == {"n2", "n3"}
        ring.cluster.restart("n1")
        await asyncio.sleep(60)
        assert ring.holders(p="a") == {"n1", "n2", "n3"}, "and by hint to the node that was down"

    simulate(scenario)


def test_attack_a5_with_gc_grace_0_half_of_a_logged_batch_stays() -> None:
    async def scenario(ring: Ring) -> tuple[set[str], set[str]]:
        ring.cluster.alter_gc_grace(ROWS, 0)
        ring.store.exclude(frozenset({"n2", "n3"}))
        ring.world.network.delay("write", by_s=1000, count=3)
        batch = Batch([ring.insert("x", p="a"), ring.insert("x", p="b")], logged=True)
        task = ring.store.process.start(ring.store.attempt(batch, 10))
        await asyncio.sleep(0.5)
        ring.cluster.kill("n1")
        for name in ("n2", "n3"):
            ring.cluster.kill(name)  # what is held on its way to them is lost with the connection
            ring.cluster.restart(name)
        await ends_unknown(_awaited(task))
        await asyncio.sleep(2 * 3600)
        return ring.holders(p="a"), ring.holders(p="b")

    first, second = simulate(scenario)
    assert first == set(), "neither replay nor hint brought it"
    assert {"n2", "n3"} <= second


def test_with_gc_grace_0_no_hint_is_kept() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.alter_gc_grace(ROWS, 0)
        await _down_then_back(ring, "n3", 60)
        await asyncio.sleep(600)
        assert ring.holders() == {"n1", "n2"}

    simulate(scenario)


def test_an_unlogged_batch_of_several_partitions_can_stay_half() -> None:
    async def scenario(ring: Ring) -> tuple[set[str], set[str]]:
        ring.cluster.hold_hints()
        ring.world.network.lose("write", count=3)
        batch = Batch([ring.insert("x", p="a"), ring.insert("x", p="b")])
        assert await ends_unknown(ring.store.attempt(batch, 10))
        return ring.holders(p="a"), ring.holders(p="b")

    assert simulate(scenario) == (set(), {"n1", "n2", "n3"})


def test_a_batch_on_one_partition_is_one_write_on_each_replica() -> None:
    async def scenario(ring: Ring) -> None:
        ring.cluster.hold_hints()
        ring.world.network.lose("write", target="n1")
        batch = Batch([ring.insert("x", c=1), ring.insert("y", c=2)], consistency=ONE)
        await ring.store.attempt(batch, 10)
        await asyncio.sleep(1)
        assert ring.held_by("n1") == []
        assert ring.held_by("n2") == ring.held_by("n3") == ["x", "y"]

    simulate(scenario)


@pytest.mark.parametrize("gone", ["n1", "n2", "n3"])
def test_what_was_deleted_comes_back_from_a_replica_that_missed_it_once_the_others_have_purged(gone: str) -> None:
    async def scenario(ring: Ring) -> list[str]:
        await ring.put("zombie", to=ALL)
        ring.cluster.kill(gone)
        await asyncio.sleep(4 * 3600)  # beyond the hint window
        await ring.store.write(_removal(ring))
        assert await ring.get() == []
        await asyncio.sleep(DAY_S + 60)
        for name in ring.cluster.nodes:
            if name != gone:
                ring.cluster.purge(name)
        ring.cluster.restart(gone)
        ring.store.exclude(frozenset())
        return await ring.get(to=ALL)

    assert simulate(scenario) == ["zombie"]


@pytest.mark.parametrize("purged", [False, True])
def test_within_gc_grace_the_tombstone_wins_whichever_process_comes_back(purged: bool) -> None:
    async def scenario(ring: Ring) -> None:
        await ring.put("zombie", to=ALL)
        ring.cluster.kill("n3")
        await asyncio.sleep(4 * 3600)
        await ring.store.write(_removal(ring))
        await asyncio.sleep(DAY_S / 2)
        if purged:
            ring.cluster.purge("n1")
            ring.cluster.purge("n2")
        ring.cluster.restart("n3")
        assert await ring.get(to=ALL) == []
        await asyncio.sleep(2 * DAY_S)
        for name in ring.cluster.nodes:
            ring.cluster.purge(name)
        assert await ring.get(to=ALL) == []

    simulate(scenario)


def test_a_tombstone_past_gc_grace_is_not_reported_even_before_it_is_purged() -> None:
    """Cassandra leaves purgeable tombstones out of its answers, so a replica that missed it wins at once."""

    async def scenario(ring: Ring) -> list[str]:
        await ring.put("zombie", to=ALL)
        ring.cluster.kill("n3")
        await asyncio.sleep(4 * 3600)
        await ring.store.write(_removal(ring))
        await asyncio.sleep(DAY_S + 60)
        ring.cluster.restart("n3")
        return await ring.get(to=ALL)

    assert simulate(scenario) == ["zombie"]


def test_an_old_write_sent_again_after_the_purge_lives_again() -> None:
    async def scenario(ring: Ring) -> tuple[list[str], list[str]]:
        write = ring.insert("again", to=ALL)
        await ring.store.write(write)
        await asyncio.sleep(1)
        await ring.remove(to=ALL)
        await ring.store.write(write)
        shadowed = await ring.get(to=ALL)
        await asyncio.sleep(DAY_S + 60)
        for name in ring.cluster.nodes:
            ring.cluster.purge(name)
        await ring.store.write(write)
        return shadowed, await ring.get(to=ALL)

    assert simulate(scenario) == ([], ["again"])


@pytest.mark.parametrize(("timestamp_us", "left"), [(5, 2), (None, 1)])
def test_a_tombstone_stays_while_a_younger_write_of_its_partition_has_a_lower_timestamp(
    timestamp_us: int | None, left: int
) -> None:
    """It could cover that write, which lies in memory or in a file outside of the compaction."""

    async def scenario(ring: Ring) -> int:
        await ring.store.write(ring.insert("short", c=1, ttl_s=10))
        await asyncio.sleep(DAY_S + 60)
        young = {"p": "a", "c": 2, "v": "young"}
        await ring.store.write(Insert(ROWS, young, timestamp_us=timestamp_us or ring.now_us(), ttl_s=3600))
        ring.cluster.purge("n1")
        (held,) = ring.cluster.nodes["n1"].replica.tables["rows"].values()
        return len(held.partition.rows)

    assert left == simulate(scenario)


def test_a_late_write_below_a_deletion_stays_hidden() -> None:
    async def scenario(ring: Ring) -> list[str]:
        ring.cluster.hold_hints()
        ring.world.network.delay("write", by_s=600, count=3)
        assert await ends_unknown(ring.put("late"))
        await ring.remove()
        await asyncio.sleep(1200)
        return await ring.get(to=ALL)

    assert simulate(scenario) == []


def _removal(ring: Ring) -> Delete:
    return Delete(ROWS, {"p": "a", "c": 1}, timestamp_us=ring.now_us())
