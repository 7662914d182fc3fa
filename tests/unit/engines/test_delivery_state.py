"""The books of a lane: every message in one state, one open delivery of each, a position that passes nothing."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.engines.crash_suspects import LEVEL_ALONE, DeliveredGroup, ProcessLife
from headgate.engines.lanes.delivery.delivery_state import DeliveryState
from headgate.engines.lanes.delivery.rows import DeliveryTerms, HandOut, LaneRow, Why
from headgate.engines.lanes.log.settle_log_format import Moved, RowFacts, Tried, decode, encode
from headgate.process.live import Live

SECOND = 1_000_000
TERMS = Live(DeliveryTerms(max_receives=3, hold_us_max=10 * SECOND, remembered_us=5 * SECOND))
FAR = 10**9


def row(order: int, count: int = 3, **more: Any) -> LaneRow:
    """A row of the lane; its key follows from its order."""
    return LaneRow(key=b"row%d" % order, order=order, count=count, size_bytes=100, **more)


def state_with(*rows: LaneRow, terms: Live[DeliveryTerms] = TERMS) -> DeliveryState:
    """Books into which these rows were read at time 0."""
    delivery_state = DeliveryState(terms, epoch=7)
    for each in rows:
        delivery_state.add(each, now_us=0)
    return delivery_state


def give(
    delivery_state: DeliveryState, limit: int = 10, *, now_us: int = 0, visibility_us: int = SECOND
) -> list[HandOut]:
    """Hand out what is no crash suspect."""
    return delivery_state.hand_out(limit, now_us=now_us, visibility_us=visibility_us)


def ack(delivery_state: DeliveryState, *given: HandOut) -> None:
    """Settle deliveries, and make that durable."""
    for each in given:
        assert delivery_state.ack(each.row.key, each.index, each.attempt)
    delivery_state.durable(delivery_state.take_pending_facts())


def places(given: list[HandOut]) -> list[tuple[int, int, int]]:
    """Row, index and attempt of each delivery."""
    return [(each.row.order, each.index, each.attempt) for each in given]


def test_messages_are_given_in_the_order_of_the_lane() -> None:
    delivery_state = state_with(row(1, 2), row(2, 2))
    assert [(1, 0, 1), (1, 1, 1), (2, 0, 1)] == places(give(delivery_state, 3))


def test_what_is_not_settled_in_time_comes_again_with_the_next_attempt() -> None:
    delivery_state = state_with(row(1, 1))
    give(delivery_state)
    assert [] == give(delivery_state, now_us=SECOND - 1)
    assert [(1, 0, 2)] == places(give(delivery_state, now_us=SECOND))


def test_the_receipt_of_an_earlier_delivery_is_stale() -> None:
    delivery_state = state_with(row(1, 1))
    (first,) = give(delivery_state)
    (second,) = give(delivery_state, now_us=SECOND)
    assert not delivery_state.ack(b"row1", 0, first.attempt)
    assert delivery_state.ack(b"row1", 0, second.attempt)
    assert not delivery_state.ack(b"row1", 0, second.attempt)


def test_the_position_passes_only_what_is_durable() -> None:
    delivery_state = state_with(row(1, 1), row(2, 1))
    one, two = give(delivery_state)
    delivery_state.ack(two.row.key, 0, 1)
    delivery_state.durable(delivery_state.take_pending_facts())
    delivery_state.ack(one.row.key, 0, 1)
    assert [] == delivery_state.advance()
    delivery_state.durable(delivery_state.take_pending_facts())
    assert [1, 2] == [each.order for each in delivery_state.advance()]


def test_facts_whose_write_failed_are_reported_again() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    delivery_state.ack(one.row.key, 0, 1)
    delivery_state.give_back(delivery_state.take_pending_facts())
    assert [(b"row1", 1)] == [(it.key, facts.settled) for it, facts in delivery_state.take_pending_facts().by_row()]


def test_what_earlier_tenures_settled_is_not_given_again() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    delivery_state.add(row(1, 3), RowFacts(settled=0b010), now_us=0)
    assert [(1, 0, 1), (1, 2, 1)] == places(give(delivery_state))


def test_attempts_and_hidden_messages_survive_a_change_of_owner() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    delivery_state.add(row(1, 2), RowFacts(tried={1: Tried(6, 0, 2, 5 * SECOND)}), now_us=0)
    assert [(1, 0, 1)] == places(give(delivery_state))
    assert [(1, 1, 3)] == places(give(delivery_state, now_us=5 * SECOND)[1:])


def test_every_hand_out_is_reported_to_the_next_owner() -> None:
    delivery_state = state_with(row(1, 2), row(2, 1))
    give(delivery_state, 2)
    ((_, facts),) = delivery_state.take_pending_facts().by_row()
    assert {(0, 1): Tried(7, 0, 1, SECOND, is_open=True)} == facts.runs
    give(delivery_state, 1, now_us=SECOND)
    ((_, facts), *_) = delivery_state.take_pending_facts().by_row()
    assert Tried(7, 0, 2, 2 * SECOND, is_open=True) == facts.tried[0]


def test_what_failed_or_was_handed_over_is_not_open_any_more() -> None:
    delivery_state = state_with(row(1, 2))
    first, _ = give(delivery_state, 2)
    delivery_state.nack(first.row.key, 0, 1, delay_us=SECOND, reason="", now_us=0)
    delivery_state.hand_over()
    ((_, facts),) = delivery_state.take_pending_facts().by_row()
    assert {0: Tried(7, 0, 1, SECOND), 1: Tried(7, 0, 1, SECOND)} == decode(encode({b"k": facts}, epoch=7, piece=0))[
        b"k"
    ].tried


def test_a_short_nack_after_a_long_extension_is_the_word_that_counts() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    delivery_state.extend(one.row.key, 0, 1, until_us=3600 * SECOND, now_us=0)
    changes = delivery_state.take_pending_facts()
    delivery_state.nack(one.row.key, 0, 1, delay_us=SECOND, reason="", now_us=0)
    delivery_state.give_back(changes)
    assert SECOND == next(delivery_state.take_pending_facts().by_row())[1].tried[0].hidden_until_us
    assert [(1, 0, 2)] == places(give(delivery_state, now_us=SECOND))


def test_a_message_received_too_often_goes_to_the_dead_letters_and_is_then_settled() -> None:
    delivery_state = state_with(row(1, 1))
    for attempt in (1, 2, 3):
        (one,) = give(delivery_state)
        delivery_state.nack(one.row.key, 0, attempt, delay_us=0, reason="boom", now_us=0)
    (move,) = delivery_state.take_moves()
    assert (Why.DEAD, 3, "boom", None) == (move.why, move.attempt, move.reason, move.place)
    delivery_state.place_fixed(move.row, 0, b"there")
    assert {0: Moved(7, 0, 3, b"there", "boom")} == next(delivery_state.take_pending_facts().by_row())[1].moved
    assert [] == delivery_state.advance()
    delivery_state.move_done(move.row, 0)
    delivery_state.durable(delivery_state.take_pending_facts())
    assert [1] == [each.order for each in delivery_state.advance()]


def test_a_long_backoff_never_holds_the_position() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    delivery_state.nack(one.row.key, 0, 1, delay_us=3600 * SECOND, reason="later", now_us=0)
    (move,) = delivery_state.take_moves()
    assert (Why.RETRY, 1, 3600 * SECOND) == (move.why, move.attempt, move.due_us)


def test_attack_D1_a_new_owner_finishes_the_copy_whose_place_is_fixed() -> None:
    delivery_state = DeliveryState(TERMS, epoch=7)
    delivery_state.add(row(1, 1), RowFacts(moved={0: Moved(6, 0, 1, b"there", "boom")}), now_us=0)
    assert [] == give(delivery_state)
    assert [b"there"] == [move.place for move in delivery_state.take_moves()]


def test_attack_C1_a_failed_message_holds_its_group_and_no_other() -> None:
    delivery_state = state_with(row(1, 3, groups=[b"a", b"a", b"b"]))
    first, other = give(delivery_state)
    assert [(1, 0, 1), (1, 2, 1)] == places([first, other])
    delivery_state.nack(first.row.key, 0, 1, delay_us=3600 * SECOND, reason="", now_us=0)
    assert [] == delivery_state.take_moves()
    assert [] == give(delivery_state, now_us=10 * SECOND, visibility_us=FAR)[1:]
    again = give(delivery_state, now_us=3600 * SECOND, visibility_us=FAR)
    assert (1, 0, 2) in places(again)
    delivery_state.ack(b"row1", 0, 2)
    assert (1, 1, 1) in places(give(delivery_state, now_us=3600 * SECOND))


OWNER = UUID(int=9)


def left_by(life: ProcessLife, *tried: Tried, count: int = 3) -> DeliveryState:
    """A lane whose earlier owner had these in flight, or had tried them."""
    delivery_state = DeliveryState(Live(replace(TERMS.now, max_receives=5)), epoch=7, life_of=lambda _: life)
    delivery_state.add(row(1, count), RowFacts(tried=dict(enumerate(tried))), now_us=0)
    return delivery_state


def open_at(level: int = 0, *, attempt: int = 1, until_us: int = 0) -> Tried:
    """A delivery that was open when its owner's lease ended."""
    return Tried(6, 0, attempt, until_us, level, True, OWNER)


def suspects(delivery_state: DeliveryState, level: int, *, now_us: int = 0) -> list[HandOut]:
    """Hand out crash suspects of a level, without a bound."""
    return delivery_state.hand_out_suspects(DeliveredGroup(level, 64, level), 64, now_us=now_us, visibility_us=SECOND)


def test_attack_D2_what_was_in_flight_when_its_process_ended_is_suspect_and_nothing_else() -> None:
    delivery_state = left_by(ProcessLife.ENDED, open_at(), Tried(6, 0, 1, 0, owner=OWNER))
    assert [(1, 1, 2), (1, 2, 1)] == places(give(delivery_state))
    assert {1: 1} == delivery_state.suspects_waiting
    (suspect,) = suspects(delivery_state, 1)
    assert (0, 1, True) == (suspect.index, suspect.attempt, suspect.suspect), "the death is not charged to it"
    assert {1: 1} == delivery_state.suspects_in_flight
    ((_, facts),) = delivery_state.take_pending_facts().by_row()
    assert Tried(7, 0, 1, SECOND, 1, True) == facts.tried[0]


def test_attack_D2_only_the_death_of_a_message_alone_is_charged() -> None:
    delivery_state = left_by(ProcessLife.ENDED, open_at(LEVEL_ALONE - 1), open_at(LEVEL_ALONE))
    assert [(1, 2, 1)] == places(give(delivery_state))
    assert {LEVEL_ALONE: 2} == delivery_state.suspects_waiting
    assert [(1, 0, 1), (1, 1, 2)] == places(suspects(delivery_state, LEVEL_ALONE))


def test_what_a_living_owner_had_in_flight_is_no_suspect() -> None:
    delivery_state = left_by(ProcessLife.ALIVE, open_at())
    assert [(1, 0, 2), (1, 1, 1), (1, 2, 1)] == places(give(delivery_state))
    assert not delivery_state.has_suspects


def test_until_it_is_known_whether_its_owner_ended_a_message_waits_and_others_do_not() -> None:
    life = [ProcessLife.UNKNOWN]
    delivery_state = DeliveryState(TERMS, epoch=7, life_of=lambda _: life[0])
    delivery_state.add(row(1, 2), RowFacts(tried={0: open_at(until_us=2 * SECOND)}), now_us=0)
    assert [(1, 1, 1)] == places(give(delivery_state))
    assert [] == [each.index for each in give(delivery_state, now_us=2 * SECOND) if each.index == 0]
    life[0] = ProcessLife.ENDED
    give(delivery_state, now_us=3 * SECOND)
    assert [(1, 0, 1)] == places(suspects(delivery_state, 1, now_us=3 * SECOND))


def test_a_suspect_that_fails_is_cleared_and_one_that_kills_its_process_goes_alone() -> None:
    delivery_state = left_by(ProcessLife.ENDED, open_at(), open_at(), open_at())
    give(delivery_state)
    failed, killed, returned = suspects(delivery_state, 1)
    for each, how in ((failed, {}), (killed, {"killed": True}), (returned, {"charged": False})):
        delivery_state.nack(each.row.key, each.index, each.attempt, delay_us=0, reason="", now_us=0, **how)
    assert [(1, 0, 2)] == places(give(delivery_state))
    assert {1: 1, LEVEL_ALONE: 1} == delivery_state.suspects_waiting
    assert [(1, 1, 2)] == places(suspects(delivery_state, LEVEL_ALONE))
    assert [(1, 2, 1)] == places(suspects(delivery_state, 1))


def test_one_that_killed_its_process_stays_in_its_lane_where_its_level_is_known() -> None:
    delivery_state = left_by(ProcessLife.ENDED, open_at(), count=1)
    give(delivery_state)
    (one,) = suspects(delivery_state, 1)
    delivery_state.nack(one.row.key, 0, 1, delay_us=3600 * SECOND, reason="", now_us=0, killed=True)
    assert [] == delivery_state.take_moves()
    assert [(1, 0, 2)] == places(suspects(delivery_state, LEVEL_ALONE, now_us=10 * SECOND))


def test_attack_E4_too_much_settled_above_one_message_holds_the_lane() -> None:
    terms = Live(DeliveryTerms(max_receives=3, hold_us_max=0, remembered_us=SECOND, holes_max=2))
    delivery_state = state_with(*(row(order, 1) for order in range(6)), terms=terms)
    blocker, *rest = give(delivery_state, 4)
    ack(delivery_state, *rest)
    assert delivery_state.is_held() and [] == give(delivery_state)
    ack(delivery_state, blocker)
    delivery_state.advance()
    assert [(4, 0, 1), (5, 0, 1)] == places(give(delivery_state))


def test_a_lane_that_is_held_delivers_what_holds_it_again() -> None:
    terms = Live(DeliveryTerms(max_receives=3, hold_us_max=0, remembered_us=SECOND, holes_max=2))
    delivery_state = state_with(*(row(order, 1) for order in range(6)), terms=terms)
    _, *rest = give(delivery_state, 4)
    ack(delivery_state, *rest)
    assert delivery_state.is_held()
    assert [(0, 0, 2)] == places(give(delivery_state, now_us=2 * SECOND))


def test_the_next_owner_of_a_lane_that_is_held_delivers_what_holds_it() -> None:
    terms = Live(DeliveryTerms(max_receives=3, hold_us_max=0, remembered_us=SECOND, holes_max=2))
    delivery_state = DeliveryState(terms, epoch=8)
    delivery_state.add(row(0, 1), now_us=0)
    for order in range(1, 5):
        delivery_state.add(row(order, 1), RowFacts(settled=1), now_us=0)
    delivery_state.add(row(5, 1), now_us=0)
    assert delivery_state.is_held()
    assert [(0, 0, 1)] == places(give(delivery_state))


def test_a_lent_range_is_not_given_and_not_passed_and_comes_back() -> None:
    delivery_state = state_with(*(row(order, 1) for order in range(4)))
    (mine,) = give(delivery_state, 1)
    delivery_state.lend(0, 2)
    assert [(0, 0, 1)] == [(it.order, index, attempt) for it, index, attempt in delivery_state.open_in_reservation()]
    ack(delivery_state, mine, *give(delivery_state))
    assert [] == delivery_state.advance()
    delivery_state.take_back({b"row1": RowFacts(settled=1)})
    assert [(2, 0, 1)] == places(give(delivery_state))
    assert [0, 1] == [each.order for each in delivery_state.advance()]


def test_a_range_that_was_given_back_is_not_given_before_it_is_known_what_was_settled_there() -> None:
    """Also where the job has borrowed the next one by then: its owner may hear of both at once."""
    delivery_state = state_with(*(row(order, 1) for order in range(6)))
    delivery_state.lend(0, 1)
    delivery_state.lend(2, 3)
    assert [(4, 0, 1)] == places(give(delivery_state, 1))
    assert [] == delivery_state.open_in_reservation()
    delivery_state.take_back({b"row0": RowFacts(settled=1)})
    assert [(1, 0, 1), (5, 0, 1)] == sorted(places(give(delivery_state)))
    assert [0] == [each.order for each in delivery_state.advance()]
    delivery_state.take_back({b"row2": RowFacts(settled=1)})
    assert not delivery_state.is_lending
    assert [(3, 0, 1)] == places(give(delivery_state))


def test_what_is_on_its_way_to_another_place_stays_ours_in_a_lent_range() -> None:
    delivery_state = state_with(row(0, 2), terms=Live(replace(TERMS.now, max_receives=1)))
    first, second = give(delivery_state)
    assert delivery_state.nack(first.row.key, first.index, 1, delay_us=0, reason="no", now_us=0)
    ack(delivery_state, second)
    delivery_state.lend(0, 2)
    assert [(0, 0, 1)] == [(it.order, index, attempt) for it, index, attempt in delivery_state.open_in_reservation()]


def test_attack_D10_a_purge_voids_what_is_open_and_frees_the_groups_behind() -> None:
    delivery_state = state_with(row(1, 3, groups=[b"a", b"a", b"a"]))
    (first,) = give(delivery_state)
    delivery_state.strike(first.row, 0b011)
    assert not delivery_state.ack(b"row1", 0, 1)
    give(delivery_state)
    assert [(1, 2, 1)] == places(give(delivery_state)) or delivery_state.holds(b"row1", 2, 1)


def test_a_purge_ends_copies_that_are_under_way_and_which_process_writes_them_disturbs_nothing() -> None:
    delivery_state = state_with(row(1, 2), terms=Live(replace(TERMS.now, max_receives=1)))
    first, second = give(delivery_state)
    for each in (first, second):
        delivery_state.nack(each.row.key, each.index, 1, delay_us=0, reason="no", now_us=0)
    under_way, waits = delivery_state.take_moves()
    delivery_state.move_failed(waits.row, waits.index)
    delivery_state.strike(first.row, 0b11)
    assert [] == delivery_state.take_moves()
    assert [1] == [each.order for each in delivery_state.advance()]
    delivery_state.place_fixed(under_way.row, under_way.index, b"there")
    delivery_state.move_failed(under_way.row, under_way.index)
    delivery_state.move_done(under_way.row, under_way.index)
    assert not delivery_state.has_moves()
    assert 0 == delivery_state.unsettled


class AnyLife(RuleBasedStateMachine):
    """Any order of reads, hand-outs, settles, failures and writes, against what a message may be."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery_state = DeliveryState(TERMS, epoch=1)
        self.now_us = 0
        self.read = 0
        self.messages: set[tuple[int, int]] = set()
        self.groups: dict[tuple[int, int], bytes] = {}
        self.open: dict[tuple[int, int], HandOut] = {}
        self.settled: set[tuple[int, int]] = set()
        self.passed = -1
        self.written: list[Any] = []

    @rule(count=st.integers(1, 4), grouped=st.booleans(), data=st.data())
    def read_a_row(self, count: int, grouped: bool, data: st.DataObject) -> None:
        groups = [data.draw(st.sampled_from([b"", b"a", b"b"])) for _ in range(count)] if grouped else None
        self.delivery_state.add(row(self.read, count, groups=groups), now_us=self.now_us)
        for index in range(count):
            self.messages.add((self.read, index))
            self.groups[self.read, index] = groups[index] if groups else b""
        self.read += 1

    @rule(limit=st.integers(1, 5))
    def hand_out(self, limit: int) -> None:
        self.end_visibilities()
        for each in give(self.delivery_state, limit, now_us=self.now_us):
            place = (each.row.order, each.index)
            assert place not in self.open and place not in self.settled
            group = self.groups[place]
            if group:
                before = {other for other in self.messages if self.groups[other] == group and other < place}
                assert before <= self.settled
            self.open[place] = each

    @rule(seconds=st.integers(0, 20))
    def let_time_pass(self, seconds: int) -> None:
        self.now_us += seconds * SECOND
        self.end_visibilities()

    def end_visibilities(self) -> None:
        self.delivery_state.tick(self.now_us)
        self.open = {place: each for place, each in self.open.items() if each.until_us > self.now_us}

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "long nack"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        place = data.draw(st.sampled_from(sorted(self.open)))
        each = self.open.pop(place)
        if how == "ack":
            assert self.delivery_state.ack(each.row.key, each.index, each.attempt)
            self.settled.add(place)
        else:
            delay_us = 3600 * SECOND if how == "long nack" else SECOND
            key = each.row.key
            assert self.delivery_state.nack(
                key, each.index, each.attempt, delay_us=delay_us, reason="", now_us=self.now_us
            )
        assert not self.delivery_state.ack(each.row.key, each.index, each.attempt)

    @rule(works=st.booleans())
    def move_copies(self, works: bool) -> None:
        for move in self.delivery_state.take_moves():
            if move.place is None:
                self.delivery_state.place_fixed(move.row, move.index, b"there")
            if works:
                self.delivery_state.move_done(move.row, move.index)
                self.settled.add((move.row.order, move.index))
            else:
                self.delivery_state.move_failed(move.row, move.index)

    @rule(works=st.booleans())
    def write(self, works: bool) -> None:
        changes = self.delivery_state.take_pending_facts()
        self.delivery_state.durable(changes) if works else self.delivery_state.give_back(changes)

    @rule()
    def advance(self) -> None:
        for each in self.delivery_state.advance():
            assert each.order == self.passed + 1
            self.passed = each.order
            assert {place for place in self.messages if place[0] == each.order} <= self.settled

    @invariant()
    def counts_balance(self) -> None:
        assert len(self.open) == self.delivery_state.in_flight
        kept = sum(each.size_bytes for each in self.delivery_state.rows())
        assert kept == self.delivery_state.bytes_held
        assert len(self.messages - self.settled) <= self.delivery_state.unsettled


AnyLife.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestAnyLife = AnyLife.TestCase


def test_what_is_given_back_without_charge_is_the_same_attempt_again() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    assert delivery_state.nack(one.row.key, 0, 1, delay_us=0, reason="", now_us=0, charged=False)
    (again,) = give(delivery_state)
    assert (1, 1) == (one.attempt, again.attempt)
    assert delivery_state.nack(again.row.key, 0, 1, delay_us=0, reason="boom", now_us=0)
    (second,) = give(delivery_state)
    assert delivery_state.nack(second.row.key, 0, 2, delay_us=SECOND, reason="", now_us=0, charged=False)
    assert {0: Tried(7, 0, 1, SECOND)} == next(delivery_state.take_pending_facts().by_row())[1].tried
    assert [(1, 0, 2)] == places(give(delivery_state, now_us=SECOND))


def test_without_charge_is_also_a_copy_that_comes_much_later() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    delivery_state.nack(one.row.key, 0, 1, delay_us=3600 * SECOND, reason="", now_us=0, charged=False)
    assert [(Why.RETRY, 0)] == [(move.why, move.attempt) for move in delivery_state.take_moves()]


def test_what_is_rejected_is_a_dead_letter_at_once() -> None:
    delivery_state = state_with(row(1, 1))
    (one,) = give(delivery_state)
    assert delivery_state.reject(one.row.key, 0, 1, delay_us=SECOND, reason="no such person", now_us=0)
    assert not delivery_state.reject(one.row.key, 0, 1, delay_us=SECOND, reason="", now_us=0)
    assert [(Why.DEAD, 1, "no such person")] == [
        (it.why, it.attempt, it.reason) for it in delivery_state.take_moves()
    ]


def test_what_is_rejected_comes_again_where_there_is_no_queue_for_it() -> None:
    delivery_state = DeliveryState(Live(replace(TERMS.now, dead_letters=False)), epoch=7)
    delivery_state.add(row(1, 1), now_us=0)
    (one,) = give(delivery_state)
    assert delivery_state.reject(one.row.key, 0, 1, delay_us=SECOND, reason="no", now_us=0)
    assert [] == delivery_state.take_moves()
    assert [(1, 0, 2)] == places(give(delivery_state, now_us=SECOND))


def test_what_was_handed_out_together_is_reported_together() -> None:
    delivery_state = state_with(row(1, 300))
    give(delivery_state, 200, visibility_us=60 * SECOND)
    ((_, facts),) = delivery_state.take_pending_facts().by_row()
    recorded = Tried(7, 0, 1, 60 * SECOND, is_open=True, owner=OWNER)
    piece = encode({b"key": facts}, epoch=7, piece=0, owner=OWNER)
    assert len(piece) < 80
    assert {b"key": RowFacts(tried=dict.fromkeys(range(200), recorded))} == decode(piece)


class Content:
    """The content that an engine keeps of a row: here 30 bytes per message."""

    def release(self, settled: int) -> int:
        """The size of the settled content."""
        return 30 * settled.bit_count()


def test_a_row_that_was_passed_is_not_kept_for_the_visibility_it_had() -> None:
    content = Content()
    gone = weakref.ref(content)
    delivery_state = state_with(row(1, 3, content=content))
    del content
    ack(delivery_state, *give(delivery_state, 3))
    delivery_state.advance()
    assert gone() is None
    assert [] == give(delivery_state, 3, now_us=9 * SECOND)


def test_of_messages_handed_out_together_each_has_its_own_end() -> None:
    delivery_state = state_with(row(1, 4))
    given = give(delivery_state, 4)
    assert delivery_state.extend(b"row1", 2, 1, until_us=5 * SECOND, now_us=0)
    ack(delivery_state, given[1])
    assert [(1, 0, 2), (1, 3, 2)] == places(give(delivery_state, 9, now_us=2 * SECOND))
    assert delivery_state.holds(b"row1", 2, 1)
    assert [(1, 0, 3), (1, 2, 2), (1, 3, 3)] == sorted(places(give(delivery_state, 9, now_us=6 * SECOND)))
