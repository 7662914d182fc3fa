"""Offsets of a streaming read: all that a restarted query needs, as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_spark.engines.contract import Pick, RangePlan
from headgate_spark.read.decide_stream_batch import BatchOffset, OffsetUnreadable, pieces, trimmed

PICKS = st.lists(st.builds(Pick, st.integers(0, 2**40), st.binary(min_size=18, max_size=34), st.integers(1, 2**60)))


def plan(picks: list[Pick]) -> RangePlan:
    """Of one lane."""
    return RangePlan("1/0", b"loan", 7, 99, tuple(picks))


@settings(deadline=None)
@given(PICKS)
def test_an_offset_comes_back_from_a_checkpoint_as_it_was(picks: list[Pick]) -> None:
    offset = BatchOffset(5, (plan(picks), plan([])))
    assert offset == BatchOffset.from_json(json.loads(json.dumps(offset.to_json())))


def test_an_offset_of_a_later_release_is_refused_in_one_line() -> None:
    with pytest.raises(OffsetUnreadable, match="version=9"):
        BatchOffset.from_json({"version": 9})


@settings(deadline=None)
@given(PICKS, st.integers(1, 200))
def test_a_bound_is_kept_to_the_message_and_takes_the_first(picks: list[Pick], most: int) -> None:
    total = sum(pick.messages for pick in picks)
    kept = trimmed(plan(picks), most).picks
    assert min(total, most) == sum(pick.messages for pick in kept)
    for one, whole in zip(kept, picks, strict=False):
        assert (one.key, one.mask & ~whole.mask) == (whole.key, 0)
        left_out = whole.mask & ~one.mask
        assert left_out == 0 or one.mask < left_out & -left_out


@settings(deadline=None)
@given(PICKS, st.integers(1, 100))
def test_tasks_have_all_rows_once_in_their_order(picks: list[Pick], most: int) -> None:
    made = list(pieces(picks, most))
    assert picks == [pick for piece in made for pick in piece]
    assert all(len(piece) == 1 or sum(pick.messages for pick in piece) <= most for piece in made)
