"""Plain batches: one partition is one mutation, several are sent together, logged ones wholly."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headgate.store.model.shapes import insert_shape
from headgate.store.model.statements import Batch, Delete, Insert, RowsOf, Select, Slice, SliceBound, Update
from tests.contract.store.tables import COMPOSITE, LOG, PAIRS
from tests.contract.store.worlds import ALL, World

SOON_S = 5
"""A life that ends soon, and not while a busy machine is still about to read."""


@pytest.mark.parametrize("logged", [False, True], ids=["unlogged", "logged"])
async def test_a_batch_writes_all_its_partitions_and_tables(world: World, logged: bool) -> None:
    first, second, at = world.key(), world.key(), world.now_us()
    parts = (
        Insert(LOG, {"p": first, "c": 1, "v": "a"}, timestamp_us=at),
        Insert(LOG, {"p": second, "c": 2, "v": "b"}, timestamp_us=at),
        Insert(PAIRS, {"p": first, "a": 1, "b": 2, "v": "c"}, timestamp_us=at),
    )
    await world.store.write(Batch(parts, logged=logged, consistency=ALL))
    assert [(1, "a")] == await world.rows(LOG, first, "c", "v")
    assert [(2, "b")] == await world.rows(LOG, second, "c", "v")
    assert [(1, 2, "c")] == await world.rows(PAIRS, first, "a", "b", "v")


async def test_each_part_of_a_batch_keeps_its_own_timestamp_and_life(world: World) -> None:
    p, at = world.key(), world.now_us()
    parts = (
        Update(LOG, {"p": p, "c": 1}, {"v": "late"}, timestamp_us=at + 9),
        Update(LOG, {"p": p, "c": 1}, {"v": "early", "n": 1}, timestamp_us=at),
        Insert(LOG, {"p": p, "c": 2, "v": "brief"}, timestamp_us=at, ttl_s=1),
    )
    await world.store.write(Batch(parts, consistency=ALL))
    await world.advance(2)
    assert [(1, "late", 1)] == await world.rows(LOG, p, "c", "v", "n")


async def test_a_batch_deletes_below_and_writes_above(world: World) -> None:
    """A collector's batch: what it has folded goes, what it writes stays, whatever the order of the parts."""
    p, at = world.key(), world.now_us()
    for c in range(1, 5):
        await world.insert(LOG, {"p": p, "c": c, "n": c}, at)
    parts = (
        Insert(LOG, {"p": p, "c": 0, "n": 6}, timestamp_us=at + 5),
        Delete(LOG, {"p": p}, timestamp_us=at + 4, within=Slice("c", upper=SliceBound(3, inclusive=True))),
    )
    for _ in range(2):
        await world.store.write(Batch(parts, consistency=ALL))
    assert [(0, 6), (4, 4)] == await world.rows(LOG, p, "c", "n")


@pytest.mark.parametrize("names", [("p", "c", "v"), ("p", "c", "v", "n")], ids=["two each", "three each"])
async def test_rows_given_by_what_they_add_are_the_same_as_a_batch_of_them(
    world: World, names: tuple[str, ...]
) -> None:
    p, at = world.key(), world.now_us()
    shape = insert_shape(LOG, names, False)
    tails = [(c, f"row {c}", -c)[: len(names) - 1] for c in range(150)]
    stamps = [(at, 3600)] * 100 + [(at + 1, SOON_S)] * 50
    rows = RowsOf(shape, (p,), tails, stamps)
    await world.store.write(rows)
    expected = [(c, f"row {c}", -c if len(names) > 3 else None) for c in range(150)]
    assert expected == await world.rows(LOG, p, "c", "v", "n")
    await world.store.write(Batch(rows.statements))
    assert expected == await world.rows(LOG, p, "c", "v", "n")
    await world.advance(SOON_S + 1)
    assert expected[:100] == await world.rows(LOG, p, "c", "v", "n")


@pytest.mark.parametrize("names", [("p", "c", "v"), ("p", "c", "v", "n")], ids=["two each", "three each"])
async def test_rows_that_are_reported_together_may_stay_for_ever(world: World, names: tuple[str, ...]) -> None:
    p, at = world.key(), world.now_us()
    tails = [(c, f"row {c}", -c)[: len(names) - 1] for c in range(20)]
    await world.store.write(RowsOf(insert_shape(LOG, names, False), (p,), tails, [(at, None)] * 20))
    await world.advance(2)
    expected = [(c, f"row {c}", -c if len(names) > 3 else None) for c in range(20)]
    assert expected == await world.rows(LOG, p, "c", "v", "n")


async def test_a_batch_of_many_rows_of_one_partition_is_whole(world: World) -> None:
    p, at = world.key(), world.now_us()
    rows = [Insert(LOG, {"p": p, "c": c, "v": "x" * 500}, timestamp_us=at) for c in range(500)]
    await world.store.write(Batch(rows, consistency=ALL))
    assert [(c,) for c in range(500)] == await world.rows(LOG, p, "c")


async def test_a_batch_writes_static_cells_with_rows(world: World) -> None:
    p, at = world.key(), world.now_us()
    parts = (
        Update(LOG, {"p": p}, {"s": "shared"}, timestamp_us=at),
        Insert(LOG, {"p": p, "c": 1}, timestamp_us=at),
        Delete(LOG, {"p": p, "c": 1}, timestamp_us=at),
    )
    await world.store.write(Batch(parts, consistency=ALL))
    assert [(None, "shared")] == await world.rows(LOG, p, "c", "s")


async def test_a_partition_key_of_two_columns_reports_partitions_apart(world: World) -> None:
    queue, at = uuid4(), world.now_us()
    parts = [
        Insert(COMPOSITE, {"shard": shard, "queue": queue, "v": str(shard)}, timestamp_us=at) for shard in (0, 1, 256)
    ]
    await world.store.write(Batch(parts, consistency=ALL))
    await world.store.write(Delete(COMPOSITE, {"queue": queue, "shard": 1}, timestamp_us=at, consistency=ALL))
    matches = [
        [row.v for row in await world.store.read(Select(COMPOSITE, {"queue": queue, "shard": shard}))]
        for shard in (0, 1, 256)
    ]
    assert [["0"], [], ["256"]] == matches
