"""The books of a lane: every message in one state, one open delivery of each, a position that passes nothing."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.engines.books import Books
from headgate.engines.rows import BookTerms, HandOut, LaneRow, Why
from headgate.engines.settled import Moved, RowFacts, Tried, decode, encode

SECOND = 1_000_000
TERMS = BookTerms(max_receives=3, hold_us_max=10 * SECOND, remembered_us=5 * SECOND)
FAR = 10**9


def row(order: int, count: int = 3, **more: Any) -> LaneRow:
    """A row of the lane; its key follows from its order."""
    return LaneRow(key=b"row%d" % order, order=order, count=count, size_bytes=100, **more)


def books_with(*rows: LaneRow, terms: BookTerms = TERMS) -> Books:
    """Books into which these rows were read at time 0."""
    books = Books(terms, epoch=7)
    for each in rows:
        books.add(each, now_us=0)
    return books


def give(
    books: Books, limit: int = 10, *, now_us: int = 0, visibility_us: int = SECOND, **more: Any
) -> list[HandOut]:
    """Hand out, with nothing beyond reach."""
    return books.hand_out(limit, now_us=now_us, visibility_us=visibility_us, reach=FAR, **more)


def ack(books: Books, *given: HandOut) -> None:
    """Settle deliveries, and make that durable."""
    for each in given:
        assert books.ack(each.row.key, each.index, each.attempt)
    books.durable(books.take_news())


def places(given: list[HandOut]) -> list[tuple[int, int, int]]:
    """Row, index and attempt of each delivery."""
    return [(each.row.order, each.index, each.attempt) for each in given]


def test_messages_are_given_in_the_order_of_the_lane() -> None:
    books = books_with(row(1, 2), row(2, 2))
    assert [(1, 0, 1), (1, 1, 1), (2, 0, 1)] == places(give(books, 3))


def test_nothing_is_given_beyond_reach() -> None:
    books = books_with(row(1, 1), row(2, 1))
    assert [(1, 0, 1)] == places(books.hand_out(9, now_us=0, visibility_us=SECOND, reach=1))


def test_what_is_not_settled_in_time_comes_again_with_the_next_attempt() -> None:
    books = books_with(row(1, 1))
    give(books)
    assert [] == give(books, now_us=SECOND - 1)
    assert [(1, 0, 2)] == places(give(books, now_us=SECOND))


def test_the_receipt_of_an_earlier_delivery_is_stale() -> None:
    books = books_with(row(1, 1))
    (first,) = give(books)
    (second,) = give(books, now_us=SECOND)
    assert not books.ack(b"row1", 0, first.attempt)
    assert books.ack(b"row1", 0, second.attempt)
    assert not books.ack(b"row1", 0, second.attempt)


def test_the_position_passes_only_what_is_durable() -> None:
    books = books_with(row(1, 1), row(2, 1))
    one, two = give(books)
    books.ack(two.row.key, 0, 1)
    books.durable(books.take_news())
    books.ack(one.row.key, 0, 1)
    assert [] == books.advance()
    books.durable(books.take_news())
    assert [1, 2] == [each.order for each in books.advance()]


def test_facts_whose_write_failed_are_told_again() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    books.ack(one.row.key, 0, 1)
    books.give_back(books.take_news())
    assert [(b"row1", 1)] == [(it.key, facts.settled) for it, facts in books.take_news().by_row()]


def test_what_earlier_tenures_settled_is_not_given_again() -> None:
    books = Books(TERMS, epoch=7)
    books.add(row(1, 3), RowFacts(settled=0b010), now_us=0)
    assert [(1, 0, 1), (1, 2, 1)] == places(give(books))


def test_attempts_and_hidden_messages_survive_a_change_of_owner() -> None:
    books = Books(TERMS, epoch=7)
    books.add(row(1, 2), RowFacts(tried={1: Tried(6, 0, 2, 5 * SECOND)}), now_us=0)
    assert [(1, 0, 1)] == places(give(books))
    assert [(1, 1, 3)] == places(give(books, now_us=5 * SECOND)[1:])


def test_redeliveries_and_long_visibilities_are_told_to_the_next_owner() -> None:
    books = books_with(row(1, 1), row(2, 1))
    give(books, 1)
    assert not books.has_news()
    give(books, 1, visibility_us=60 * SECOND)
    assert {0: Tried(7, 0, 1, 60 * SECOND)} == next(books.take_news().by_row())[1].tried
    give(books, 1, now_us=SECOND)
    assert {0: Tried(7, 0, 2, 2 * SECOND)} == next(books.take_news().by_row())[1].tried


def test_a_short_nack_after_a_long_extension_is_the_word_that_counts() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    books.extend(one.row.key, 0, 1, until_us=3600 * SECOND, now_us=0)
    news = books.take_news()
    books.nack(one.row.key, 0, 1, delay_us=SECOND, reason="", now_us=0)
    books.give_back(news)
    assert SECOND == next(books.take_news().by_row())[1].tried[0].hidden_until_us
    assert [(1, 0, 2)] == places(give(books, now_us=SECOND))


def test_a_message_received_too_often_goes_to_the_dead_letters_and_is_then_settled() -> None:
    books = books_with(row(1, 1))
    for attempt in (1, 2, 3):
        (one,) = give(books)
        books.nack(one.row.key, 0, attempt, delay_us=0, reason="boom", now_us=0)
    (move,) = books.take_moves()
    assert (Why.DEAD, 3, "boom", None) == (move.why, move.attempt, move.reason, move.place)
    books.place_fixed(move.row, 0, b"there")
    assert {0: Moved(7, 0, 3, b"there")} == next(books.take_news().by_row())[1].moved
    assert [] == books.advance()
    books.move_done(move.row, 0)
    books.durable(books.take_news())
    assert [1] == [each.order for each in books.advance()]


def test_a_long_backoff_never_holds_the_position() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    books.nack(one.row.key, 0, 1, delay_us=3600 * SECOND, reason="later", now_us=0)
    (move,) = books.take_moves()
    assert (Why.RETRY, 1, 3600 * SECOND) == (move.why, move.attempt, move.due_us)


def test_attack_D1_a_new_owner_finishes_the_copy_whose_place_is_fixed() -> None:
    books = Books(TERMS, epoch=7)
    books.add(row(1, 1), RowFacts(moved={0: Moved(6, 0, 1, b"there")}), now_us=0)
    assert [] == give(books)
    assert [b"there"] == [move.place for move in books.take_moves()]


def test_attack_C1_a_failed_message_holds_its_group_and_no_other() -> None:
    books = books_with(row(1, 3, groups=[b"a", b"a", b"b"]))
    first, other = give(books)
    assert [(1, 0, 1), (1, 2, 1)] == places([first, other])
    books.nack(first.row.key, 0, 1, delay_us=3600 * SECOND, reason="", now_us=0)
    assert [] == books.take_moves()
    assert [] == give(books, now_us=10 * SECOND, visibility_us=FAR)[1:]
    again = give(books, now_us=3600 * SECOND, visibility_us=FAR)
    assert (1, 0, 2) in places(again)
    books.ack(b"row1", 0, 2)
    assert (1, 1, 1) in places(give(books, now_us=3600 * SECOND))


def test_attack_D2_suspects_are_given_alone_and_only_when_asked_for() -> None:
    books = Books(TERMS, epoch=7)
    books.add(row(1, 2), suspect=True, now_us=0)
    books.add(row(2, 1), now_us=0)
    assert [(2, 0, 1)] == places(give(books))
    assert books.has_suspects()
    assert [(1, 0, 1)] == places(give(books, suspects=True))
    assert {0: Tried(7, 0, 1, SECOND)} == next(books.take_news().by_row())[1].tried


def test_suspects_that_were_never_charged_come_together_and_others_alone() -> None:
    books = Books(replace(TERMS, max_receives=5), epoch=7)
    books.add(row(1, 3), RowFacts(tried={1: Tried(6, 0, 2, 0)}), suspect=True, now_us=0)
    assert [(1, 0, 1), (1, 2, 1)] == places(give(books, suspects=True, together=True))
    assert [] == give(books, suspects=True, together=True)
    assert (2, 0) == (books.suspects_in_flight, books.alone_in_flight)
    assert [(1, 1, 3)] == places(give(books, suspects=True))
    assert (3, 1) == (books.suspects_in_flight, books.alone_in_flight)
    ack(books, HandOut(row(1, 3), 1, 3, 0))
    assert (2, 0) == (books.suspects_in_flight, books.alone_in_flight)
    books.nack(b"row1", 0, 1, delay_us=0, reason="", now_us=0)
    assert [] == give(books, suspects=True, together=True)
    assert [(1, 0, 2)] == places(give(books, suspects=True))


def test_where_a_charge_can_not_be_borne_suspects_come_alone_from_the_first() -> None:
    books = Books(replace(TERMS, max_receives=2), epoch=7)
    books.add(row(1, 2), suspect=True, now_us=0)
    assert [] == give(books, suspects=True, together=True)
    assert [(1, 0, 1)] == places(give(books, suspects=True))


def test_attack_E4_too_much_settled_above_one_message_holds_the_lane() -> None:
    terms = BookTerms(max_receives=3, hold_us_max=0, remembered_us=SECOND, holes_max=2)
    books = books_with(*(row(order, 1) for order in range(6)), terms=terms)
    blocker, *rest = give(books, 4)
    ack(books, *rest)
    assert books.is_held() and [] == give(books)
    ack(books, blocker)
    books.advance()
    assert [(4, 0, 1), (5, 0, 1)] == places(give(books))


def test_a_lent_range_is_not_given_and_not_passed_and_comes_back() -> None:
    books = books_with(*(row(order, 1) for order in range(4)))
    (mine,) = give(books, 1)
    books.lend(0, 2)
    assert [(0, 0, 1)] == [(it.order, index, attempt) for it, index, attempt in books.open_in_loan()]
    ack(books, mine, *give(books))
    assert [] == books.advance()
    books.take_back({b"row1": RowFacts(settled=1)})
    assert [(2, 0, 1)] == places(give(books))
    assert [0, 1] == [each.order for each in books.advance()]


def test_a_range_that_was_given_back_is_not_given_before_it_is_known_what_was_settled_there() -> None:
    """Also where the job has borrowed the next one by then: its owner may hear of both at once."""
    books = books_with(*(row(order, 1) for order in range(6)))
    books.lend(0, 1)
    books.lend(2, 3)
    assert [(4, 0, 1)] == places(give(books, 1))
    assert [] == books.open_in_loan()
    books.take_back({b"row0": RowFacts(settled=1)})
    assert [(1, 0, 1), (5, 0, 1)] == sorted(places(give(books)))
    assert [0] == [each.order for each in books.advance()]
    books.take_back({b"row2": RowFacts(settled=1)})
    assert not books.is_lending
    assert [(3, 0, 1)] == places(give(books))


def test_what_is_on_its_way_to_another_place_stays_ours_in_a_lent_range() -> None:
    books = books_with(row(0, 2), terms=replace(TERMS, max_receives=1))
    first, second = give(books)
    assert books.nack(first.row.key, first.index, 1, delay_us=0, reason="no", now_us=0)
    ack(books, second)
    books.lend(0, 2)
    assert [(0, 0, 1)] == [(it.order, index, attempt) for it, index, attempt in books.open_in_loan()]


def test_attack_D10_a_purge_voids_what_is_open_and_frees_the_groups_behind() -> None:
    books = books_with(row(1, 3, groups=[b"a", b"a", b"a"]))
    (first,) = give(books)
    books.strike(first.row, 0b011)
    assert not books.ack(b"row1", 0, 1)
    give(books)
    assert [(1, 2, 1)] == places(give(books)) or books.holds(b"row1", 2, 1)


def test_a_purge_ends_copies_that_are_under_way_and_who_writes_them_disturbs_nothing() -> None:
    books = books_with(row(1, 2), terms=replace(TERMS, max_receives=1))
    first, second = give(books)
    for each in (first, second):
        books.nack(each.row.key, each.index, 1, delay_us=0, reason="no", now_us=0)
    under_way, waits = books.take_moves()
    books.move_failed(waits.row, waits.index)
    books.strike(first.row, 0b11)
    assert [] == books.take_moves()
    assert [1] == [each.order for each in books.advance()]
    books.place_fixed(under_way.row, under_way.index, b"there")
    books.move_failed(under_way.row, under_way.index)
    books.move_done(under_way.row, under_way.index)
    assert not books.has_moves()
    assert 0 == books.unsettled


class AnyLife(RuleBasedStateMachine):
    """Any order of reads, hand-outs, settles, failures and writes, against what a message may be."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books(TERMS, epoch=1)
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
        self.books.add(row(self.read, count, groups=groups), now_us=self.now_us)
        for index in range(count):
            self.messages.add((self.read, index))
            self.groups[self.read, index] = groups[index] if groups else b""
        self.read += 1

    @rule(limit=st.integers(1, 5))
    def hand_out(self, limit: int) -> None:
        self.end_visibilities()
        for each in give(self.books, limit, now_us=self.now_us):
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
        self.books.tick(self.now_us)
        self.open = {place: each for place, each in self.open.items() if each.until_us > self.now_us}

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "long nack"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        place = data.draw(st.sampled_from(sorted(self.open)))
        each = self.open.pop(place)
        if how == "ack":
            assert self.books.ack(each.row.key, each.index, each.attempt)
            self.settled.add(place)
        else:
            delay_us = 3600 * SECOND if how == "long nack" else SECOND
            key = each.row.key
            assert self.books.nack(key, each.index, each.attempt, delay_us=delay_us, reason="", now_us=self.now_us)
        assert not self.books.ack(each.row.key, each.index, each.attempt)

    @rule(works=st.booleans())
    def move_copies(self, works: bool) -> None:
        for move in self.books.take_moves():
            if move.place is None:
                self.books.place_fixed(move.row, move.index, b"there")
            if works:
                self.books.move_done(move.row, move.index)
                self.settled.add((move.row.order, move.index))
            else:
                self.books.move_failed(move.row, move.index)

    @rule(works=st.booleans())
    def write(self, works: bool) -> None:
        news = self.books.take_news()
        self.books.durable(news) if works else self.books.give_back(news)

    @rule()
    def advance(self) -> None:
        for each in self.books.advance():
            assert each.order == self.passed + 1
            self.passed = each.order
            assert {place for place in self.messages if place[0] == each.order} <= self.settled

    @invariant()
    def the_books_balance(self) -> None:
        assert len(self.open) == self.books.in_flight
        kept = sum(each.size_bytes for each in self.books.rows())
        assert kept == self.books.bytes_held
        assert len(self.messages - self.settled) <= self.books.unsettled


AnyLife.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestAnyLife = AnyLife.TestCase


def test_what_is_given_back_without_charge_is_the_same_attempt_again() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    assert books.nack(one.row.key, 0, 1, delay_us=0, reason="", now_us=0, charged=False)
    (again,) = give(books)
    assert (1, 1) == (one.attempt, again.attempt)
    assert books.nack(again.row.key, 0, 1, delay_us=0, reason="boom", now_us=0)
    (second,) = give(books)
    assert books.nack(second.row.key, 0, 2, delay_us=SECOND, reason="", now_us=0, charged=False)
    assert {0: Tried(7, 0, 1, SECOND)} == next(books.take_news().by_row())[1].tried
    assert [(1, 0, 2)] == places(give(books, now_us=SECOND))


def test_without_charge_is_also_a_copy_that_comes_much_later() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    books.nack(one.row.key, 0, 1, delay_us=3600 * SECOND, reason="", now_us=0, charged=False)
    assert [(Why.RETRY, 0)] == [(move.why, move.attempt) for move in books.take_moves()]


def test_what_is_rejected_is_a_dead_letter_at_once() -> None:
    books = books_with(row(1, 1))
    (one,) = give(books)
    assert books.reject(one.row.key, 0, 1, delay_us=SECOND, reason="no such person", now_us=0)
    assert not books.reject(one.row.key, 0, 1, delay_us=SECOND, reason="", now_us=0)
    assert [(Why.DEAD, 1, "no such person")] == [(it.why, it.attempt, it.reason) for it in books.take_moves()]


def test_what_is_rejected_comes_again_where_there_is_no_queue_for_it() -> None:
    books = Books(replace(TERMS, dead_letters=False), epoch=7)
    books.add(row(1, 1), now_us=0)
    (one,) = give(books)
    assert books.reject(one.row.key, 0, 1, delay_us=SECOND, reason="no", now_us=0)
    assert [] == books.take_moves()
    assert [(1, 0, 2)] == places(give(books, now_us=SECOND))


def test_what_was_handed_out_together_is_told_together() -> None:
    books = books_with(row(1, 300))
    give(books, 200, visibility_us=60 * SECOND)
    ((_, facts),) = books.take_news().by_row()
    assert dict.fromkeys(range(200), Tried(7, 0, 1, 60 * SECOND)) == facts.tried
    piece = encode({b"key": facts}, epoch=7, piece=0)
    assert len(piece) < 60
    assert {b"key": facts} == decode(piece)


class Content:
    """What an engine keeps of a row: here 30 bytes a message."""

    def release(self, settled: int) -> int:
        """What these held."""
        return 30 * settled.bit_count()


def test_a_row_that_was_passed_is_not_kept_for_the_visibility_it_had() -> None:
    content = Content()
    gone = weakref.ref(content)
    books = books_with(row(1, 3, content=content))
    del content
    ack(books, *give(books, 3))
    books.advance()
    assert gone() is None
    assert [] == give(books, 3, now_us=9 * SECOND)


def test_of_messages_handed_out_together_each_has_its_own_end() -> None:
    books = books_with(row(1, 4))
    given = give(books, 4)
    assert books.extend(b"row1", 2, 1, until_us=5 * SECOND, now_us=0)
    ack(books, given[1])
    assert [(1, 0, 2), (1, 3, 2)] == places(give(books, 9, now_us=2 * SECOND))
    assert books.holds(b"row1", 2, 1)
    assert [(1, 0, 3), (1, 2, 2), (1, 3, 3)] == sorted(places(give(books, 9, now_us=6 * SECOND)))
