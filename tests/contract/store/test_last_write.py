"""Which write of a cell counts: the latest timestamp; among equal ones a tombstone, then what expires, then bytes."""

from __future__ import annotations

from uuid import UUID

import pytest

from headgate.store.model.statements import Batch, Insert, Select, Slice, SliceBound, Update
from headgate.store.model.types import Type, Value
from tests.contract.store.tables import LOG, PAIRS, TIES
from tests.contract.store.worlds import ALL, World

V = "a_text"


async def test_the_later_timestamp_wins_whichever_write_comes_first(world: World) -> None:
    first, second, at = world.key(), world.key(), world.now_us()
    for partition, order in ((first, (at, at + 1)), (second, (at + 1, at))):
        for timestamp in order:
            await world.update(LOG, {"p": partition, "c": 1}, {"v": f"at {timestamp - at}"}, timestamp)
    assert [(1, "at 1")] == await world.rows(LOG, first, "c", "v")
    assert [(1, "at 1")] == await world.rows(LOG, second, "c", "v")


async def test_each_cell_is_decided_by_itself(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "old", "n": 1}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"v": "new"}, at + 10)
    await world.insert(LOG, {"p": p, "c": 1, "v": "middle", "n": 2}, at + 5)
    assert [("new", 2)] == await world.rows(LOG, p, "v", "n")


async def test_a_write_that_is_sent_again_changes_nothing(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "first"}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"v": "second"}, at + 1)
    await world.insert(LOG, {"p": p, "c": 1, "v": "first"}, at)
    assert [("second",)] == await world.rows(LOG, p, "v")


LOW_AND_HIGH: dict[Type, tuple[Value, Value]] = {
    Type.BOOLEAN: (False, True),
    Type.INT: (1, -1),
    Type.BIGINT: (1, -1),
    Type.DOUBLE: (1.5, -1.5),
    Type.TEXT: ("a", "ä"),
    Type.BLOB: (b"\x7f\xff", b"\x80"),
    Type.UUID: (UUID(int=1), UUID(int=1 << 127)),
    Type.TIMEUUID: (
        UUID("00000001-0000-1000-7f00-000000000000"),
        UUID("00000001-0000-1000-8000-000000000000"),
    ),
}
"""Of each type two values, the second with the greater bytes: a negative number has them, and so has a high byte."""


@pytest.mark.parametrize("kind", LOW_AND_HIGH, ids=lambda kind: kind.name.lower())
async def test_a_tie_is_decided_by_the_greater_bytes(world: World, kind: Type) -> None:
    column, (low, high) = f"a_{kind.name.lower()}", LOW_AND_HIGH[kind]
    upwards, downwards, at = world.key(), world.key(), world.now_us()
    for partition, order in ((upwards, (low, high)), (downwards, (high, low))):
        for value in order:
            await world.update(TIES, {"p": partition, "c": 1}, {column: value}, at)
    assert [(high,)] == await world.rows(TIES, upwards, column)
    assert [(high,)] == await world.rows(TIES, downwards, column)


async def test_a_longer_value_wins_a_tie_over_its_own_beginning(world: World) -> None:
    p, at = world.key(), world.now_us()
    for value in (b"ab", b"abc", b""):
        await world.update(TIES, {"p": p, "c": 1}, {"a_blob": value}, at)
    assert [(b"abc",)] == await world.rows(TIES, p, "a_blob")


async def test_of_equal_timestamps_the_tombstone_wins_over_any_value(world: World) -> None:
    before, after, at = world.key(), world.key(), world.now_us()
    for partition, order in ((before, (None, "zzz")), (after, ("zzz", None))):
        await world.insert(TIES, {"p": partition, "c": 1}, at)
        for value in order:
            await world.update(TIES, {"p": partition, "c": 1}, {V: value}, at)
    assert [(None,)] == await world.rows(TIES, before, V)
    assert [(None,)] == await world.rows(TIES, after, V)


async def test_of_equal_timestamps_what_expires_wins_over_what_does_not(world: World) -> None:
    before, after, at = world.key(), world.key(), world.now_us()
    for partition, order in ((before, (3600, None)), (after, (None, 3600))):
        for ttl_s in order:
            value = "a" if ttl_s else "z"
            await world.update(TIES, {"p": partition, "c": 1}, {V: value}, at, ttl_s=ttl_s)
    assert [("a",)] == await world.rows(TIES, before, V)
    assert [("a",)] == await world.rows(TIES, after, V)


async def test_of_equal_timestamps_the_longer_life_wins_whatever_the_bytes(world: World) -> None:
    before, after, at = world.key(), world.key(), world.now_us()
    for partition, order in ((before, (7200, 3600)), (after, (3600, 7200))):
        for ttl_s in order:
            value = "a" if ttl_s == 7200 else "z"
            await world.update(TIES, {"p": partition, "c": 1}, {V: value}, at, ttl_s=ttl_s)
    assert [("a",)] == await world.rows(TIES, before, V)
    assert [("a",)] == await world.rows(TIES, after, V)


async def test_of_equal_timestamps_the_tombstone_wins_over_what_expires(world: World) -> None:
    before, after, at = world.key(), world.key(), world.now_us()
    for partition, order in ((before, (None, "v")), (after, ("v", None))):
        await world.insert(TIES, {"p": partition, "c": 1}, at)
        for value in order:
            await world.update(TIES, {"p": partition, "c": 1}, {V: value}, at, ttl_s=3600 if value else None)
    assert [(None,)] == await world.rows(TIES, before, V)
    assert [(None,)] == await world.rows(TIES, after, V)


async def test_a_row_tombstone_hides_what_is_not_above_it(world: World) -> None:
    p, at = world.key(), world.now_us()
    for c, timestamp in ((1, at - 1), (2, at), (3, at + 1)):
        await world.insert(LOG, {"p": p, "c": c, "v": "there"}, timestamp)
        await world.delete(LOG, {"p": p, "c": c}, at)
    assert [(3,)] == await world.rows(LOG, p, "c")


async def test_a_row_tombstone_hides_what_comes_after_it_with_an_older_timestamp(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.delete(LOG, {"p": p, "c": 1}, at)
    await world.insert(LOG, {"p": p, "c": 1, "v": "late"}, at)
    await world.insert(LOG, {"p": p, "c": 2, "v": "other"}, at)
    assert [(2,)] == await world.rows(LOG, p, "c")


async def test_a_row_tombstone_leaves_the_cells_above_it(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "old", "n": 1}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"n": 2}, at + 2)
    await world.delete(LOG, {"p": p, "c": 1}, at + 1)
    assert [(1, None, 2)] == await world.rows(LOG, p, "c", "v", "n")


async def test_a_range_tombstone_hides_its_range_and_nothing_else(world: World) -> None:
    p, at = world.key(), world.now_us()
    for c in range(6):
        await world.insert(LOG, {"p": p, "c": c, "v": "there"}, at + (2 if c == 3 else 0))
    await world.delete(
        LOG, {"p": p}, at + 1, within=Slice("c", SliceBound(1, inclusive=False), SliceBound(4, inclusive=True))
    )
    assert [(0,), (1,), (3,), (5,)] == await world.rows(LOG, p, "c")


async def test_a_range_tombstone_hides_what_lands_in_it_later(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.delete(LOG, {"p": p}, at, within=Slice("c", upper=SliceBound(3, inclusive=False)))
    for c in (2, 3):
        await world.insert(LOG, {"p": p, "c": c, "v": "late"}, at)
    assert [(3,)] == await world.rows(LOG, p, "c")


async def test_overlapping_range_tombstones_each_count_at_their_own_time(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.delete(
        LOG, {"p": p}, at + 10, within=Slice("c", SliceBound(0, inclusive=True), SliceBound(4, inclusive=True))
    )
    await world.delete(
        LOG, {"p": p}, at + 20, within=Slice("c", SliceBound(3, inclusive=True), SliceBound(8, inclusive=True))
    )
    for c in range(10):
        await world.insert(LOG, {"p": p, "c": c, "v": "v"}, at + 15)
    assert [(0,), (1,), (2,), (9,)] == await world.rows(LOG, p, "c")


async def test_a_range_tombstone_of_a_prefix_hides_all_rows_of_that_prefix(world: World) -> None:
    p, at = world.key(), world.now_us()
    for a in (1, 2):
        for b in (1, 2, 3):
            await world.insert(PAIRS, {"p": p, "a": a, "b": b, "v": "v"}, at)
    await world.delete(PAIRS, {"p": p, "a": 1}, at + 1)
    above_two = Slice("b", lower=SliceBound(2, inclusive=False), equal={"a": 2})
    await world.delete(PAIRS, {"p": p}, at + 1, within=above_two)
    assert [(2, 1), (2, 2)] == await world.rows(PAIRS, p, "a", "b")


async def test_a_partition_tombstone_hides_rows_and_static_cells_not_above_it(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "old", "s": "shared"}, at)
    await world.update(LOG, {"p": p}, {"t": 7}, at + 2)
    await world.delete(LOG, {"p": p}, at + 1)
    await world.insert(LOG, {"p": p, "c": 2, "v": "new"}, at + 2)
    assert [(2, "new", None, 7)] == await world.rows(LOG, p, "c", "v", "s", "t")


async def test_null_removes_one_cell_and_what_is_older_stays_removed(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "v", "n": 1}, at)
    await world.update(LOG, {"p": p, "c": 1}, {"v": None}, at + 5)
    await world.update(LOG, {"p": p, "c": 1}, {"v": "between"}, at + 3)
    assert [(None, 1)] == await world.rows(LOG, p, "v", "n")


async def test_equal_timestamps_inside_a_batch_are_ties_like_any(world: World) -> None:
    p, at = world.key(), world.now_us()
    key = {"p": p, "c": 1}
    parts = (
        Insert(LOG, {**key, "v": "b", "n": 1}, timestamp_us=at),
        Update(LOG, key, {"v": "c"}, timestamp_us=at),
        Update(LOG, key, {"v": "a", "n": None}, timestamp_us=at),
    )
    await world.store.write(Batch(parts, consistency=ALL))
    assert [("c", None)] == await world.rows(LOG, p, "v", "n")


async def test_write_times_are_those_of_the_writes_and_null_where_there_is_no_cell(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "v"}, at)
    await world.update(LOG, {"p": p}, {"s": "s"}, at + 7)
    (row,) = await world.store.read(Select(LOG, {"p": p}, ("v",), write_times_of=("v", "n", "s")))
    assert ("v", at, None, at + 7) == (row.v, row.v_written_us, row.n_written_us, row.s_written_us)
