"""Sharing lanes among members: even, the same for all, and few lanes move."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from headgate.engines.lanes.balance.decide_shares import (
    EXTRA_KEPT_US,
    GIVE_BACK_AFTER_US,
    SECOND_US,
    STILL_US,
    UNPROCESSED_US,
    GivingBack,
    LaneObservation,
    Member,
    Watch,
    decide_shares,
    watchers,
)

MEMBERS = st.lists(st.uuids(), min_size=1, max_size=9, unique=True)
LANES = [(1, shard) for shard in range(24)]
SHARED_BEFORE = [3, 2, 1, 2, 3, 1, 3, 3, 2, 1, 2, 1]
WATCHED_BEFORE = {1, 5, 7}
"""What release 0.1.0 computes."""


def members_of(ids: list[UUID], capacity: int = 1_000) -> list[Member]:
    return [Member(each, capacity) for each in ids]


def counts(shared: dict[tuple[int, int], UUID]) -> list[int]:
    return sorted(list(shared.values()).count(each) for each in set(shared.values()))


@given(ids=MEMBERS, lanes=st.integers(0, 40))
def test_shares_differ_by_one_lane_at_most_and_no_lane_is_left(ids: list[UUID], lanes: int) -> None:
    shared = decide_shares(LANES[:lanes], members_of(ids))
    assert min(lanes, 24) == len(shared)
    held = [list(shared.values()).count(each) for each in ids]
    assert max(held) - min(held) <= 1


@given(ids=MEMBERS, lanes=st.permutations(LANES))
def test_the_order_of_the_lists_does_not_matter(ids: list[UUID], lanes: list[tuple[int, int]]) -> None:
    assert decide_shares(LANES, members_of(ids)) == decide_shares(lanes, members_of(ids[::-1]))


@given(ids=st.lists(st.uuids(), min_size=2, max_size=9, unique=True))
def test_when_a_member_leaves_few_lanes_move_but_his(ids: list[UUID]) -> None:
    before, after = decide_shares(LANES, members_of(ids)), decide_shares(LANES, members_of(ids[1:]))
    moved = [lane for lane in LANES if before[lane] != after[lane]]
    his = [lane for lane in LANES if before[lane] == ids[0]]
    assert set(his) <= set(moved)
    assert len(moved) <= len(LANES) // 2 + len(his)


@given(capacities=st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_nobody_gets_more_than_he_has_room_for_and_all_room_is_used(capacities: list[int]) -> None:
    members = [Member(UUID(int=number + 1), capacity) for number, capacity in enumerate(capacities)]
    shared = decide_shares(LANES, members)
    assert min(len(LANES), sum(capacities)) == len(shared)
    assert all(list(shared.values()).count(each.id) <= each.capacity for each in members)


def test_a_lane_is_given_back_only_after_it_was_anothers_without_a_break() -> None:
    me, other, giving = UUID(int=1), UUID(int=2), GivingBack()
    lane = (1, 0)
    assert [] == giving.decide([lane], {lane: other}, me, now_us=0)
    assert [] == giving.decide([lane], {lane: me}, me, now_us=GIVE_BACK_AFTER_US - 1)
    assert [] == giving.decide([lane], {lane: other}, me, now_us=GIVE_BACK_AFTER_US)
    assert [lane] == giving.decide([lane], {lane: other}, me, now_us=2 * GIVE_BACK_AFTER_US)


def test_a_lane_in_nobodys_share_is_kept() -> None:
    giving = GivingBack()
    assert [] == giving.decide([(1, 0)], {}, UUID(int=1), now_us=0)
    assert [] == giving.decide([(1, 0)], {}, UUID(int=1), now_us=2 * GIVE_BACK_AFTER_US)


def test_a_lane_taken_because_its_member_did_not_is_kept_for_a_while() -> None:
    me, other, giving = UUID(int=1), UUID(int=2), GivingBack()
    lane = (1, 0)
    giving.took_extra(lane, now_us=0)
    for now_us in (0, GIVE_BACK_AFTER_US, EXTRA_KEPT_US - 1, EXTRA_KEPT_US):
        assert [] == giving.decide([lane], {lane: other}, me, now_us=now_us)
    assert [lane] == giving.decide([lane], {lane: other}, me, now_us=EXTRA_KEPT_US + GIVE_BACK_AFTER_US)


def observation(at_us: int, **fields: object) -> LaneObservation:
    values: dict[str, object] = {"locked": True, "epoch": 3, "progress": 7, "touched_us": at_us, "due_us": 0}
    return LaneObservation((1, 0), at_us, **(values | fields))  # type: ignore[arg-type]


def test_a_free_lane_with_work_due_is_unprocessed_after_fifteen_seconds() -> None:
    watch = Watch(touch_us=2 * SECOND_US)
    assert not watch.is_unprocessed(observation(20 * SECOND_US, locked=False))
    assert not watch.is_unprocessed(observation(20 * SECOND_US + UNPROCESSED_US, locked=False, due_us=None))
    assert watch.is_unprocessed(observation(20 * SECOND_US + UNPROCESSED_US, locked=False))
    assert not watch.is_unprocessed(observation(60 * SECOND_US))
    assert not watch.is_unprocessed(observation(61 * SECOND_US, locked=False))


def test_a_touched_lane_whose_progress_stands_still_with_work_due_is_suspicious() -> None:
    watch = Watch(touch_us=2 * SECOND_US)
    assert not watch.is_suspicious(observation(SECOND_US))
    assert not watch.is_suspicious(observation(SECOND_US + STILL_US - 1))
    assert watch.is_suspicious(observation(SECOND_US + STILL_US))


def test_without_work_due_nobody_is_suspicious() -> None:
    watch = Watch(touch_us=2 * SECOND_US)
    watch.is_suspicious(observation(SECOND_US, due_us=None))
    assert not watch.is_suspicious(observation(SECOND_US + STILL_US, due_us=None))
    assert not watch.is_suspicious(observation(SECOND_US + STILL_US, due_us=SECOND_US + STILL_US + 1))
    assert watch.is_suspicious(observation(SECOND_US + STILL_US))


def test_progress_another_epoch_or_no_touch_begin_the_count_again() -> None:
    for change in ({"progress": 8}, {"epoch": 4}, {"touched_us": 0}, {"locked": False}):
        watch = Watch(touch_us=2 * SECOND_US)
        watch.is_suspicious(observation(SECOND_US))
        assert not watch.is_suspicious(observation(20 * SECOND_US, **change))
        assert not watch.is_suspicious(observation(SECOND_US + STILL_US)), change


@given(ids=st.lists(st.uuids(), min_size=1, max_size=9, unique=True))
def test_each_lane_is_watched_by_three_members_or_by_all_there_are(ids: list[UUID]) -> None:
    assert all(min(3, len(ids)) == len(watchers(lane, members_of(ids))) for lane in LANES)


def test_members_of_the_release_before_compute_the_same_shares() -> None:
    members = members_of([UUID(int=number) for number in range(1, 9)])
    shared = decide_shares(LANES[:12], members[:3])
    assert SHARED_BEFORE == [shared[lane].int for lane in LANES[:12]]
    assert WATCHED_BEFORE == {member.int for member in watchers((2, 70_000), members)}
