"""The order of rows is that of `Type.order`, whatever Python thinks; positions depend on it (ATTACKS A10)."""

from __future__ import annotations

import math
import random
import uuid
from itertools import pairwise

import pytest

from headgate.store.model.statements import Batch, Insert, Slice, SliceBound
from headgate.store.model.types import Type, Value
from tests.contract.store.tables import ORDERED
from tests.contract.store.worlds import ALL, World

_rng = random.Random(10)


def _time_uuid(ticks: int, low: bytes) -> uuid.UUID:
    raw = ticks.to_bytes(8, "big")
    high = raw[4:8] + raw[2:4] + bytes([raw[0] & 0x0F | 0x10, raw[1]])
    return uuid.UUID(bytes=high + low)


def _low_bytes() -> list[bytes]:
    edges = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"]
    return [first + bytes(6) + last for first in edges for last in edges]


TICKS = (1, 0xFFFF_FFFF, 0x1_0000_0000, 0x1234_5678_9ABC_DEF)
VALUES: dict[Type, list[Value]] = {
    Type.BOOLEAN: [False, True],
    Type.INT: [0, 1, -1, 255, 256, -256, 2**31 - 1, -(2**31)],
    Type.BIGINT: [0, 1, -1, 2**40, -(2**40), 2**63 - 1, -(2**63)],
    Type.DOUBLE: [0.0, -1.5, 1.5, 1e300, -1e300, math.inf, -math.inf, 5e-324],
    Type.TEXT: ["a", "A", "ab", "b", "ä", "z", "ß", "\U0001f94a", "\uffee", "", "a\x00", "é", "e\u0301"],
    Type.BLOB: [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\x00\x00", b"\x80\x00", b"a", b"ab"],
    Type.UUID: [
        *(uuid.UUID(int=1 << 100), uuid.UUID(int=(1 << 128) - 1), uuid.UUID(int=0)),
        *(uuid.UUID(bytes=bytes([byte]) * 16, version=version) for byte in (1, 127, 128, 255) for version in (4, 5)),
        *(_time_uuid(ticks, b"\x80" + bytes(6) + last) for ticks in TICKS for last in (b"\x01", b"\x80")),
    ],
    Type.TIMEUUID: [_time_uuid(ticks, low) for ticks in TICKS for low in _low_bytes()],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.name.lower())
async def test_rows_are_ordered_as_the_type_states(world: World, kind: Type) -> None:
    table, p, at = ORDERED[kind], world.key(), world.now_us()
    values = list(VALUES[kind])
    _rng.shuffle(values)
    await world.store.write(
        Batch([Insert(table, {"p": p, "c": value}, timestamp_us=at) for value in values], consistency=ALL)
    )
    wanted = [(value,) for value in sorted(values, key=kind.order)]
    assert wanted == await world.rows(table, p, "c")
    assert wanted[::-1] == await world.rows(table, p, "c", backwards=True)


async def test_of_one_tick_every_position_is_passed_by_the_next_slice(world: World) -> None:
    """The store returns above a position exactly what our order puts above it, byte for byte (A10)."""
    table, p, at = ORDERED[Type.TIMEUUID], world.key(), world.now_us()
    values = [_time_uuid(TICKS[3], low) for low in _low_bytes()]
    await world.store.write(
        Batch([Insert(table, {"p": p, "c": value}, timestamp_us=at) for value in values], consistency=ALL)
    )
    ordered = sorted(values, key=Type.TIMEUUID.order)
    for local, after in pairwise(ordered):
        above = Slice("c", lower=SliceBound(local, inclusive=False))
        assert [(after,)] == await world.rows(table, p, "c", within=above, limit=1)
