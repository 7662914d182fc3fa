"""The range to read that follows from a query's filters: never less than the query needs."""

from __future__ import annotations

import pytest

from headgate_spark.engines.contract import ReadRange
from headgate_spark.read.decide_range import ColumnFilter, decide_range


def narrowed(*report: ColumnFilter, wanted: ReadRange | None = None) -> ReadRange:
    """With orders that are ten times a timestamp, of which each has ten."""
    start = wanted or ReadRange()
    return decide_range(start, report, first_at=lambda us: us * 10, last_at=lambda us: us * 10 + 9)


@pytest.mark.parametrize(
    ("output", "first", "last"),
    [
        (ColumnFilter("at", ">=", 5), 50, None),
        (ColumnFilter("at", ">", 5), 50, None),
        (ColumnFilter("at", "<", 5), None, 59),
        (ColumnFilter("at", "<=", 5), None, 59),
        (ColumnFilter("at", "=", 5), 50, 59),
        (ColumnFilter("due", ">=", 5), 50, None),
        (ColumnFilter("put", ">", 5), 50, None),
        (ColumnFilter("due", "<", 5), None, None),
        (ColumnFilter("put", "<=", 5), None, None),
        (ColumnFilter("due", "=", 5), 50, None),
    ],
)
def test_a_time_bounds_positions_as_far_as_it_must(output: ColumnFilter, first: int | None, last: int | None) -> None:
    assert ReadRange(first, last) == narrowed(output)


def test_filters_and_options_only_narrow() -> None:
    wanted = ReadRange(first=70, last=90)
    assert ReadRange(70, 89) == narrowed(ColumnFilter("at", ">", 5), ColumnFilter("at", "<", 8), wanted=wanted)


def test_lanes_are_those_that_all_filters_name() -> None:
    result = narrowed(
        ColumnFilter("shard", "in", (1, 2)), ColumnFilter("shard", "=", 2), ColumnFilter("generation", "=", 1)
    )
    assert (True, False, False) == (result.has_lane(1, 2), result.has_lane(1, 1), result.has_lane(2, 2))


@pytest.mark.parametrize(
    "output", [ColumnFilter("shard", ">", 1), ColumnFilter("payload", "=", b"x"), ColumnFilter("at", "=", "soon")]
)
def test_what_is_not_understood_is_left_to_spark(output: ColumnFilter) -> None:
    assert ReadRange() == narrowed(output)
