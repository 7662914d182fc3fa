"""How the keys of one put are claimed: which together, and which one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.timeline.put.decide_once import CLAIMED_AT_ONCE_MAX, SLOTS_A_SHARE_MAX, OnceKey, line_up

SIZES = st.lists(st.one_of(st.integers(1, 5), st.integers(150, 450)), max_size=20)


def keys_of(sizes: list[int]) -> list[OnceKey]:
    """This many keys in each slot, the slots in turn."""
    return [
        (b"slot %d" % slot, b"%d" % number)
        for number in range(max(sizes, default=0))
        for slot, size in enumerate(sizes)
        if number < size
    ]


@given(SIZES)
def test_each_key_is_claimed_once_and_those_of_a_slot_one_share_after_the_other(sizes: list[int]) -> None:
    keys = keys_of(sizes)
    lines = line_up(keys)
    assert sorted(keys) == sorted(key for line in lines for share in line for of_slot in share for key in of_slot)
    line_of: dict[bytes, int] = {}
    for number, line in enumerate(lines):
        for share in line:
            assert len(share) <= SLOTS_A_SHARE_MAX
            assert sum(map(len, share)) <= CLAIMED_AT_ONCE_MAX
            for of_slot in share:
                assert 1 == len({slot for slot, _ in of_slot})
                assert number == line_of.setdefault(of_slot[0][0], number)


@given(SIZES.filter(bool))
def test_keys_that_need_one_order_are_one_share(sizes: list[int]) -> None:
    ((share,),) = line_up(keys_of(sizes), together=True)
    assert sizes == [len(of_slot) for of_slot in share]
