"""When a row is there: by its marker or by a cell; and the cells that a partition has once."""

from __future__ import annotations

from uuid import UUID, uuid4

from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select, Slice, SliceBound
from tests.contract.store.tables import COMPOSITE, LOG, TIES
from tests.contract.store.worlds import World


async def test_a_row_that_was_only_updated_goes_with_its_last_cell(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.update(LOG, {"p": p, "c": 1}, {"v": "v", "n": 1}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"v": None}, at + 1)
    assert [(1, None, 1)] == await world.rows(LOG, p, "c", "v", "n")
    await world.update(LOG, {"p": p, "c": 1}, {"n": None}, at + 1)
    assert [] == await world.rows(LOG, p, "c")


async def test_a_row_that_was_inserted_stays_without_cells(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "v"}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"v": None}, at + 1)
    assert [(1, None, None)] == await world.rows(LOG, p, "c", "v", "n")


async def test_an_insert_of_the_key_alone_makes_a_row(world: World) -> None:
    p = world.key()
    await world.insert(LOG, {"p": p, "c": 1}, world.now_us())
    assert [(1, None)] == await world.rows(LOG, p, "c", "v")


async def test_an_insert_of_nulls_makes_a_row_and_removes_older_cells(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.update(LOG, {"p": p, "c": 1}, {"v": "v", "n": 1}, at)
    await world.insert(LOG, {"p": p, "c": 1, "v": None}, at + 1)
    assert [(1, None, 1)] == await world.rows(LOG, p, "c", "v", "n")


async def test_an_update_to_null_makes_no_row(world: World) -> None:
    p = world.key()
    await world.update(LOG, {"p": p, "c": 1}, {"v": None}, world.now_us())
    assert [] == await world.rows(LOG, p, "c")


async def test_the_marker_goes_by_timestamps_too(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.delete(LOG, {"p": p, "c": 1}, at)
    await world.insert(LOG, {"p": p, "c": 1}, at)
    assert [] == await world.rows(LOG, p, "c")
    await world.insert(LOG, {"p": p, "c": 1}, at + 1)
    assert [(1,)] == await world.rows(LOG, p, "c")


async def test_a_static_cell_shows_in_every_row(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "a"}, at)
    await world.insert(LOG, {"p": p, "c": 2, "v": "b", "s": "shared"}, at)
    assert [(1, "a", "shared"), (2, "b", "shared")] == await world.rows(LOG, p, "c", "v", "s")


async def test_a_partition_of_static_cells_alone_reads_as_one_row_without_clustering(world: World) -> None:
    p = world.key()
    await world.update(LOG, {"p": p}, {"s": "alone"}, world.now_us())
    assert [(p, None, None, "alone")] == await world.rows(LOG, p, "p", "c", "v", "s")


async def test_an_insert_of_static_cells_makes_no_row(world: World) -> None:
    p = world.key()
    await world.insert(LOG, {"p": p, "s": "alone", "t": 1}, world.now_us())
    assert [(None, "alone", 1)] == await world.rows(LOG, p, "c", "s", "t")


async def test_static_cells_alone_are_not_in_a_slice_of_rows(world: World) -> None:
    p = world.key()
    await world.update(LOG, {"p": p}, {"s": "alone"}, world.now_us())
    above = Slice("c", lower=SliceBound(0, inclusive=True))
    assert [] == await world.rows(LOG, p, "c", "s", within=above)


async def test_a_slice_that_meets_no_row_shows_no_static_cell(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "a", "s": "shared"}, at)
    assert [] == await world.rows(LOG, p, "c", "s", within=Slice("c", lower=SliceBound(2, inclusive=True)))
    assert [] == [tuple(row) for row in await world.store.read(Select(LOG, {"p": p, "c": 5}, ("c", "s")))]


async def test_deleting_the_last_row_leaves_the_static_cells(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "a", "s": "shared"}, at)
    await world.delete(LOG, {"p": p, "c": 1}, at + 1)
    assert [(None, "shared")] == await world.rows(LOG, p, "c", "s")


async def test_a_table_without_clustering_has_one_row_a_partition(world: World) -> None:
    queue, at = uuid4(), world.now_us()
    for shard in (0, 1):
        await world.insert(COMPOSITE, {"queue": queue, "shard": shard, "v": f"shard {shard}"}, at)
    result = await world.store.read(Select(COMPOSITE, {"queue": queue, "shard": 1}, ("shard", "v")))
    assert [(1, "shard 1")] == [tuple(row) for row in result]


async def test_values_come_back_as_they_were_written(world: World) -> None:
    p = world.key()
    values = {
        "a_boolean": True,
        "a_int": -(2**31),
        "a_bigint": 2**63 - 1,
        "a_double": -0.1,
        "a_text": "zwölf Boxkämpfer \U0001f94a \x00",
        "a_blob": bytes(range(256)),
        "a_uuid": UUID("ffffffff-ffff-4fff-bfff-ffffffffffff"),
        "a_timeuuid": UUID("01020304-0506-1708-8090-a0b0c0d0e0f0"),
    }
    await world.insert(TIES, {"p": p, "c": 1, **values}, world.now_us())
    assert [tuple(values.values())] == await world.rows(TIES, p, *values)


async def test_empty_text_and_bytes_are_not_null(world: World) -> None:
    p = world.key()
    await world.insert(TIES, {"p": p, "c": 1, "a_text": "", "a_blob": b""}, world.now_us())
    assert [("", b"")] == await world.rows(TIES, p, "a_text", "a_blob")


async def test_a_large_value_is_kept_whole(world: World) -> None:
    p, large = world.key(), bytes(range(256)) * 8 * 1024
    await world.insert(TIES, {"p": p, "c": 1, "a_blob": large}, world.now_us())
    assert [(large,)] == await world.rows(TIES, p, "a_blob", consistency=Consistency.ALL)


async def test_a_partition_that_was_never_written_is_empty(world: World) -> None:
    assert [] == await world.rows(LOG, world.key())


async def test_partitions_that_are_read_together_are_those_that_are_read_alone(world: World) -> None:
    keys, at = [world.key() for _ in range(5)], world.now_us()
    for number, p in enumerate(keys[:-1]):
        for c in range(number + 1):
            await world.insert(LOG, {"p": p, "c": c, "v": f"{number}"}, at)
    selects = [Select(LOG, {"p": p}, ("p", "c", "v")) for p in keys]
    alone = [tuple(row) for select in selects for row in await world.store.read(select)]
    for count in (1, 2, 5):
        together = [tuple(row) for row in await world.store.read_together(selects[-count:])]
        assert sorted(row for row in alone if row[0] in keys[-count:]) == sorted(together)


async def test_parts_of_partitions_that_are_read_together_stay_parts(world: World) -> None:
    keys, at = [world.key() for _ in range(2)], world.now_us()
    for p in keys:
        for c in range(3):
            await world.insert(LOG, {"p": p, "c": c, "v": "v"}, at)
    limited = [Select(LOG, {"p": p}, ("p", "c"), limit=1) for p in keys]
    rows = [Select(LOG, {"p": p, "c": 2}, ("p", "c")) for p in keys]
    assert sorted((p, 0) for p in keys) == sorted(map(tuple, await world.store.read_together(limited)))
    assert sorted((p, 2) for p in keys) == sorted(map(tuple, await world.store.read_together(rows)))
