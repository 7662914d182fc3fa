"""Positions as the store keeps them: all of one time are there, in our order; slices by time hold them (A10)."""

from __future__ import annotations

import random
import uuid

from headgate.store.model.positions import (
    first_at,
    is_after,
    last_at,
    position_order,
    time_us_of,
)
from headgate.store.model.statements import Batch, Insert, Slice, SliceBound
from headgate.store.model.types import Type, Value
from headgate.store.process_positions import process_positions
from tests.contract.store.tables import ORDERED
from tests.contract.store.worlds import ALL, World

NINE = 1_750_000_000_000_000
MANY = 16_385
"""One more than the clock sequence of a time uuid can distinguish."""

_rng = random.Random(10)


def _foreign(time_us: int) -> uuid.UUID:
    """A position as another library might make it, with any low bytes."""
    low = _rng.getrandbits(64)
    return uuid.UUID(int=(first_at(time_us).int >> 64 << 64) | low)


async def _insert(world: World, p: str, positions: list[uuid.UUID]) -> None:
    at, table = world.now_us(), ORDERED[Type.TIMEUUID]
    for start in range(0, len(positions), 200):
        rows = [Insert(table, {"p": p, "c": each}, timestamp_us=at) for each in positions[start : start + 200]]
        await world.store.write(Batch(rows, consistency=ALL))


async def _rows(world: World, p: str, within: Slice | None = None) -> list[Value]:
    return [row[0] for row in await world.rows(ORDERED[Type.TIMEUUID], p, "c", within=within)]


async def test_more_of_one_time_than_a_clock_sequence_can_distinguish_are_all_kept(world: World) -> None:
    makers, p = [process_positions(), process_positions()], world.key()
    made = [makers[number % 2].at(NINE) for number in range(MANY)]
    await _insert(world, p, made)
    result = await _rows(world, p)
    assert MANY == len(result)
    assert sorted(made, key=position_order) == result


async def test_the_stores_order_is_the_order_of_positions_whichever_process_made_them(world: World) -> None:
    maker, p = process_positions(), world.key()
    made = [make(NINE + step) for step in range(-5, 5) for make in (maker.at, _foreign, _foreign) for _ in range(5)]
    _rng.shuffle(made)
    await _insert(world, p, made)
    result = await _rows(world, p)
    assert sorted(made, key=position_order) == result
    latest = made[0]
    for each in made:
        latest = max(latest, each, key=position_order)
    assert latest == result[-1]


async def test_a_slice_between_the_bounds_of_times_holds_exactly_what_is_due_in_them(world: World) -> None:
    maker, p = process_positions(), world.key()
    made = [make(NINE + step) for step in range(6) for make in (maker.at, _foreign, first_at, last_at)]
    await _insert(world, p, made)
    within = Slice("c", lower=SliceBound(first_at(NINE + 2), True), upper=SliceBound(last_at(NINE + 3), True))
    result = await _rows(world, p, within)
    assert {each for each in made if NINE + 2 <= time_us_of(each) <= NINE + 3} == set(result)
    assert 8 == len(result)


async def test_what_follows_a_position_in_the_store_is_what_comes_after_it_in_memory(world: World) -> None:
    maker, p = process_positions(), world.key()
    made = [make(NINE) for make in (maker.at, _foreign) for _ in range(10)]
    await _insert(world, p, made)
    for local in made:
        result = await _rows(world, p, Slice("c", lower=SliceBound(local, False)))
        assert {each for each in made if is_after(each, local)} == set(result)
