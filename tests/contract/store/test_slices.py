"""Slices of a partition: bounds open and closed, both ways, limits, equal prefixes, orders."""

from __future__ import annotations

import pytest

from headgate.store.model.statements import Select, Slice, SliceBound
from tests.contract.store.tables import LOG, PAIRS, TURNED
from tests.contract.store.worlds import World

AT_MOST_3 = Slice("c", upper=SliceBound(3, inclusive=True))
BELOW_3 = Slice("c", upper=SliceBound(3, inclusive=False))
AT_LEAST_3 = Slice("c", lower=SliceBound(3, inclusive=True))
ABOVE_3 = Slice("c", lower=SliceBound(3, inclusive=False))


async def _five(world: World) -> str:
    p, at = world.key(), world.now_us()
    for c in (5, 3, 1, 4, 2):
        await world.insert(LOG, {"p": p, "c": c, "s": "shared"}, at)
    return p


@pytest.mark.parametrize(
    ("within", "result"),
    [
        (AT_MOST_3, [1, 2, 3]),
        (BELOW_3, [1, 2]),
        (AT_LEAST_3, [3, 4, 5]),
        (ABOVE_3, [4, 5]),
        (Slice("c", SliceBound(2, inclusive=True), SliceBound(4, inclusive=True)), [2, 3, 4]),
        (Slice("c", SliceBound(2, inclusive=False), SliceBound(4, inclusive=False)), [3]),
        (Slice("c", SliceBound(4, inclusive=True), SliceBound(2, inclusive=True)), []),
        (Slice("c", SliceBound(3, inclusive=False), SliceBound(3, inclusive=True)), []),
    ],
    ids=["at most", "below", "at least", "above", "closed", "open", "turned round", "empty"],
)
async def test_a_slice_holds_what_is_between_its_bounds(world: World, within: Slice, result: list[int]) -> None:
    p = await _five(world)
    assert [(c,) for c in result] == await world.rows(LOG, p, "c", within=within)
    assert [(c,) for c in reversed(result)] == await world.rows(LOG, p, "c", within=within, backwards=True)


async def test_rows_come_in_clustering_order_and_backwards_in_the_other(world: World) -> None:
    p = await _five(world)
    assert [(1,), (2,), (3,), (4,), (5,)] == await world.rows(LOG, p, "c")
    assert [(5,), (4,), (3,), (2,), (1,)] == await world.rows(LOG, p, "c", backwards=True)


async def test_a_limit_counts_from_the_end_at_which_the_read_begins(world: World) -> None:
    p = await _five(world)
    assert [(1,), (2,)] == await world.rows(LOG, p, "c", limit=2)
    assert [(5,), (4,)] == await world.rows(LOG, p, "c", limit=2, backwards=True)
    assert [(4,)] == await world.rows(LOG, p, "c", within=ABOVE_3, limit=1)
    assert [(2,)] == await world.rows(LOG, p, "c", within=BELOW_3, limit=1, backwards=True)


async def test_a_limit_counts_rows_that_live(world: World) -> None:
    p = await _five(world)
    at = world.now_us() + 1
    await world.delete(LOG, {"p": p, "c": 1}, at)
    await world.delete(
        LOG, {"p": p}, at, within=Slice("c", SliceBound(2, inclusive=True), SliceBound(3, inclusive=True))
    )
    assert [(4,)] == await world.rows(LOG, p, "c", limit=1)


async def test_a_limit_above_the_rows_there_are_is_no_limit(world: World) -> None:
    p = await _five(world)
    assert 5 == len(await world.rows(LOG, p, "c", limit=1000))


async def test_one_row_is_read_by_its_whole_key(world: World) -> None:
    p = await _five(world)
    result = await world.store.read(Select(LOG, {"p": p, "c": 4}, ("c", "s")))
    assert [(4, "shared")] == [tuple(row) for row in result]


async def test_a_read_without_columns_brings_all_in_the_order_of_the_table(world: World) -> None:
    p = await _five(world)
    (row,) = await world.store.read(Select(LOG, {"p": p, "c": 4}))
    assert ("p", "c", "v", "n", "s", "t") == row._fields
    assert (p, 4, None, None, "shared", None) == tuple(row)


async def _pairs(world: World) -> str:
    p, at = world.key(), world.now_us()
    for a in (1, 2, 3):
        for b in (1, 2, 3):
            await world.insert(PAIRS, {"p": p, "a": a, "b": b, "v": f"{a}{b}"}, at)
    return p


async def test_an_equal_prefix_narrows_a_read_to_its_rows(world: World) -> None:
    p = await _pairs(world)
    result = await world.store.read(Select(PAIRS, {"p": p, "a": 2}, ("v",)))
    assert ["21", "22", "23"] == [row.v for row in result]


async def test_a_slice_of_the_second_column_stays_within_the_first(world: World) -> None:
    p = await _pairs(world)
    within = Slice("b", lower=SliceBound(1, inclusive=False), equal={"a": 2})
    assert [("22",), ("23",)] == await world.rows(PAIRS, p, "v", within=within)
    assert [("23",), ("22",)] == await world.rows(PAIRS, p, "v", within=within, backwards=True)


async def test_a_slice_of_the_first_column_takes_whole_runs_of_the_second(world: World) -> None:
    p = await _pairs(world)
    above = Slice("a", lower=SliceBound(2, inclusive=False))
    up_to = Slice("a", upper=SliceBound(1, inclusive=True))
    assert [("31",), ("32",), ("33",)] == await world.rows(PAIRS, p, "v", within=above)
    assert [("13",), ("12",)] == await world.rows(PAIRS, p, "v", within=up_to, backwards=True, limit=2)


async def _turned(world: World) -> str:
    p, at = world.key(), world.now_us()
    for a in (1, 2):
        for b in ("x", "y", "z"):
            await world.insert(TURNED, {"p": p, "a": a, "b": b}, at)
    return p


async def test_a_descending_column_turns_its_own_order_alone(world: World) -> None:
    p = await _turned(world)
    wanted = [(1, "z"), (1, "y"), (1, "x"), (2, "z"), (2, "y"), (2, "x")]
    assert wanted == await world.rows(TURNED, p, "a", "b")
    assert wanted[::-1] == await world.rows(TURNED, p, "a", "b", backwards=True)


async def test_bounds_of_a_descending_column_mean_values_not_places(world: World) -> None:
    p = await _turned(world)
    above_x = Slice("b", lower=SliceBound("x", inclusive=False), equal={"a": 1})
    assert [("z",), ("y",)] == await world.rows(TURNED, p, "b", within=above_x)
    assert [("y",)] == await world.rows(TURNED, p, "b", within=above_x, backwards=True, limit=1)
    below_z = Slice("b", upper=SliceBound("z", inclusive=False), equal={"a": 2})
    assert [("y",)] == await world.rows(TURNED, p, "b", within=below_z, limit=1)


async def test_a_range_delete_of_a_descending_column_takes_the_values_it_names(world: World) -> None:
    p = await _turned(world)
    within = Slice("b", lower=SliceBound("x", inclusive=False), equal={"a": 1})
    await world.delete(TURNED, {"p": p}, world.now_us() + 1, within=within)
    assert [(1, "x"), (2, "z"), (2, "y"), (2, "x")] == await world.rows(TURNED, p, "a", "b")
