"""How what Spark reads is cut into splits: all of it, nothing twice, of about equal weight, however it lies."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_spark.engines.timeline.decide_splits import (
    PIECES_MAX,
    PROBE_ROWS,
    SPLITS_MAX,
    Probe,
    SplitStretch,
    cut,
    decide_splits,
    heaviest,
    ranges_to_probe,
    weigh,
)


def stretch(weight: float, *, shard: int = 0, part: int = 0, after: int = 0, up_to: int = 1_000_000) -> SplitStretch:
    """One partition's range."""
    return SplitStretch(1, shard, part, 0, after, up_to, weight)


def test_small_parts_of_a_lane_share_a_split_and_lanes_do_not() -> None:
    splits = decide_splits(
        [stretch(10, shard=shard, part=part) for shard in (0, 1) for part in range(5)], weight_max=100
    )
    assert [(0, 5), (1, 5)] == [(split[0].shard, len(split)) for split in splits]


def test_one_that_holds_everything_is_cut_into_equal_ranges() -> None:
    splits = decide_splits([stretch(1_000_000)], weight_max=100_000)
    assert [100_000.0] * 10 == [each.weight for split in splits for each in split]
    assert (0, 1_000_000) == (splits[0][0].after, splits[-1][0].up_to)


def test_more_splits_than_a_driver_can_plan_are_never_made() -> None:
    assert SPLITS_MAX + 1 >= len(decide_splits([stretch(10**9, up_to=10**12)], weight_max=1))


def test_a_split_has_a_bound_on_its_pieces() -> None:
    splits = decide_splits([stretch(0, part=part) for part in range(3 * PIECES_MAX)], weight_max=100)
    assert [PIECES_MAX] * 3 == list(map(len, splits))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 5), st.integers(0, 10**6), st.integers(1, 10**6), st.floats(0, 1e6)
        ),
        max_size=20,
        unique_by=lambda each: each[:2],
    ),
    st.integers(1, 10**5),
)
def test_splits_cover_exactly_what_there_is(result: list[tuple[int, int, int, int, float]], weight_max: int) -> None:
    stretches = [
        stretch(weight, shard=shard, part=part, after=after, up_to=after + width)
        for shard, part, after, width, weight in result
    ]
    pieces = [piece for split in decide_splits(stretches, weight_max=weight_max) for piece in split]
    joined: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        ends = joined.setdefault((piece.shard, piece.part), [])
        if ends and ends[-1][1] == piece.after:
            ends[-1] = (ends[-1][0], piece.up_to)
        else:
            ends.append((piece.after, piece.up_to))
    assert {(each.shard, each.part): [(each.after, each.up_to)] for each in stretches} == joined


def test_a_range_too_narrow_to_be_cut_stays_whole() -> None:
    assert [stretch(50, up_to=3)] == cut(stretch(50, up_to=3), 1)


def test_probes_begin_at_the_first_row_and_end_at_the_last() -> None:
    ranges = ranges_to_probe(0, 501, 900, 4)
    assert (500, 900, 4) == (ranges[0][0], ranges[-1][1], len(ranges))
    assert all(high == low for (_, high), (low, _) in pairwise(ranges))


def test_a_probe_that_came_to_its_end_counts_and_one_that_did_not_estimates() -> None:
    assert 3.0 == Probe(0, 1000, 3, 900).rows_estimated
    assert PROBE_ROWS * 10.0 == Probe(0, 1000, PROBE_ROWS, 100).rows_estimated


def test_what_a_probe_found_empty_is_not_read() -> None:
    result = weigh(stretch(9), [Probe(0, 10, 0, 10), Probe(10, 20, 5, 20)], messages_a_row=2.0)
    assert [(10, 20, 10.0)] == [(each.after, each.up_to, each.weight) for each in result]


def test_the_heaviest_are_probed_first() -> None:
    assert {1, 3} == heaviest([5, 50, 20, 70], above=10, most=2)
