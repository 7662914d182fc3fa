"""Statements that must be refused: each rule of the design that a table or a statement could break."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from headgate.errors import Bug
from headgate.store.model.shapes import ComparisonOperator, ShapeBroken, insert_shape
from headgate.store.model.statements import (
    TTL_S_MAX,
    Batch,
    BatchIf,
    CellCondition,
    Delete,
    Insert,
    InsertIfAbsent,
    RowsOf,
    Scan,
    Select,
    Slice,
    SliceBound,
    StatementBroken,
    Update,
    UpdateIf,
    attempt_bearers,
    is_,
    partition_of,
)
from headgate.store.model.table import Column, Table, TableBroken, WrittenBy
from headgate.store.model.types import Type

LWT = WrittenBy.LWT
P, C, D = Column("p", Type.INT), Column("c", Type.INT), Column("d", Type.INT)
V, S = Column("v", Type.TEXT), Column("s", Type.TEXT, static=True)
ATTEMPT = Column("attempt", Type.UUID, LWT)
PLAIN = Table("plain", "", (P,), (C, D), (V, S, Column("n", Type.INT)))
LANES = Table(
    "lanes",
    "",
    (P,),
    (C,),
    (Column("lock", Type.UUID, LWT), Column("n", Type.INT, LWT), ATTEMPT),
    rows=LWT,
    attempt="attempt",
)
OTHER_LANES = LANES.named("other_lanes")
MIXED = Table(
    "mixed",
    "",
    (P,),
    (C,),
    (V, Column("n", Type.INT, LWT), Column("h", Type.INT, LWT, static=True), ATTEMPT),
    attempt="attempt",
)
HEADS = Table(
    "heads",
    "",
    (P,),
    (C,),
    (
        Column("h", Type.INT, LWT, static=True),
        Column("n", Type.INT, LWT),
        Column("attempt", Type.UUID, LWT, static=True),
    ),
    rows=LWT,
    attempt="attempt",
)

ROW = {"p": 1, "c": 1, "d": 1}
LANE = {"p": 1, "c": 1}
ME = uuid4()
AT = 1_000_000
SHAPE = insert_shape(PLAIN, ("p", "c", "d", "v"), False)
TAIL = (1, 1, "v")
UP_TO_5 = Slice("c", upper=SliceBound(5, inclusive=True))


def _update_if(table: Table = LANES, p: int = 1, attempt: object = ME) -> UpdateIf:
    return UpdateIf(table, {"p": p, "c": 1}, {"n": 1}, is_("n", None), attempt=attempt)  # type: ignore[arg-type]


BROKEN: dict[str, tuple[Callable[[], object], type[Bug], str]] = {
    # R3: cells are written plainly or by LWT, never both.
    "a plain insert of an LWT column": (
        lambda: Insert(MIXED, {**LANE, "n": 1}, timestamp_us=AT),
        ShapeBroken,
        "LWT alone",
    ),
    "a plain update of an LWT column": (
        lambda: Update(MIXED, LANE, {"n": 1}, timestamp_us=AT),
        ShapeBroken,
        "LWT alone",
    ),
    "a plain insert where rows are made by LWT": (
        lambda: Insert(LANES, LANE, timestamp_us=AT),
        ShapeBroken,
        "not written plainly",
    ),
    "an LWT insert where rows are made plainly": (
        lambda: InsertIfAbsent(MIXED, LANE, attempt=ME),
        ShapeBroken,
        "not written by LWT",
    ),
    "an LWT of a plain column": (
        lambda: UpdateIf(MIXED, LANE, {"v": "x"}, is_("n", None), attempt=ME),
        ShapeBroken,
        "plain write alone",
    ),
    "an LWT on a condition of a plain column": (
        lambda: UpdateIf(MIXED, LANE, {"n": 1}, is_("v", "x"), attempt=ME),
        ShapeBroken,
        "plain write alone",
    ),
    "an attempt that the caller writes": (
        lambda: UpdateIf(LANES, LANE, {"attempt": ME}, is_("n", 1), attempt=ME),
        ShapeBroken,
        "The store writes the attempt",
    ),
    "an attempt that the caller inserts": (
        lambda: InsertIfAbsent(LANES, {**LANE, "attempt": ME}, attempt=ME),
        ShapeBroken,
        "The store writes the attempt",
    ),
    "an LWT of static cells without a place for its attempt": (
        lambda: UpdateIf(MIXED, {"p": 1}, {"h": 1}, is_("h", None), attempt=ME),
        ShapeBroken,
        "static attempt column",
    ),
    "a plain delete of LWT cells without their write time": (
        lambda: Delete(LANES, LANE, timestamp_us=AT),
        StatementBroken,
        "above its write time",
    ),
    "a plain delete at the write time of LWT cells": (
        lambda: Delete(LANES, LANE, timestamp_us=AT, above_lwt_us=AT),
        StatementBroken,
        "above its write time",
    ),
    "a conditional batch of two attempts": (
        lambda: BatchIf([_update_if(), _update_if(attempt=uuid4())]),
        StatementBroken,
        "one attempt",
    ),
    "a conditional batch of two partitions": (
        lambda: BatchIf([_update_if(), _update_if(p=2)]),
        StatementBroken,
        "one partition",
    ),
    "a conditional batch of two tables": (
        lambda: BatchIf([_update_if(), _update_if(OTHER_LANES)]),
        StatementBroken,
        "one table",
    ),
    "A conditional batch has no condition": (
        lambda: BatchIf([UpdateIf(LANES, LANE, {"n": 1}, attempt=ME)]),
        StatementBroken,
        "no condition",
    ),
    "null compared by order": (
        lambda: CellCondition("n", ComparisonOperator.BELOW, None),
        StatementBroken,
        "Null cannot be compared",
    ),
    # R4: plain writes carry their own timestamp, and live as long as Cassandra can keep them.
    "a write without a timestamp": (lambda: Insert(PLAIN, ROW, timestamp_us=0), StatementBroken, "own timestamp"),
    "an update before all time": (
        lambda: Update(PLAIN, ROW, {"v": "x"}, timestamp_us=-1),
        StatementBroken,
        "own timestamp",
    ),
    "a delete without a timestamp": (lambda: Delete(PLAIN, ROW, timestamp_us=0), StatementBroken, "own timestamp"),
    "a life of no time": (lambda: Insert(PLAIN, ROW, timestamp_us=AT, ttl_s=0), StatementBroken, "time to live"),
    "a life that is too long": (
        lambda: Update(PLAIN, ROW, {"v": ""}, timestamp_us=AT, ttl_s=TTL_S_MAX + 1),
        StatementBroken,
        "time to live",
    ),
    # R8: reads that decide are of one partition; scans find keys.
    "a read of no partition": (lambda: Select(PLAIN, {}), ShapeBroken, "one partition"),
    "a read that skips a clustering column": (
        lambda: Select(PLAIN, {"p": 1, "d": 1}),
        ShapeBroken,
        "prefix of the key",
    ),
    "a scan for more than keys": (lambda: Scan(PLAIN, ["p", "v"]), ShapeBroken, "nothing else"),
    "a scan without the whole partition key": (lambda: Scan(PLAIN, ["c"]), ShapeBroken, "whole partition key"),
    # Slices, keys and columns.
    "A slice has no bound": (lambda: Select(PLAIN, {"p": 1}, within=Slice("c")), ShapeBroken, "has no bound"),
    "a slice of a later column": (
        lambda: Select(PLAIN, {"p": 1}, within=Slice("d", SliceBound(1, inclusive=True))),
        ShapeBroken,
        "next clustering column",
    ),
    "a slice below a key that is whole": (
        lambda: Select(PLAIN, ROW, within=Slice("d", SliceBound(1, inclusive=True))),
        ShapeBroken,
        "next clustering column",
    ),
    "a limit of nothing": (lambda: Select(PLAIN, {"p": 1}, limit=0), StatementBroken, "at least one"),
    "the write time of a key": (lambda: Select(PLAIN, {"p": 1}, write_times_of=["c"]), ShapeBroken, "no write time"),
    "a column that is missing": (lambda: Select(PLAIN, {"p": 1}, ["nothing"]), ShapeBroken, "No such column"),
    "an insert of half a key": (
        lambda: Insert(PLAIN, {"p": 1, "c": 1, "v": "x"}, timestamp_us=AT),
        ShapeBroken,
        "whole key",
    ),
    "an update of half a key": (
        lambda: Update(PLAIN, {"p": 1, "c": 1}, {"v": "x"}, timestamp_us=AT),
        ShapeBroken,
        "whole key",
    ),
    "an update of the key": (lambda: Update(PLAIN, ROW, {"c": 2}, timestamp_us=AT), ShapeBroken, "cannot be set"),
    "an update of nothing": (lambda: Update(PLAIN, ROW, {}, timestamp_us=AT), ShapeBroken, "sets no column"),
    "a delete of no partition": (lambda: Delete(PLAIN, {}, timestamp_us=AT), ShapeBroken, "whole partition key"),
    "null in a key": (lambda: Insert(PLAIN, {**ROW, "c": None}, timestamp_us=AT), ShapeBroken, "cannot be null"),
    "text where a number belongs": (
        lambda: Insert(PLAIN, {**ROW, "n": "1"}, timestamp_us=AT),
        ShapeBroken,
        "wrong type",
    ),
    "truth where a number belongs": (
        lambda: Insert(PLAIN, {**ROW, "n": True}, timestamp_us=AT),
        ShapeBroken,
        "wrong type",
    ),
    "An empty batch": (lambda: Batch([]), StatementBroken, "1 to 10,000"),
    "a batch without an end": (
        lambda: Batch([Insert(PLAIN, ROW, timestamp_us=AT)] * 10_001),
        StatementBroken,
        "1 to 10,000",
    ),
    "rows without rows": (lambda: RowsOf(SHAPE, (1,), [], []), StatementBroken, "1 to 10,000"),
    "rows without a timestamp": (
        lambda: RowsOf(SHAPE, (1,), [TAIL], [(0, 5)]),
        StatementBroken,
        "its own timestamp",
    ),
    "rows that live no time": (lambda: RowsOf(SHAPE, (1,), [TAIL], [(AT, 0)]), StatementBroken, "one second"),
    "rows written with a null": (
        lambda: RowsOf(SHAPE, (1,), [TAIL, (1, 2, None)], [(AT, 5)] * 2),
        StatementBroken,
        "all their values",
    ),
    "rows whose key comes last": (
        lambda: RowsOf(insert_shape(PLAIN, ("c", "d", "v", "p"), False), (1,), [TAIL], [(AT, 5)]),
        StatementBroken,
        "with its key first",
    ),
    "rows of a key of the wrong type": (
        lambda: RowsOf(SHAPE, ("p",), [TAIL], [(AT, 5)]),
        ShapeBroken,
        "wrong type",
    ),
    "a row of an LWT's shape": (
        lambda: Insert.of(insert_shape(LANES, ("p", "c", "n"), True), (1, 1, 1), timestamp_us=AT),
        StatementBroken,
        "R3",
    ),
    # Tables.
    "a table without a key": (lambda: Table("t", "", ()), TableBroken, "partition key"),
    "two columns of one name": (lambda: Table("t", "", (P,), (P,)), TableBroken, "the same name"),
    "a name in capitals": (lambda: Table("T", "", (P,)), TableBroken, "lower case"),
    "a static key": (lambda: Table("t", "", (S,)), TableBroken, "cannot be static"),
    "static without clustering": (lambda: Table("t", "", (P,), (), (S,)), TableBroken, "needs a clustering key"),
    "gc_grace below a day": (lambda: Table("t", "", (P,), gc_grace_s=3600), TableBroken, "R4"),
    "LWT columns without an attempt": (
        lambda: Table("t", "", (P,), (), (Column("n", Type.INT, LWT),)),
        TableBroken,
        "R3",
    ),
    "an attempt that is not LWT's": (
        lambda: Table("t", "", (P,), (), (Column("a", Type.UUID),), rows=LWT, attempt="a"),
        TableBroken,
        "R3",
    ),
    "an attempt where nothing is LWT": (
        lambda: Table("t", "", (P,), (), (Column("a", Type.UUID),), attempt="a"),
        TableBroken,
        "that no LWT writes",
    ),
}


@pytest.mark.parametrize(("build", "error", "words"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_a_rule_cannot_be_built(build: Callable[[], object], error: type[Bug], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_the_same_kind_of_statement_has_the_same_shape() -> None:
    first = Insert(PLAIN, {**ROW, "v": "a"}, timestamp_us=AT)
    second = Insert(PLAIN, {**ROW, "v": "b"}, timestamp_us=AT + 1)
    assert first.shape is second.shape
    assert first.shape is insert_shape(PLAIN, ("p", "c", "d", "v"), False)


def test_statements_are_equal_by_value() -> None:
    assert Insert(PLAIN, ROW, timestamp_us=AT) == Insert(PLAIN, dict(ROW), timestamp_us=AT)
    assert Insert(PLAIN, ROW, timestamp_us=AT) != Insert(PLAIN, ROW, timestamp_us=AT + 1)
    assert 1 == len({Insert(PLAIN, ROW, timestamp_us=AT), Insert(PLAIN, ROW, timestamp_us=AT)})


def test_the_partition_is_found_in_whatever_order_the_key_is_named() -> None:
    assert (7,) == partition_of(Insert(PLAIN, {"d": 1, "c": 2, "p": 7}, timestamp_us=AT))
    assert (7,) == partition_of(Update(PLAIN, {"c": 2, "d": 1, "p": 7}, {"v": "x"}, timestamp_us=AT))


def test_a_delete_of_lwt_cells_above_their_write_time_can_be_built() -> None:
    assert AT + 1 == Delete(LANES, LANE, timestamp_us=AT + 1, above_lwt_us=AT).timestamp_us


def _set(c: int, ttl_s: int | None = None, *, table: Table = LANES) -> UpdateIf:
    return UpdateIf(table, {"p": 1, "c": c}, {"n": 1}, is_("n", None), attempt=ME, ttl_s=ttl_s)


def test_one_statement_of_each_row_bears_the_attempt() -> None:
    assert (True, False, True) == attempt_bearers(BatchIf([_set(1), _set(1), _set(2)]))


def test_the_attempt_lives_as_long_as_the_longest_of_what_was_written() -> None:
    assert (False, True, False) == attempt_bearers(BatchIf([_set(1, 5), _set(1), _set(1, 9)]))
    assert (False, True) == attempt_bearers(BatchIf([_set(1, 5), _set(1, 9)]))


def test_a_static_attempt_is_written_once_a_partition() -> None:
    head = UpdateIf(HEADS, {"p": 1}, {"h": 1}, is_("h", None), attempt=ME)
    assert (True, False, False) == attempt_bearers(BatchIf([head, _set(1, table=HEADS), _set(2, table=HEADS)]))
    assert (True,) == attempt_bearers(head)
