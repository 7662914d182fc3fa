"""From packed rows to Arrow: the same messages as one by one, whatever columns they have, in their order."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engines.lanes.log.settle_log_format import bits_of
from headgate.engines.packed_row import PackedRun, RowBroken, pack, unpack
from headgate.engines.timeline.model.layout import id_suffix
from headgate_spark.engines.packed_columns import TYPES, About, BatchBuilder, Exceptions, OpenRow

SUFFIXES = [id_suffix(index) for index in range(512)]
ABOUT = About("row-", "a-position", 77, 2, 1, "ready")


def built(cells: list[bytes], columns: tuple[str, ...] = tuple(TYPES), **options: Any) -> list[dict[str, Any]]:
    """All messages of some rows, as mappings."""
    builder = BatchBuilder(columns, SUFFIXES, **options)
    matches: list[dict[str, Any]] = []
    for cell in cells:
        row = OpenRow(cell)
        if row.count == 1:
            builder.add_alone(unpack(cell), ABOUT)
        else:
            builder.add(row, ABOUT)
        matches += [each for batch in builder.take_full() for each in batch.to_pylist()]
    return matches + [each for batch in builder.take() for each in batch.to_pylist()]


def run(count: int, *, start: int = 0, bare: bool = False) -> PackedRun:
    """Some messages, with all that a message may have, or only what it must."""
    numbers = range(start, start + count)
    if bare:
        return PackedRun([5] * count, [4] * count, [b"p%d" % at for at in numbers])
    return PackedRun(
        due_us=[1_000_000 + at for at in numbers],
        put_us=[500_000] * count,
        payload=[b"x" * (at % 7) for at in numbers],
        attempt=[at % 3 for at in numbers],
        attributes=[
            b"" if at % 2 else json.dumps({"n": str(at), "b": {"binary": "AP8="}}).encode() for at in numbers
        ],
        group=[b"" if at % 2 else b"g%d" % at for at in numbers],
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=6), st.integers(1, 700))
def test_arrow_has_the_messages_of_the_rows_in_their_order(rows: list[tuple[int, bool]], a_batch: int) -> None:
    runs = [run(min(count, 512), start=at * 1000, bare=bare) for at, (count, bare) in enumerate(rows)]
    result = built([pack(each) for each in runs], batch_messages=a_batch)
    expected = [
        (payload, due, put, attempt)
        for each in runs
        for payload, due, put, attempt in zip(
            each.payload, each.due_us, each.put_us, each.attempt or [0] * len(each), strict=True
        )
    ]
    assert expected == [(row["payload"], us(row["due"]), us(row["put"]), row["attempt"]) for row in result]


def us(time: Any) -> int:
    """Microseconds since 1970."""
    return int(pa.scalar(time, TYPES["due"]).cast(pa.int64()).as_py())


def test_what_a_row_has_in_common_is_reported_of_each_message() -> None:
    result = built([pack(run(3)), pack(run(1))])
    assert [f"row-{SUFFIXES[at]}" for at in (0, 1, 2, 0)] == [row["id"] for row in result]
    assert {("a-position", 2, 1, "ready", None, 77)} == {
        (row["position"], row["generation"], row["shard"], row["standing"], row["hidden_until"], us(row["at"]))
        for row in result
    }


@pytest.mark.parametrize("count", [1, 3])
def test_groups_and_attributes_are_read_and_their_absence_is_nothing(count: int) -> None:
    first = built([pack(run(count))])[0]
    assert ("g0", [("n", "0")], [("b", b"\x00\xff")]) == (
        first["group"], first["attributes"], first["binary_attributes"],
    )  # fmt: skip
    bare = built([pack(run(count, bare=True))])[0]
    assert (None, [], []) == (bare["group"], bare["attributes"], bare["binary_attributes"])


def test_only_the_wanted_columns_are_there_in_the_wanted_order() -> None:
    assert [["payload", "id"]] * 2 == [list(row) for row in built([pack(run(2))], ("payload", "id"))]


def test_some_messages_of_a_row_are_taken_and_may_have_something_of_their_own() -> None:
    builder = BatchBuilder(("id", "attempt", "standing", "hidden_until"), SUFFIXES)
    but = Exceptions({1: "another"}, {1: 9}, {1: 10}, "in_flight")
    builder.add(OpenRow(pack(run(4))), ABOUT, bits_of(1, 3), but)
    builder.add_alone(run(1), ABOUT, Exceptions({0: "alone"}, {0: 8}, {0: 11}, "in_flight"))
    rows = [row for batch in builder.take() for row in batch.to_pylist()]
    assert [("another", 9, "in_flight"), (f"row-{SUFFIXES[2]}", 2, "ready"), ("alone", 8, "in_flight")] == [
        (row["id"], row["attempt"], row["standing"]) for row in rows
    ]


def test_a_broken_row_is_refused() -> None:
    cell = bytearray(pack(run(3)))
    cell[-1] ^= 1
    with pytest.raises(RowBroken, match="checksum"):
        OpenRow(bytes(cell))
