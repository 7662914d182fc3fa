"""Two owners of a lane: seen when it happened for sure, and never while leases are kept, whatever clocks show."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.lanes.balance.decide_dual_owners import (
    DualOwnership,
    HeldLanes,
    LaneClaim,
    LaneClaims,
    decide_epoch_to_stop,
    decode_held,
    encode_held,
    find_dual_owners,
)

SECOND = 1_000_000
SKEW = SECOND // 2
LANE = (1, 0)


def claims(member: int, at_us: int, epoch: int, since_us: int, lane: tuple[int, int] = LANE) -> LaneClaims:
    """A member that holds one lane."""
    return LaneClaims(UUID(int=member), at_us, (LaneClaim(lane, epoch, since_us),))


def test_an_earlier_owner_that_continues_beyond_the_skew_is_seen_and_one_within_it_is_not() -> None:
    later = claims(2, 20 * SECOND, 4, 10 * SECOND)
    assert [] == find_dual_owners([claims(1, 10 * SECOND + SKEW, 3, 0), later], SKEW)
    assert [DualOwnership(LANE, 3, 4)] == find_dual_owners([later, claims(1, 10 * SECOND + SKEW + 1, 3, 0)], SKEW)


def test_two_owners_of_the_same_epoch_are_seen_as_soon_as_each_speaks_after_the_other_began() -> None:
    one, other = claims(1, 20 * SECOND, 3, 0), claims(2, 21 * SECOND, 3, 10 * SECOND)
    assert [DualOwnership(LANE, 3, 3)] == find_dual_owners([one, other], SKEW)
    assert [] == find_dual_owners([claims(1, 5 * SECOND, 3, 0), other], SKEW)


def test_lanes_are_held_against_themselves_alone() -> None:
    assert [] == find_dual_owners([claims(1, 20 * SECOND, 3, 0), claims(2, 20 * SECOND, 4, 0, (1, 1))], SKEW)
    both = (LaneClaim((1, 0), 3, 0), LaneClaim((2, 0), 5, 0))
    reports = [LaneClaims(UUID(int=1), 20 * SECOND, both), claims(2, 20 * SECOND, 7, 10 * SECOND, (2, 0))]
    assert [DualOwnership((2, 0), 5, 7)] == find_dual_owners(reports, SKEW)


TURNS = st.lists(
    st.tuples(
        st.integers(0, 30 * SECOND),  # for this long it owns the lane
        st.integers(0, 5 * SECOND),  # until the next is answered
        st.integers(-SKEW // 2, SKEW // 2),  # its clock
        st.floats(0, 1),  # when in its time it spoke last
    ),
    min_size=2,
    max_size=6,
)


@given(turns=TURNS)
def test_owners_that_follow_one_another_are_never_taken_for_two_whenever_they_spoke_and_whatever_their_clocks(
    turns: list[tuple[int, int, int, float]],
) -> None:
    reports, at_us = [], 0
    for number, (owns_us, pause_us, clock_us, spoke) in enumerate(turns):
        time_us = at_us + round(owns_us * spoke)
        reports.append(claims(number, time_us + clock_us, number + 1, at_us + clock_us))
        at_us += owns_us + pause_us
    assert [] == find_dual_owners(reports, SKEW)


@given(clocks=st.tuples(*[st.integers(-SKEW // 2, SKEW // 2)] * 2), beyond_us=st.integers(2 * SKEW + 1, 60 * SECOND))
def test_a_process_that_continues_for_more_than_two_skews_is_seen_whatever_the_clocks(
    clocks: tuple[int, int], beyond_us: int
) -> None:
    began_us = 100 * SECOND
    earlier = claims(1, began_us + beyond_us + clocks[0], 3, clocks[0])
    later = claims(2, began_us + beyond_us + clocks[1], 4, began_us + clocks[1])
    assert [DualOwnership(LANE, 3, 4)] == find_dual_owners([earlier, later], SKEW)


def test_only_that_does_not_own_the_lane_by_its_row_is_stopped() -> None:
    result = DualOwnership(LANE, 3, 5)
    assert [3, 3] == [decide_epoch_to_stop(result, row_epoch) for row_epoch in (5, 6)]
    assert [None, None] == [decide_epoch_to_stop(result, row_epoch) for row_epoch in (3, 2)], (
        "the later one is in error"
    )
    assert 4 == decide_epoch_to_stop(DualOwnership(LANE, 4, 4), 4), "both are"


CLAIMS = st.lists(
    st.builds(
        LaneClaim,
        st.lists(st.integers(0, 2**128 - 1), max_size=3).map(tuple),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63),
    )
)
ADDRESSES = st.sampled_from(["", "10.0.0.7:4711", "[fd00::7]:4711"])


@given(lanes=CLAIMS, address=ADDRESSES, until_us=st.integers(0, 2**63))
def test_what_is_reported_is_read_back_in_order(lanes: list[LaneClaim], address: str, until_us: int) -> None:
    held = HeldLanes(tuple(lanes), address, until_us)
    assert replace(held, lanes=tuple(sorted(lanes))) == decode_held(encode_held(held))


@given(lanes=CLAIMS, cut=st.integers(1, 12))
def test_what_is_cut_short_or_of_another_version_is_read_as_far_as_it_is_known(
    lanes: list[LaneClaim], cut: int
) -> None:
    stored = encode_held(HeldLanes(tuple(lanes)))
    assert tuple(sorted(lanes))[:-1] == decode_held(stored[: max(1, len(stored) - cut)]).lanes
    assert (HeldLanes(), HeldLanes()) == (decode_held(None), decode_held(b"\x03" + stored[1:]))


def test_the_claims_of_a_member_of_the_release_before_are_read() -> None:
    stored = bytes.fromhex("01010000000200000007000000404b4c0000000000")
    assert HeldLanes((LaneClaim((1, 2), 7, 5_000_000),)) == decode_held(stored)
