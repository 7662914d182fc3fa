"""Rows of one message from the wire to Arrow: which go together, and that they become what they would one by one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engines.packed_row import PackedRun, pack, pack_alone, unpack
from headgate.engines.timeline.model.layout import RowPlace, id_suffix, row_text
from headgate.engines.timeline.model.tables import WORK
from headgate.store.model.positions import time_us_of
from headgate.store.model.rows import WiredRows, wire_rows
from headgate.store.process_positions import process_positions
from headgate_spark.engines.timeline import alone_rows
from headgate_spark.engines.timeline.alone_rows import CutRows, columns_of
from headgate_spark.packed_columns import TYPES, About, BatchBuilder

COLUMNS = [WORK.by_name[name] for name in ("due", "run", "cancelled", "moved")]
NOW_US = 1_763_550_000_000_000
PLACE = RowPlace(70_000, 0x8001, 300, UUID(int=0))
SUFFIX = id_suffix(0)
BETWEEN = b"\xff" * 8 + b"\x00\x00\x00\x10"
"""The bytes between two rows that are alone."""

Row = tuple[UUID, bytes | None, int | None, bytes | None]

positions = process_positions()


def alone(payload: bytes, at: int = 0) -> Row:
    """A row as what is due later has it."""
    return positions.at(NOW_US + at), pack_alone(payload, due_us=NOW_US + at + 3, put_us=NOW_US - at), None, None


def of_another_kind(kind: str) -> Row:
    """A row whose content has to be read."""
    due, cell, _, _ = alone(b"payload")
    run = PackedRun([1], [2], [b"payload"], attempt=[1] if kind == "tried" else None, group=[b"g"])
    return {
        "cancelled": (due, cell, 5, None),
        "moved": (due, cell, None, b"place"),
        "cancelled and moved": (due, cell, 5, b""),
        "gone": (due, None, 5, None),
        "compressed": (due, pack_alone(b"x" * 5_000, due_us=1, put_us=2), None, None),
        "many": (due, pack(PackedRun([1, 1], [2, 2], [b"a", b"b"])), None, None),
        "tried": (due, pack(run), None, None),
        "grouped": (due, pack(run), None, None),
        "broken": (due, (cell or b"")[:-1] + b"\x01", None, None),
        "cut short": (due, (cell or b"")[:40], None, None),
        "empty": (due, b"", None, None),
    }[kind]


KINDS = [
    *("cancelled", "moved", "cancelled and moved", "gone", "compressed", "many", "tried", "grouped"),
    *("broken", "cut short", "empty"),
]
payloads = st.one_of(st.binary(max_size=40), st.builds(lambda start, end: start + BETWEEN + end, *[st.binary()] * 2))
rows_of_all_kinds = st.lists(
    st.one_of(
        st.lists(payloads, max_size=30).map(lambda some: [alone(each, at) for at, each in enumerate(some)]),
        st.sampled_from(KINDS).map(lambda kind: [of_another_kind(kind)]),
    ),
    max_size=8,
).map(lambda some: [row for each in some for row in each])


def cut(rows: list[Row]) -> CutRows:
    return CutRows(wire_rows(COLUMNS, rows), COLUMNS)


def is_plainly_alone(row: Row) -> bool:
    """By decoding it, and encoding it again."""
    cell = row[1]
    if cell is None or row[2:] != (None, None):
        return False
    try:
        run = unpack(cell)
    except Exception:
        return False
    return cell[1] == 0 and cell == pack_alone(run.payload[0], due_us=run.due_us[0], put_us=run.put_us[0])


@settings(deadline=None, max_examples=200)
@given(rows_of_all_kinds)
def test_each_row_is_given_once_and_in_order_and_alone_are_those_that_hold_one_whole_message(rows: list[Row]) -> None:
    result = cut(rows)
    assert [is_plainly_alone(row) for row in rows] == result.alone.tolist()
    given_: list[Any] = []
    for piece in result.pieces(result.alone):
        if isinstance(piece, slice):
            assert piece.stop - piece.start >= alone_rows.TOGETHER_MIN
            given_ += [row[0] for row in rows[piece]]
        else:
            assert tuple(piece) == rows[len(given_)]
            given_.append(piece.due)
    assert [row[0] for row in rows] == given_


@settings(deadline=None, max_examples=100)
@given(st.lists(payloads, min_size=1, max_size=50))
def test_columns_of_rows_together_are_those_of_the_rows_one_by_one(some: list[bytes]) -> None:
    rows = [alone(payload, at * 1_000_003) for at, payload in enumerate(some)]
    result = cut(rows)
    together = BatchBuilder(tuple(TYPES), [SUFFIX])
    everything = slice(0, len(rows))
    together.add_columns(columns_of(tuple(TYPES), result, everything, PLACE, SUFFIX, "later"), 0)
    single = BatchBuilder(tuple(TYPES), [SUFFIX])
    for due, cell, _, _ in rows:
        start = row_text(RowPlace(PLACE.generation, PLACE.sub, PLACE.shard, due))
        about = About(start, str(due), time_us_of(due), PLACE.generation, PLACE.shard, "later")
        single.add_alone(unpack(cell or b""), about)
    assert pa.Table.from_batches(single.take()).equals(pa.Table.from_batches(together.take()))
    assert sum(map(len, some)) == result.payload_bytes(everything)
    assert rows[-1][0] == result.last_due()


def test_parts_of_an_answer_have_their_own_columns() -> None:
    rows = [alone(b"%d" % at, at) for at in range(40)]
    result = cut(rows)
    (payload, due) = columns_of(("payload", "due"), result, slice(10, 13), PLACE, SUFFIX, "later")
    assert [b"10", b"11", b"12"] == payload.to_pylist()
    assert [NOW_US + at + 3 for at in (10, 11, 12)] == due.cast(pa.int64()).to_pylist()
    assert [row[0].bytes for row in rows] == result.due_keys()


def test_rows_that_are_not_wanted_are_left_out_and_nothing_else() -> None:
    rows = [alone(b"%d" % at, at) for at in range(40)] + [of_another_kind("moved")]
    result = cut(rows)
    wanted = np.array([at < 20 or at == 30 for at in range(41)])
    pieces = list(result.pieces(result.alone & wanted, result.alone & ~wanted))
    assert slice(0, 20) == pieces[0]
    assert [rows[30], rows[40]] == [tuple(each) for each in pieces[1:]]


def test_rows_are_found_at_once_unless_a_payload_resembles_the_space_between_two() -> None:
    usual = wire_rows(COLUMNS, [alone(b"x" * at) for at in range(50)])
    guessed = alone_rows._starts_guessed(usual)
    assert guessed is not None
    assert alone_rows._starts_followed(usual).tolist() == guessed.tolist()
    odd = wire_rows(COLUMNS, [alone(b"x"), alone(BETWEEN * 3), alone(b"y")])
    assert alone_rows._starts_guessed(odd) is None
    like_a_row = BETWEEN + bytes(16) + b"\x00\x00\x00\x04" + bytes(4)
    as_many_as_rows = wire_rows(COLUMNS, [of_another_kind("cancelled"), alone(like_a_row)])
    assert alone_rows._starts_guessed(as_many_as_rows) is None


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_answer_of_next_to_nothing_is_one_too(count: int) -> None:
    rows = [alone(b"") for _ in range(count)]
    result = cut(rows)
    assert rows == [tuple(piece) for piece in result.pieces(result.alone)]
    assert count == len(result)


def test_an_answer_without_rows_has_no_bytes() -> None:
    assert [] == list(CutRows(WiredRows(0, b""), COLUMNS).pieces(np.zeros(0, np.bool_)))
