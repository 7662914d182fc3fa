"""Positions: unique in and across processes, ordered as the store orders them, with bounds that hold everybody's."""

from __future__ import annotations

import os
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.store.model.positions import (
    PositionBroken,
    Positions,
    first_at,
    is_after,
    last_at,
    position_order,
    time_us_of,
)
from headgate.store.model.types import Type
from headgate.store.process_positions import process_positions

NINE = 1_750_000_000_000_000
TIMES = st.integers(min_value=0, max_value=10_000_000_000_000_000)
LOW = st.integers(min_value=0, max_value=2**64 - 1)


def position(time_us: int, low: int, ticks: int = 0) -> uuid.UUID:
    """A time uuid as anybody might make it."""
    time = time_us * 10 + ticks + 0x01B21DD213814000
    return uuid.UUID(int=(time & 0xFFFFFFFF) << 96 | (time >> 32 & 0xFFFF) << 80 | 1 << 76 | time >> 48 << 64 | low)


def test_more_positions_of_one_time_than_a_clock_sequence_can_distinguish_are_all_different() -> None:
    positions = process_positions()
    assert 100_000 == len({positions.at(NINE) for _ in range(100_000)})


def test_the_counter_continues_past_its_end() -> None:
    positions = Positions(lambda: 2**56 - 2)
    made = [positions.at(NINE) for _ in range(4)]
    assert 4 == len(set(made))
    assert 0x7F7F7F7F7F7F7F7F == made[1].int & 2**64 - 1


def test_threads_that_share_a_maker_get_different_positions() -> None:
    positions = process_positions()
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: [positions.at(NINE) for _ in range(5_000)], range(8)))
    assert 40_000 == len({made for run in runs for made in run})


def test_a_forked_child_makes_other_positions_than_its_parent() -> None:
    positions = process_positions()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(positions.at(NINE).bytes for _ in range(100)))
        os._exit(0)
    os.waitpid(child, 0)
    report = os.read(reading, 1600)
    os.close(reading)
    os.close(writing)
    theirs = {uuid.UUID(bytes=report[at : at + 16]) for at in range(0, 1600, 16)}
    ours = {positions.at(NINE) for _ in range(100)}
    assert (100, 100, set()) == (len(theirs), len(ours), theirs & ours)


@given(TIMES, st.integers(0, 2**56 - 1))
def test_every_low_byte_is_below_128(time_us: int, start: int) -> None:
    made = Positions(lambda: start).at(time_us)
    assert all(byte < 0x80 for byte in made.bytes[8:])


@given(TIMES, st.integers(0, 2**56 - 1))
def test_the_time_of_a_position_is_the_time_it_was_made_for(time_us: int, start: int) -> None:
    assert time_us == time_us_of(Positions(lambda: start).at(time_us))


@given(TIMES, LOW, st.integers(0, 9))
def test_the_bounds_of_a_time_hold_every_position_of_it_whichever_process_made_it(
    time_us: int, low: int, tick: int
) -> None:
    result = position(time_us, low, tick)
    assert position_order(first_at(time_us)) <= position_order(result) <= position_order(last_at(time_us))


@given(TIMES)
def test_the_last_of_a_time_comes_before_the_first_of_the_next(time_us: int) -> None:
    assert is_after(first_at(time_us + 1), last_at(time_us))


@given(TIMES, LOW, LOW)
def test_low_bytes_compare_as_signed_as_in_the_store(time_us: int, one: int, other: int) -> None:
    signed = [int.from_bytes(low.to_bytes(8, "big")[:1], "big", signed=True) for low in (one, other)]
    matches = [position(time_us, low) for low in (one, other)]
    if signed[0] < signed[1]:
        assert is_after(matches[1], matches[0])
        assert matches[1] == max(matches, key=position_order)


def test_the_order_is_that_of_the_column_type() -> None:
    matches = [position(NINE, random.getrandbits(64)) for _ in range(200)]
    assert sorted(matches, key=Type.TIMEUUID.order) == sorted(matches, key=position_order)
    assert sorted(matches) != sorted(matches, key=position_order)


def test_what_one_process_makes_for_one_time_is_in_the_order_of_making() -> None:
    positions = Positions(lambda: 12_345)
    made = [positions.at(NINE) for _ in range(20_000)]
    assert all(is_after(later, earlier) for earlier, later in pairwise(made))
    assert made == sorted(made)


def test_a_seeded_source_makes_the_same_positions_again() -> None:
    runs = [Positions(lambda: random.Random(7).getrandbits(56)).at(NINE) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("time_us", [-20_000_000_000_000_000, 2**60])
def test_a_time_outside_of_what_a_time_uuid_holds_is_a_bug(time_us: int) -> None:
    with pytest.raises(PositionBroken):
        first_at(time_us)
