"""Two owners of a lane: seen when it happened for sure, and never while leases are kept, whatever clocks show."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.decide_owners import (
    Claim,
    Claims,
    TwoOwners,
    decode_claims,
    encode_claims,
    epoch_to_stop,
    two_owners,
)

SECOND = 1_000_000
SKEW = SECOND // 2
LANE = (1, 0)


def says(member: int, at_us: int, epoch: int, since_us: int, lane: tuple[int, int] = LANE) -> Claims:
    """A member that holds one lane."""
    return Claims(UUID(int=member), at_us, (Claim(lane, epoch, since_us),))


def test_an_earlier_owner_that_goes_on_beyond_the_skew_is_seen_and_one_within_it_is_not() -> None:
    later = says(2, 20 * SECOND, 4, 10 * SECOND)
    assert [] == two_owners([says(1, 10 * SECOND + SKEW, 3, 0), later], SKEW)
    assert [TwoOwners(LANE, 3, 4)] == two_owners([later, says(1, 10 * SECOND + SKEW + 1, 3, 0)], SKEW)


def test_two_owners_of_the_same_epoch_are_seen_as_soon_as_each_speaks_after_the_other_began() -> None:
    one, other = says(1, 20 * SECOND, 3, 0), says(2, 21 * SECOND, 3, 10 * SECOND)
    assert [TwoOwners(LANE, 3, 3)] == two_owners([one, other], SKEW)
    assert [] == two_owners([says(1, 5 * SECOND, 3, 0), other], SKEW)


def test_lanes_are_held_against_themselves_alone() -> None:
    assert [] == two_owners([says(1, 20 * SECOND, 3, 0), says(2, 20 * SECOND, 4, 0, (1, 1))], SKEW)
    both = (Claim((1, 0), 3, 0), Claim((2, 0), 5, 0))
    told = [Claims(UUID(int=1), 20 * SECOND, both), says(2, 20 * SECOND, 7, 10 * SECOND, (2, 0))]
    assert [TwoOwners((2, 0), 5, 7)] == two_owners(told, SKEW)


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
    told, at_us = [], 0
    for number, (owns_us, pause_us, clock_us, spoke) in enumerate(turns):
        moment_us = at_us + round(owns_us * spoke)
        told.append(says(number, moment_us + clock_us, number + 1, at_us + clock_us))
        at_us += owns_us + pause_us
    assert [] == two_owners(told, SKEW)


@given(clocks=st.tuples(*[st.integers(-SKEW // 2, SKEW // 2)] * 2), beyond_us=st.integers(2 * SKEW + 1, 60 * SECOND))
def test_who_goes_on_for_more_than_two_skews_is_seen_whatever_the_clocks(
    clocks: tuple[int, int], beyond_us: int
) -> None:
    began_us = 100 * SECOND
    earlier = says(1, began_us + beyond_us + clocks[0], 3, clocks[0])
    later = says(2, began_us + beyond_us + clocks[1], 4, began_us + clocks[1])
    assert [TwoOwners(LANE, 3, 4)] == two_owners([earlier, later], SKEW)


def test_only_who_does_not_own_the_lane_by_its_row_is_stopped() -> None:
    found = TwoOwners(LANE, 3, 5)
    assert [3, 3] == [epoch_to_stop(found, row_epoch) for row_epoch in (5, 6)]
    assert [None, None] == [epoch_to_stop(found, row_epoch) for row_epoch in (3, 2)], "the later one is in error"
    assert 4 == epoch_to_stop(TwoOwners(LANE, 4, 4), 4), "both are"


CLAIMS = st.lists(
    st.builds(
        Claim,
        st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63),
    )
)


@given(lanes=CLAIMS)
def test_what_is_said_is_read_back_in_order(lanes: list[Claim]) -> None:
    assert tuple(sorted(lanes)) == decode_claims(encode_claims(lanes))


@given(lanes=CLAIMS, cut=st.integers(1, 19))
def test_what_is_cut_short_or_of_another_version_is_read_as_far_as_it_is_known(lanes: list[Claim], cut: int) -> None:
    stored = encode_claims(lanes)
    assert tuple(sorted(lanes))[:-1] == decode_claims(stored[: max(1, len(stored) - cut)])
    assert ((), ()) == (decode_claims(None), decode_claims(b"\x02" + stored[1:]))
