"""The rows of a part's subs that come next: an oracle that knows all of them reads the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.timeline.read import sub_keys
from headgate.engines.timeline.read.sub_keys import NextRows, SubKeys

rows_of_subs = st.lists(st.lists(st.integers(1, 400), max_size=60), min_size=1, max_size=5)


def distinct(drawn: list[list[int]]) -> list[list[int]]:
    """Each order in one sub alone."""
    sub_of = {order: sub for sub, of_sub in enumerate(drawn) for order in of_sub}
    return [sorted(order for order, each in sub_of.items() if each == sub) for sub in range(len(drawn))]


def learn(keys: SubKeys, stored: list[list[int]], upper: int, keys_each: int) -> int:
    """As a reader does; how many reads that were."""
    unknown = keys.unknown(range(len(stored)), upper)
    for sub in unknown:
        keys.learn(sub, [each for each in stored[sub] if keys.after < each <= upper][:keys_each], upper=upper)
    return len(unknown)


@given(rows_of_subs, st.integers(1, 9), st.integers(2, 12), st.integers(20, 120))
def test_all_rows_come_once_and_in_order_while_time_passes_and_rows_are_added(
    drawn: list[list[int]], rows_max: int, keys_each: int, step: int
) -> None:
    """A row is there before the reader's now passes its due."""
    stored = distinct(drawn)
    keys = SubKeys(0, 0)
    before = sub_keys.KEYS_EACH
    sub_keys.KEYS_EACH = keys_each
    read: list[int] = []
    try:
        for now in range(step, 400 + 2 * step, step):
            for _ in range(2_000):
                present = [[order for order in of_sub if order <= now] for of_sub in stored]
                learn(keys, present, now, keys_each)
                chosen = keys.choose(range(len(stored)), now, rows=rows_max)
                orders = sorted(order for of_sub in chosen.by_sub.values() for order in of_sub)
                assert len(orders) <= rows_max
                assert all(keys.after < order <= chosen.bound for order in orders)
                read += orders
                keys.pass_to(chosen.bound)
                if chosen.bound >= now:
                    break
            else:
                raise AssertionError("it makes no progress")
    finally:
        sub_keys.KEYS_EACH = before
    assert sorted(order for of_sub in stored for order in of_sub) == read


def test_keys_that_are_left_over_cost_no_further_read() -> None:
    keys = SubKeys(0, 0)
    stored = [[10, 20, 30], [15, 25, 35]]
    assert 2 == learn(keys, stored, 40, 256)
    assert NextRows({0: [10], 1: [15]}, 15) == keys.choose([0, 1], 40, rows=2)
    keys.pass_to(15)
    assert 0 == learn(keys, stored, 50, 256)
    keys.pass_to(40)
    assert 2 == learn(keys, stored, 50, 256), "a later now needs another read"
