"""Names of lanes: opaque bytes to all but their engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.lanes.lane_name import LaneName, decode_lane, encode_lane, format_lane, parse_lane

NAMES = st.lists(st.integers(0, 2**128 - 1), max_size=5).map(tuple)


@given(NAMES)
def test_a_name_is_read_back_whatever_numbers_its_engine_uses(name: LaneName) -> None:
    assert name == decode_lane(encode_lane(name))


@given(NAMES, NAMES)
def test_two_names_have_different_bytes(one: LaneName, other: LaneName) -> None:
    assert (one == other) == (encode_lane(one) == encode_lane(other))


@pytest.mark.parametrize("stored", [b"\x80", b"\x01\x80", b"\x80\x00"])
def test_bytes_that_are_no_name_are_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match="not the name of a lane"):
        decode_lane(stored)


def test_a_name_is_shown_as_its_numbers() -> None:
    assert ("1/12", (1, 12)) == (format_lane((1, 12)), parse_lane("1/12"))
