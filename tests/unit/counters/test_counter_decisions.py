"""Decisions about counters, as properties: lives, shards and their collection, tokens, windows, passes, memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.counters.model.decide_hints import GcAfterTooShort, decide_hint_windows
from headgate.counters.model.decide_life import Life, LifeTerms, decide_stamp_us
from headgate.counters.model.decide_passes import DAY_US, BucketMark, PassHistory, decide_next_pass, places_left
from headgate.counters.model.decide_shards import (
    TALLY,
    KeyRows,
    Shard,
    ShardBroken,
    Tally,
    bucket_of,
    cutoff_us,
    decide_collection,
    end_of,
    is_worth_collecting,
    last_id_of,
    mutator_id,
    rows_of_key,
    tally_cell,
    tally_of,
    whole_keys,
)
from headgate.counters.model.decide_tokens import (
    MINUTE_US,
    Token,
    TokenInvalid,
    close_us,
    decide_last_foldable,
    first_unfolded_end_us,
    fold_end_us,
    fold_stamp_us,
    silent_after_us,
)
from headgate.counters.model.decide_windows import GrainWindow, StretchInvalid, decide_windows, ttl_s, window_at
from headgate.counters.write.memory import TOTAL, Gone, Memory
from headgate.expiry import is_separated
from headgate.store.cassandra.node_queries import window_us_of

SECOND = 1_000_000
HOUR = 3_600 * SECOND
SKEW = 500_000

# ---- lives


def test_a_mutator_refuses_in_its_last_hour_and_is_silent_in_its_last_half_hour() -> None:
    life = Life.begin(1_000 * HOUR, LifeTerms(24 * HOUR, HOUR))
    assert life.end_us == 1_024 * HOUR
    assert [life.accepts(at) for at in (1_023 * HOUR - 1, 1_023 * HOUR)] == [True, False]
    silent = 1_024 * HOUR - HOUR // 2
    assert [life.acknowledges(at) for at in (silent - 1, silent)] == [True, False]


@given(st.integers(4, 1000), st.integers(0, 10**9))
def test_whatever_the_resource_states_the_collector_comes_after_the_mutator_is_silent(skews: int, after: int) -> None:
    refuse_us = skews * SKEW  # refuseWithin is at least four of maxClockSkew, gc.after at least two
    assert is_separated(margin_us=refuse_us // 2, wait_us=after + 2 * SKEW, skew_us=SKEW)


@given(st.lists(st.integers(0, 100), min_size=1))
def test_timestamps_grow_whatever_the_clock_shows(clock: Sequence[int]) -> None:
    stamps = [0]
    for now_us in clock:
        stamps.append(decide_stamp_us(now_us, stamps[-1]))
    assert stamps == sorted(set(stamps))


# ---- shards


@given(st.integers(0, 2**63), st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.integers(0, 2**64 - 1))
def test_ids_sort_by_end_and_the_tally_before_all(end: int, low: int, other_end: int, other_low: int) -> None:
    one, other = mutator_id(end, low), mutator_id(other_end, other_low)
    assert end_of(one) == end
    assert ((end, low) < (other_end, other_low)) == (one < other)
    assert TALLY < one <= last_id_of(end)


def test_what_is_no_row_of_ours_is_a_bug_and_not_a_value() -> None:
    for rows in ([(b"short", b"x")], [(TALLY, b"x" * 8)], [(TALLY, b"")]):
        with pytest.raises(ShardBroken):
            rows_of_key(rows)
    assert tally_of(tally_cell(5, b"state")) == Tally(5, b"state")


def test_a_bucket_follows_from_the_key_alone() -> None:
    assert [bucket_of(key, 64) for key in ("home", "käse", "k0")] == [16, 55, 63]
    counts = [0] * 64
    for number in range(6400):
        counts[bucket_of(f"user:{number}", 64)] += 1
    assert min(counts) > 40


ENDS = st.lists(st.integers(1, 40), max_size=8)


def _shards(ends: Sequence[int]) -> tuple[Shard, ...]:
    return tuple(Shard(mutator_id(end, number + 1), end, b"%d," % number) for number, end in enumerate(ends))


def _counted(rows: KeyRows) -> list[str]:
    return sorted(b"".join(rows.states()).decode().split(",")[:-1])


def _collected(rows: KeyRows, cutoff: int) -> tuple[int, Tally] | None:
    collection = decide_collection(rows, cutoff)
    if collection is None:
        return None
    return collection.timestamp_us, Tally(collection.through_us, b"".join(collection.states))


@given(ENDS, st.lists(st.integers(0, 50), min_size=1, max_size=4), st.permutations(range(4)))
def test_batches_of_any_cutoffs_in_any_order_count_each_shard_once(
    ends: Sequence[int], cutoffs: Sequence[int], order: Sequence[int]
) -> None:
    """All decided on what there was at first; the highest timestamp stays, and ranges are deleted by all of them."""
    before = KeyRows(None, _shards(ends))
    batches = [result for cutoff in cutoffs if (result := _collected(before, cutoff)) is not None]
    stands: tuple[int, Tally] | None = None
    gone = 0
    for place in order:
        if place < len(batches):
            stamp, tally = batches[place]
            gone = max(gone, tally.through_us)
            if stands is None or stamp > stands[0]:
                stands = stamp, tally
            left = tuple(shard for shard in before.shards if shard.end_us > gone)
            assert _counted(KeyRows(stands[1], left)) == _counted(before)
            assert _counted(KeyRows(stands[1], before.shards)) == _counted(before)  # and where they came back


@given(ENDS, ENDS, st.integers(0, 50), st.integers(0, 50))
def test_a_second_collection_takes_in_what_the_first_left(
    ends: Sequence[int], later: Sequence[int], cutoff: int, further: int
) -> None:
    rows = KeyRows(None, _shards(ends))
    first = _collected(rows, cutoff)
    if first is None:
        return
    tally = first[1]
    fresh = tuple(
        Shard(mutator_id(tally.through_us + end, 99 + number), tally.through_us + end, b"%d," % (99 + number))
        for number, end in enumerate(later)
    )
    then = KeyRows(tally, (*rows.shards, *fresh))  # those of the first are still there, or there again
    second = _collected(then, further)
    if second is not None:
        left = tuple(shard for shard in then.shards if shard.end_us > second[1].through_us)
        assert _counted(KeyRows(second[1], left)) == _counted(then)
        assert second[0] >= first[0]


def test_a_lone_shard_is_left_and_one_beside_a_tally_is_not() -> None:
    one, two = _shards([5]), _shards([5, 6])
    assert not is_worth_collecting(KeyRows(None, one), 10)
    assert is_worth_collecting(KeyRows(None, two), 10)
    assert not is_worth_collecting(KeyRows(None, two), 5)
    assert is_worth_collecting(KeyRows(Tally(4, b""), one), 5)
    assert not is_worth_collecting(KeyRows(Tally(4, b""), one), 4)


@pytest.mark.parametrize(
    ("keys", "limit", "output"),
    [
        ([], 3, (None, False)),
        (["a"], 3, ("a", False)),
        (["a", "a", "b"], 3, ("a", True)),
        (["a", "a", "a"], 3, (None, True)),
        (["a", "b", "b"], 4, ("b", False)),
    ],
)
def test_the_last_key_of_a_full_page_may_not_be_whole(
    keys: list[str], limit: int, output: tuple[str | None, bool]
) -> None:
    assert whole_keys(keys, limit) == output


# ---- tokens

NOWS = st.integers(10**15, 2 * 10**15)
WINDOWS = st.integers(60, 86_400).map(lambda s: s * SECOND)


@given(NOWS, WINDOWS)
def test_no_minute_is_folded_while_somebody_may_acknowledge_in_it(now_us: int, window_us: int) -> None:
    last = decide_last_foldable(now_us, window_us, SKEW)
    assert now_us >= close_us(last, window_us) + 2 * SKEW
    assert now_us < close_us(last + 1, window_us) + 2 * SKEW
    slowest = now_us - SKEW
    assert slowest >= silent_after_us(last, window_us, SKEW)
    assert is_separated(margin_us=2 * SKEW, wait_us=2 * SKEW, skew_us=SKEW)


@given(NOWS, WINDOWS)
def test_what_is_acknowledged_after_a_read_is_of_a_minute_beyond_every_cutoff_of_it(
    now_us: int, window_us: int
) -> None:
    minute = now_us // MINUTE_US
    while silent_after_us(minute - 1, window_us, SKEW) > now_us:
        minute -= 1
    assert cutoff_us(now_us, MINUTE_US, None) < fold_end_us(minute)
    assert fold_stamp_us(minute) < fold_end_us(minute)


def test_the_first_unfolded_minute_bounds_the_cutoff_unless_nothing_is_unfolded() -> None:
    assert first_unfolded_end_us(None, None) is None
    assert first_unfolded_end_us(10, 10) is None
    assert first_unfolded_end_us(10, 12) is None
    assert first_unfolded_end_us(10, 8) == fold_end_us(9)
    assert first_unfolded_end_us(10, None) == fold_end_us(0)
    assert cutoff_us(100, 10, 50) == 49
    assert cutoff_us(100, 10, 200) == 90


@given(st.integers(0, 10**10 - 1), st.text(min_size=1, max_size=200).filter(lambda name: name.isprintable()))
def test_a_token_is_the_text_that_was_kept(second: int, name: str) -> None:
    assert Token.parse(str(Token(second, name))) == Token(second, name)


@pytest.mark.parametrize("text", ["", "x", "1-x", "0000000001", "0000000001-", "000000000x-a", "-0000000001-a"])
def test_what_is_no_token_is_one_line(text: str) -> None:
    with pytest.raises(TokenInvalid) as caught:
        Token.parse(text)
    assert "\n" not in str(caught.value)


# ---- windows

GRAINS = st.sampled_from([(60,), (60, 3600), (60, 3600, 86_400), (10, 70), (10, 60, 100)])


@given(GRAINS, st.integers(0, 3000), st.integers(1, 3000))
def test_windows_make_up_a_stretch_without_gap_or_overlap(grains: Sequence[int], first: int, length: int) -> None:
    finest = min(grains)
    result = decide_windows(first * finest, (first + length) * finest, grains)
    assert result[0].start_us == first * finest
    assert result[-1].end_us == (first + length) * finest
    assert all(one.end_us == other.start_us for one, other in pairwise(result))
    assert all(window.start_us % window.grain_us == 0 for window in result)


def test_coarse_windows_are_taken_where_they_fit() -> None:
    result = decide_windows(50 * 60, 200 * 60, (60, 3600))
    assert [window.grain_us for window in result] == [60] * 10 + [3600] * 2 + [60] * 20


@pytest.mark.parametrize(("first", "last", "grains"), [(0, 0, (60,)), (0, 90, (60,)), (30, 60, (60,)), (0, 60, ())])
def test_a_stretch_that_windows_cannot_report_is_refused(first: int, last: int, grains: tuple[int, ...]) -> None:
    with pytest.raises(StretchInvalid):
        decide_windows(first, last, grains)


def test_too_many_windows_for_one_read_are_refused() -> None:
    with pytest.raises(StretchInvalid):
        decide_windows(0, 60 * 30_000, (60,))


def test_a_window_stays_its_retention_long_after_its_end() -> None:
    window = window_at(3_700 * SECOND, HOUR)
    assert window == GrainWindow(HOUR, HOUR)
    assert ttl_s(window, 10 * SECOND, 2 * HOUR) == 10
    assert ttl_s(window, 10 * SECOND, 2 * HOUR - 1) == 11
    assert ttl_s(window, 10 * SECOND, 3 * HOUR) < 0


# ---- passes and hints


def test_a_pass_continues_until_every_bucket_is_done_and_is_full_if_none_was_skipped() -> None:
    standing = PassHistory({5: {0: BucketMark(0, "k", True), 1: BucketMark(1, "a", False)}})
    assert decide_next_pass(standing, 9, 2) == 5
    assert [mark.bucket for mark in places_left(standing, 5, 2)] == [1]
    assert decide_next_pass(standing, 6 + DAY_US, 2) == 6 + DAY_US
    done = PassHistory({5: {0: BucketMark(0, "k", True), 1: BucketMark(1, "z", True)}})
    assert (done.is_full(5, 2), decide_next_pass(done, 9, 2)) == (True, 9)
    skipped = PassHistory({5: {0: BucketMark(0, "k", True, skipped=1), 1: BucketMark(1, "z", True)}})
    assert (skipped.is_over(5, 2), skipped.is_full(5, 2)) == (True, False)


def test_a_full_pass_is_overdue_after_half_of_gc_grace() -> None:
    standing = PassHistory(full_us=10 * DAY_US)
    assert not standing.is_overdue(made_us=0, now_us=15 * DAY_US, gc_grace_us=10 * DAY_US)
    assert standing.is_overdue(made_us=0, now_us=15 * DAY_US + 1, gc_grace_us=10 * DAY_US)
    assert PassHistory().is_overdue(made_us=0, now_us=6 * DAY_US, gc_grace_us=10 * DAY_US)


@pytest.mark.parametrize(
    ("name", "output", "window_us"),
    [
        ("max_hint_window", "3h", 3 * HOUR),
        ("max_hint_window", "10800000ms", 3 * HOUR),
        ("max_hint_window", "1s", SECOND),
        ("max_hint_window", "90m", 90 * 60 * SECOND),
        ("max_hint_window_in_ms", "10800000", 3 * HOUR),
        ("max_hint_window", "10800000", None),
        ("max_hint_window", "soon", None),
        ("max_hint_window", None, None),
    ],
)
def test_a_hint_window_is_read_as_the_server_writes_it(name: str, output: str | None, window_us: int | None) -> None:
    assert window_us_of(name, output) == window_us


def test_gc_after_has_to_be_longer_than_every_hint_window_and_the_clocks() -> None:
    decide_hint_windows({"a": 3 * HOUR, "b": HOUR}, after_us=3 * HOUR + SKEW + 1, skew_us=SKEW)
    with pytest.raises(GcAfterTooShort) as caught:
        decide_hint_windows({"a": 3 * HOUR, "b": HOUR}, after_us=3 * HOUR + SKEW, skew_us=SKEW)
    assert caught.value.facts["node"] == "a"
    assert "\n" not in str(caught.value)


# ---- memory


def test_the_state_used_least_recently_goes_first_and_none_that_is_pinned() -> None:
    memory = Memory(10_000)
    slots = [memory.put(f"k{number}", TOTAL, number) for number in range(8)]
    for slot in slots:
        memory.pin(slot, 1_000)
    for slot in slots[1:]:
        memory.unpin(slot)
    memory.cull()
    assert [memory.find(f"k{number}", TOTAL) is not None for number in range(8)] == [
        number not in (1,) for number in range(8)
    ]
    assert memory.may_have_gone("k1", TOTAL)
    assert not memory.may_have_gone("k2", TOTAL)
    assert memory.bytes <= 10_000


def test_a_key_that_went_is_never_forgotten_to_have_gone() -> None:
    gone = Gone(1024)
    keys = [(f"key {number}", (number % 3, number)) for number in range(1_000)]
    for key in keys:
        gone.add(key)
    assert all(key in gone for key in keys)
    assert sum((f"other {number}", TOTAL) in gone for number in range(1_000)) < 200


def test_windows_that_are_over_are_forgotten_unless_a_write_of_them_is_under_way() -> None:
    memory = Memory(1_000_000)
    over, pinned, now = (60, 0), (60, 60), (60, 120)
    for place in (over, pinned, now, TOTAL):
        memory.put("k", place, 0)
    slot = memory.find("k", pinned)
    assert slot is not None
    memory.pin(slot, 10)
    memory.forget_windows(130)
    assert [memory.find("k", place) is not None for place in (over, pinned, now, TOTAL)] == [False, True, True, True]
