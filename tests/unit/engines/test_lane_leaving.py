"""The books of a lane around a change of the number of shards: groups that are held, rows that were moved."""

from __future__ import annotations

from typing import Any

from headgate.engines.lanes.delivery.delivery_state import DeliveryState
from headgate.engines.lanes.delivery.rows import DeliveryTerms, HandOut, LaneRow, Why
from headgate.engines.lanes.log.settle_log_format import RowFacts, Tried
from headgate.process.live import Live

SECOND = 1_000_000
TERMS = Live(DeliveryTerms(max_receives=3, hold_us_max=10 * SECOND, remembered_us=5 * SECOND))


def row(order: int, groups: list[bytes] | None, **more: Any) -> LaneRow:
    """A row with a message for each of the groups; one message where there are none."""
    count = len(groups) if groups else 1
    return LaneRow(key=b"row%d" % order, order=order, count=count, size_bytes=100, groups=groups, **more)


def held_with(*rows: LaneRow) -> DeliveryState:
    """Books that hold groups back, with these rows."""
    delivery_state = DeliveryState(TERMS, epoch=7, groups_held=True)
    for each in rows:
        delivery_state.add(each, now_us=0)
        delivery_state.reached(each.order)
    return delivery_state


def give(delivery_state: DeliveryState) -> list[HandOut]:
    """All that may go."""
    return delivery_state.hand_out(10, now_us=0, visibility_us=SECOND)


def places(given: list[HandOut]) -> list[tuple[int, int]]:
    """Row and index of each."""
    return [(each.row.order, each.index) for each in given]


def test_attack_C2_groups_are_held_while_others_go() -> None:
    delivery_state = held_with(row(1, [b"a", b"", b"b"]), row(2, None), row(3, [b"a"]))
    assert {(1, 1), (2, 0)} == set(places(give(delivery_state)))


def test_attack_C2_groups_go_once_the_lane_was_read_up_to_where_they_may() -> None:
    delivery_state = held_with(row(1, [b"a", b"b"]))
    delivery_state.open_groups_at(5)
    delivery_state.reached(4)
    assert [] == give(delivery_state)
    delivery_state.reached(5)
    assert {(1, 0), (1, 1)} == set(places(give(delivery_state)))
    assert not delivery_state.groups_held


def test_attack_C2_a_twin_that_came_late_takes_the_turn_of_the_row_that_it_replaces() -> None:
    delivery_state = held_with(row(2, [b"a"]), row(3, [b"a"]), row(4, [b"a"], stands_at=1))
    delivery_state.open_groups_at(4)
    delivery_state.reached(4)
    order = []
    for _ in range(3):
        (one,) = give(delivery_state)
        order.append(one.row.order)
        delivery_state.ack(one.row.key, 0, 1)
    assert [4, 2, 3] == order


def test_groups_go_too_when_no_more_can_be_read_before_they_do() -> None:
    delivery_state = held_with(row(1, [b"a"]))
    delivery_state.open_groups_if_allowed()
    assert [] == give(delivery_state)
    delivery_state.open_groups_at(5)
    delivery_state.open_groups_if_allowed()
    assert [(1, 0)] == places(give(delivery_state))


def test_attack_D10_a_purge_of_what_is_held_frees_nothing_before_its_time() -> None:
    delivery_state = held_with(first := row(1, [b"a"]), row(2, [b"a"]))
    delivery_state.strike(first, 1)
    assert [] == give(delivery_state)
    delivery_state.open_groups_at(2)
    delivery_state.reached(2)
    assert [(2, 0)] == places(give(delivery_state))


def test_a_row_that_was_moved_is_finished_and_never_handed_out() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    delivery_state.add(moved := row(1, None, moved={0: b"there"}), now_us=0)
    assert [] == give(delivery_state)
    (move,) = delivery_state.take_moves()
    assert (Why.MOVED, b"there", 0) == (move.why, move.place, move.attempt)
    delivery_state.move_done(moved, 0)
    delivery_state.durable(delivery_state.take_pending_facts())
    assert [1] == [each.order for each in delivery_state.advance()]


def test_what_the_row_shows_counts_more_than_what_was_tried_before() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    facts = RowFacts(tried={0: Tried(6, 0, 2, 0)})
    delivery_state.add(row(1, None, moved={0: b"there"}), facts, now_us=0)
    assert [] == give(delivery_state)
    assert [b"there"] == [move.place for move in delivery_state.take_moves()]


def test_what_was_settled_before_it_was_moved_is_not_moved_again() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    delivery_state.add(row(1, None, moved={0: b"there"}), RowFacts(settled=1), now_us=0)
    assert [] == delivery_state.take_moves()
