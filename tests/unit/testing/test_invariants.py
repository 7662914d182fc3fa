"""Each sentence of the invariants is broken by a history made for it, and by none that is as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from headgate.engines.contract import Ack, Cancelled, Delivery, NackDelivery, NewMessage, Settled, Stats
from tests.kit.client_history.judge import Asked
from tests.kit.invariants import SECOND_US, Ledger

START_US = 1_000 * SECOND_US
WAITS = "nothing waits while a consumer asks"
VISIBILITY_US = 5 * SECOND_US


def calm_from(calm_us: int) -> list[Asked]:
    """Consumers asked from then on, and nothing was broken."""
    return [Asked(calm_us, 2**62)]


class Day:
    """A ledger with a clock that tests move, and short words for what happens."""

    def __init__(self) -> None:
        self.at_us = START_US
        self.ledger = Ledger(lambda: self.at_us)

    def later(self, seconds: float) -> None:
        """Time advances."""
        self.at_us += int(seconds * SECOND_US)

    def put(self, message_id: str, **options: object) -> str:
        """An acknowledged put of a message whose payload is its id."""
        message = NewMessage(message_id.encode(), **options)  # type: ignore[arg-type]
        self.ledger.acknowledged(self.ledger.trying([message], "producer"), [message_id])
        self.later(1)
        return message_id

    def deliver(self, message_id: str, attempt: int = 1, **changes: object) -> str:
        """A delivery now; its receipt."""
        put = self.ledger.tale(message_id).put
        values: dict[str, object] = {
            "payload": message_id.encode(),
            "group": put.group if put is not None else None,
            "due_us": START_US,
            "put_us": put.began_us if put is not None else START_US,
            "receipt": f"{message_id}-{attempt}-{self.at_us}",
        }
        values |= changes
        until_us = self.at_us + VISIBILITY_US
        result = Delivery(
            message_id,
            attributes={},
            attempt=attempt,
            epoch=1,
            visible_until_us=until_us,
            **values,  # type: ignore[arg-type]
        )
        self.ledger.delivered("worker", [result], clock_us=self.at_us, visibility_us=VISIBILITY_US)
        self.later(1)
        return result.receipt

    def settle(self, settle: Ack | NackDelivery, how: Settled | None = Settled.DONE) -> None:
        """A settle and its answer, if there was one."""
        words = self.ledger.settling("worker", [settle])
        self.later(1)
        if how is not None:
            self.ledger.settled("worker", words, [how])
        self.later(1)

    def rules(self, **options: object) -> set[str]:
        """The sentences that do not hold."""
        return {each.rule for each in self.ledger.violations(**options)}  # type: ignore[arg-type]


def all_well(day: Day) -> None:
    """Everything that may happen, as it should."""
    day.put("a", group="g")
    day.put("b", group="g")
    day.put("c", once="key")
    day.put("c", once="key")
    day.put("d")
    day.ledger.cancelling("d")
    day.ledger.cancel_answered("d", Cancelled.CANCELLED)
    first = day.deliver("a")
    day.settle(NackDelivery(first, delay_us=3 * SECOND_US))
    day.later(3)
    day.settle(Ack(day.deliver("a", 2)))
    day.settle(Ack(day.deliver("c")), None)
    day.settle(Ack(day.deliver("b")), Settled.UNKNOWN)
    day.settle(Ack(day.deliver("b", 2)))


def lost(day: Day) -> None:
    """Acknowledged, and never seen again."""
    day.put("a")


def refused_and_gone(day: Day) -> None:
    """Its only acknowledgement was stale."""
    day.put("a")
    day.settle(Ack(day.deliver("a")), Settled.STALE)


def honoured_twice(day: Day) -> None:
    """Two receipts of it were done."""
    day.put("a")
    one, two = day.deliver("a"), day.deliver("a", 2)
    day.settle(Ack(one))
    day.settle(Ack(two))


def back_from_the_settled(day: Day) -> None:
    """It comes after its acknowledgement was done."""
    day.put("a")
    day.settle(Ack(day.deliver("a")))
    day.deliver("a", 2)


def done_twice_by_a_job_and_a_consumer(day: Day) -> None:
    """A job that borrowed it was answered done, and so was a consumer."""
    day.put("a")
    receipt = day.deliver("a")
    _settle_reserved(day, "a")
    day.settle(Ack(receipt))


def back_from_a_job(day: Day) -> None:
    """It comes after a job had settled it."""
    day.put("a")
    _settle_reserved(day, "a")
    day.deliver("a")


def _settle_reserved(day: Day, message_id: str) -> None:
    async def done() -> Settled:
        return Settled.DONE

    asyncio.run(day.ledger.settle_reserved(done, [message_id], "job"))  # type: ignore[arg-type]
    day.later(1)


def dead_and_done(day: Day) -> None:
    """Acknowledged, and a dead letter."""
    day.put("a")
    day.settle(Ack(day.deliver("a")))
    day.ledger.dead(["a"])


def dead_twice(day: Day) -> None:
    """Two dead letters."""
    day.put("a")
    day.ledger.dead(["a", "a"])


def early(day: Day) -> None:
    """It was due later."""
    day.put("a")
    day.settle(Ack(day.deliver("a", due_us=day.at_us + 1)))


def earlier_than_asked(day: Day) -> None:
    """The due time of the put counts, not the one that the delivery claims."""
    day.put("a", due_us=day.at_us + 60 * SECOND_US)
    day.settle(Ack(day.deliver("a", due_us=day.at_us)))


def early_after_a_nack(day: Day) -> None:
    """It comes before the delay is over."""
    day.put("a")
    day.settle(NackDelivery(day.deliver("a"), delay_us=10 * SECOND_US))
    day.settle(Ack(day.deliver("a", 2)))


def cancelled_and_delivered(day: Day) -> None:
    """It was answered cancelled."""
    day.put("a")
    day.ledger.cancelling("a")
    day.ledger.cancel_answered("a", Cancelled.CANCELLED)
    day.settle(Ack(day.deliver("a")))


def purged_and_delivered(day: Day) -> None:
    """It was put before a purge that was over."""
    day.put("a")
    day.ledger.purged(day.ledger.purging(), day.at_us)
    day.later(1)
    day.settle(Ack(day.deliver("a")))


def from_nowhere(day: Day) -> None:
    """Nobody put it."""
    day.settle(Ack(day.deliver("a")))


def changed_on_the_way(day: Day) -> None:
    """Its content is another."""
    day.put("a")
    day.settle(Ack(day.deliver("a", payload=b"b")))


def not_again(day: Day) -> None:
    """Its visibility is long over."""
    day.put("a")
    day.deliver("a")
    day.later(5 + 31)


def again_much_too_late(day: Day) -> None:
    """It came again, and late."""
    day.put("a")
    day.deliver("a")
    day.later(5 + 31)
    day.deliver("a", 2)


def out_of_order(day: Day) -> None:
    """The second of a group before the first was finished."""
    day.put("a", group="g")
    day.put("b", group="g")
    first = day.deliver("a")
    day.settle(Ack(day.deliver("b")))
    day.settle(Ack(first))


def out_of_order_again(day: Day) -> None:
    """The first of a group comes again after the second was settled."""
    day.put("a", group="g")
    day.put("b", group="g")
    day.settle(Ack(day.deliver("a")), Settled.UNKNOWN)
    day.settle(Ack(day.deliver("b")))
    day.settle(Ack(day.deliver("a", 2)))


def two_of_a_key(day: Day) -> None:
    """One once key, two ids."""
    day.put("a", once="key")
    day.put("b", once="key")
    day.settle(Ack(day.deliver("a")))
    day.settle(Ack(day.deliver("b")))


def a_key_that_was_taken_before_a_purge(day: Day) -> None:
    """It was put before a purge, and its put got no answer: a put that is answered later may be given its id."""
    day.ledger.trying([NewMessage(b"a", once="key")], "producer")
    day.later(1)
    day.ledger.purged(day.ledger.purging(), day.at_us)
    day.later(1)
    day.put("a", once="key")


def _too_late_for(day: Day, old: str, new: str) -> None:
    day.put(old)
    day.put(new)
    day.ledger.cancelling(old)
    day.ledger.rescheduled_too_late(old, new)


def rescheduled_and_the_old_one_came(day: Day) -> None:
    """The one that was to take its place could be taken back."""
    _too_late_for(day, "a", "b")
    day.settle(Ack(day.deliver("a")))


def rescheduled_and_neither_came(day: Day) -> None:
    """The cancel of the old one took effect, and that of the new one, too."""
    _too_late_for(day, "a", "b")


def rescheduled_and_cancelled_by_another(day: Day) -> None:
    """Then neither need come."""
    _too_late_for(day, "a", "b")
    day.ledger.cancelling("b")


def a_key_that_was_another_before_a_purge(day: Day) -> None:
    """An earlier put of the key was another message, in a window that is over."""
    day.put("a", once="key")
    day.ledger.purged(day.ledger.purging(), day.at_us)
    day.ledger.forget_keys()
    day.later(1)
    day.put("b", once="key")


BROKEN: dict[Callable[[Day], None], set[str]] = {
    all_well: set(),
    lost: {"an acknowledged put is settled, dead or still there"},
    refused_and_gone: {"an acknowledged put is settled, dead or still there"},
    honoured_twice: {"at most one receipt is honoured"},
    back_from_the_settled: {"what is settled does not come again"},
    done_twice_by_a_job_and_a_consumer: {"at most one receipt is honoured"},
    back_from_a_job: {"what is settled does not come again"},
    dead_and_done: {"acknowledged or dead, not both"},
    dead_twice: {"at most one dead letter of a message"},
    early: {"nothing early"},
    earlier_than_asked: {"nothing early"},
    early_after_a_nack: {"nothing early"},
    cancelled_and_delivered: {"what was cancelled is never delivered"},
    purged_and_delivered: {"what was purged is not delivered"},
    from_nowhere: {"what comes was put"},
    changed_on_the_way: {"it comes as it was put"},
    out_of_order: {"a group comes in order"},
    out_of_order_again: {"a group comes in order"},
    rescheduled_and_the_old_one_came: set(),
    rescheduled_and_neither_came: {"of a message and what takes its place one comes"},
    rescheduled_and_cancelled_by_another: set(),
    two_of_a_key: {"a once key makes one message"},
    a_key_that_was_taken_before_a_purge: set(),
    a_key_that_was_another_before_a_purge: {"an acknowledged put is settled, dead or still there"},
}


@pytest.mark.parametrize("history", BROKEN, ids=lambda each: each.__name__)
def test_a_history_breaks_the_sentences_it_breaks_and_no_other(history: Callable[[Day], None]) -> None:
    day = Day()
    history(day)
    assert BROKEN[history] == day.rules()


@pytest.mark.parametrize("history", [not_again, again_much_too_late])
def test_what_comes_again_too_late_is_reported_where_all_was_calm(history: Callable[[Day], None]) -> None:
    day = Day()
    history(day)
    assert {WAITS} == day.rules(there=["a"], asked=calm_from(START_US))
    assert set() == day.rules(there=["a"], asked=calm_from(day.at_us - 20 * SECOND_US))
    assert set() == day.rules(there=["a"])


@pytest.mark.parametrize(("purged_to_us", "is_owed"), [(START_US, True), (START_US + 1, False), (None, False)])
def test_what_came_of_a_put_without_an_answer_need_not_come_again_once_purged(
    purged_to_us: int | None, is_owed: bool
) -> None:
    day = Day()
    day.ledger.not_acknowledged(day.ledger.trying([NewMessage(b"a")], "producer"), TimeoutError())
    day.settle(NackDelivery(day.deliver("a", put_us=START_US), delay_us=15 * SECOND_US))
    purge = day.ledger.purging()
    if purged_to_us is not None:
        day.ledger.purged(purge, purged_to_us)
    day.later(600)
    assert ({WAITS} if is_owed else set()) == day.rules(asked=calm_from(START_US))


@pytest.mark.parametrize(("retention_s", "is_owed"), [(500, False), (700, True)])
def test_what_came_of_a_put_without_an_answer_need_not_come_again_once_expired(
    retention_s: int, is_owed: bool
) -> None:
    day = Day()
    day.ledger.promises = replace(day.ledger.promises, retention_us=retention_s * SECOND_US)
    day.ledger.not_acknowledged(day.ledger.trying([NewMessage(b"a")], "producer"), TimeoutError())
    day.deliver("a")
    day.later(600)
    assert ({WAITS} if is_owed else set()) == day.rules(asked=calm_from(START_US))


def test_what_repair_has_to_bring_may_come_late_but_is_not_to_be_lost() -> None:
    day = Day()
    not_again(day)
    assert set() == day.rules(there=["a"], asked=calm_from(START_US), late=["a"])
    assert {"an acknowledged put is settled, dead or still there"} == day.rules(asked=calm_from(START_US), late=["a"])


def test_what_is_still_there_is_not_lost() -> None:
    day = Day()
    lost(day)
    assert {"a"} == day.ledger.open_ids()
    assert set() == day.ledger.open_ids(there=["a"]) | day.rules(there=["a"])


def test_a_delivery_that_its_receiver_notes_late_counts_from_when_it_was_given() -> None:
    day = Day()
    day.put("a")
    given_us = day.at_us
    day.later(3)
    day.settle(Ack(day.deliver("a", 2)))
    late = Delivery("a", b"a", {}, None, 1, START_US, START_US, 1, given_us + VISIBILITY_US, "late")
    day.ledger.delivered("paused", [late], clock_us=day.at_us, visibility_us=VISIBILITY_US)
    assert set() == day.rules()


def test_the_books_balance_within_what_nobody_can_know() -> None:
    day = Day()
    for message_id in "abcd":
        day.put(message_id)
    day.settle(Ack(day.deliver("a")))
    day.settle(Ack(day.deliver("b")), None)
    assert [] == [*day.ledger.check_balance(Stats(2, 0, 0, None)), *day.ledger.check_balance(Stats(1, 1, 1, None))]
    assert 1 == len(list(day.ledger.check_balance(Stats(1, 0, 0, None))))
    assert 1 == len(list(day.ledger.check_balance(Stats(3, 1, 0, None))))


def test_a_violation_reports_the_story_of_its_message() -> None:
    day = Day()
    refused_and_gone(day)
    with pytest.raises(AssertionError, match=r"(?s)lost|settled.*producer puts 'a'.*given to worker.*stale"):
        day.ledger.check()
