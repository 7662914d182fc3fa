"""What a query's filters say of where to read: never less than it needs."""

from __future__ import annotations

import pytest

from headgate_spark.decide_range import Told, Wanted, narrow


def narrowed(*told: Told, wanted: Wanted | None = None) -> Wanted:
    """With orders that are ten times a timestamp, of which each has ten."""
    start = wanted or Wanted()
    return narrow(start, told, first_at=lambda us: us * 10, last_at=lambda us: us * 10 + 9)


@pytest.mark.parametrize(
    ("told", "first", "last"),
    [
        (Told("at", ">=", 5), 50, None),
        (Told("at", ">", 5), 50, None),
        (Told("at", "<", 5), None, 59),
        (Told("at", "<=", 5), None, 59),
        (Told("at", "=", 5), 50, 59),
        (Told("due", ">=", 5), 50, None),
        (Told("put", ">", 5), 50, None),
        (Told("due", "<", 5), None, None),
        (Told("put", "<=", 5), None, None),
        (Told("due", "=", 5), 50, None),
    ],
)
def test_a_moment_bounds_positions_as_far_as_it_must(told: Told, first: int | None, last: int | None) -> None:
    assert Wanted(first, last) == narrowed(told)


def test_filters_and_options_only_narrow() -> None:
    wanted = Wanted(first=70, last=90)
    assert Wanted(70, 89) == narrowed(Told("at", ">", 5), Told("at", "<", 8), wanted=wanted)


def test_lanes_are_those_that_all_filters_name() -> None:
    found = narrowed(Told("shard", "in", (1, 2)), Told("shard", "=", 2), Told("generation", "=", 1))
    assert (True, False, False) == (found.has_lane(1, 2), found.has_lane(1, 1), found.has_lane(2, 2))


@pytest.mark.parametrize("told", [Told("shard", ">", 1), Told("payload", "=", b"x"), Told("at", "=", "soon")])
def test_what_is_not_understood_is_left_to_spark(told: Told) -> None:
    assert Wanted() == narrowed(told)
