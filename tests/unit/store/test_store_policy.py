"""A store without an answer sends a repeatable statement again, and finds out about the outcome of an LWT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from headgate.store.model.consistency import Consistency
from headgate.store.model.rows import row_type
from headgate.store.model.statements import BatchIf, Insert, InsertIfAbsent, Scan, Select, UpdateIf, is_
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type
from headgate.store.store import AttemptAnswer, NotEnoughReplicas, Outcome, OutcomeUnknown, Overloaded, Store, Verdict

LWT = WrittenBy.LWT
LOG = Table("log", "", (Column("p", Type.INT),), (), (Column("v", Type.TEXT),))
LANES = Table(
    "lanes",
    "",
    (Column("p", Type.INT),),
    (Column("c", Type.INT),),
    (Column("n", Type.INT, LWT), Column("attempt", Type.UUID, LWT)),
    rows=LWT,
    attempt="attempt",
)
WRITE = Insert(LOG, {"p": 1, "v": "x"}, timestamp_us=1)
READ = Select(LOG, {"p": 1})
ME = uuid4()
CHANGE = UpdateIf(LANES, {"p": 1, "c": 2}, {"n": 1}, is_("n", None), attempt=ME)

Step = BaseException | AttemptAnswer | Callable[[Any], AttemptAnswer]


class ScriptedStore(Store):
    """Gives prepared answers, on a clock that only moves by pauses and by attempts that time out."""

    data_center = "dc1"

    def __init__(self, *script: Step, then: Step | None = None) -> None:
        self.script = list(script)
        self.then = then
        self.sent: list[Any] = []
        self.given_s: list[float] = []
        self.now_s = 0.0

    async def attempt(self, statement: Any, within_s: float) -> AttemptAnswer:
        self.sent.append(statement)
        self.given_s.append(within_s)
        step = self.script.pop(0) if self.script else self.then
        if isinstance(step, BaseException):
            if isinstance(step, OutcomeUnknown):
                self.now_s += within_s
            raise step
        assert step is not None
        return step if isinstance(step, AttemptAnswer) else step(statement)

    async def scan(self, scan: Scan) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    def monotonic_s(self) -> float:
        return self.now_s

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds

    async def close(self) -> None:
        pass


def _row(attempt: UUID | None) -> AttemptAnswer:
    return AttemptAnswer([row_type(("p", "c", "n", "attempt"))(1, 2, 1, attempt)])


REFUSED = AttemptAnswer([row_type(("n",))(5)], applied=False)


def test_a_write_is_sent_again_until_it_is_answered() -> None:
    store = ScriptedStore(OutcomeUnknown(), NotEnoughReplicas(), Overloaded(), AttemptAnswer())
    asyncio.run(store.write(WRITE))
    assert [WRITE] * 4 == store.sent


def test_no_attempt_takes_all_the_time_there_is_and_each_takes_more_than_the_one_before() -> None:
    store = ScriptedStore(then=OutcomeUnknown())
    with pytest.raises(OutcomeUnknown):
        asyncio.run(store.write(WRITE, within_s=20))
    assert [2.5, 5.0, 10.0] == store.given_s[:3]
    assert store.now_s <= 20


def test_a_write_that_was_in_doubt_once_stays_in_doubt() -> None:
    store = ScriptedStore(OutcomeUnknown(), then=NotEnoughReplicas())
    with pytest.raises(OutcomeUnknown):
        asyncio.run(store.write(WRITE))


def test_a_write_that_was_never_in_doubt_is_known_not_to_be_there() -> None:
    store = ScriptedStore(then=NotEnoughReplicas())
    with pytest.raises(NotEnoughReplicas):
        asyncio.run(store.write(WRITE))


def test_a_read_reports_the_last_reason() -> None:
    store = ScriptedStore(OutcomeUnknown(), then=NotEnoughReplicas())
    with pytest.raises(NotEnoughReplicas):
        asyncio.run(store.read(READ))


def test_an_lwt_that_is_answered_is_sent_once() -> None:
    assert Outcome(Verdict.APPLIED) == asyncio.run(ScriptedStore(AttemptAnswer()).decide(CHANGE))
    assert Outcome(Verdict.REFUSED, tuple(REFUSED.rows)) == asyncio.run(ScriptedStore(REFUSED).decide(CHANGE))


def test_an_lwt_without_an_answer_is_found_by_a_serial_read_and_never_sent_again() -> None:
    store = ScriptedStore(OutcomeUnknown(), _row(ME))
    outcome = asyncio.run(store.decide(CHANGE))
    assert (Verdict.APPLIED, True) == (outcome.verdict, outcome.resolved)
    asked = Select(LANES, {"p": 1, "c": 2}, limit=1, consistency=Consistency.SERIAL)
    assert [CHANGE, asked] == store.sent


@pytest.mark.parametrize("result", [_row(uuid4()), _row(None), AttemptAnswer()], ids=["another", "none", "no row"])
def test_an_attempt_that_is_not_found_is_not_mine(result: AttemptAnswer) -> None:
    outcome = asyncio.run(ScriptedStore(OutcomeUnknown(), result).decide(CHANGE))
    assert (Verdict.OVERWRITTEN, False, True) == (outcome.verdict, outcome.applied, outcome.resolved)


def test_the_serial_read_is_tried_again() -> None:
    outcome = asyncio.run(
        ScriptedStore(OutcomeUnknown(), OutcomeUnknown(), NotEnoughReplicas(), _row(ME)).decide(CHANGE)
    )
    assert Verdict.APPLIED is outcome.verdict


def test_an_lwt_stays_unknown_when_its_attempt_cannot_be_read() -> None:
    store = ScriptedStore(OutcomeUnknown(), then=NotEnoughReplicas())
    with pytest.raises(OutcomeUnknown):
        asyncio.run(store.decide(CHANGE))
    assert 1 == store.sent.count(CHANGE)


def test_an_lwt_that_nothing_has_seen_is_sent_again_under_its_own_attempt() -> None:
    store = ScriptedStore(NotEnoughReplicas(), Overloaded(), AttemptAnswer())
    assert Outcome(Verdict.APPLIED) == asyncio.run(store.decide(CHANGE))
    assert [CHANGE] * 3 == store.sent


def test_an_lwt_that_nothing_ever_saw_is_known_not_to_be_applied() -> None:
    with pytest.raises(NotEnoughReplicas):
        asyncio.run(ScriptedStore(then=NotEnoughReplicas()).decide(CHANGE))


def test_a_batch_is_searched_for_where_its_attempt_lives_longest() -> None:
    brief = UpdateIf(LANES, {"p": 1, "c": 1}, {"n": 1}, is_("n", None), attempt=ME, ttl_s=5)
    made = InsertIfAbsent(LANES, {"c": 3, "p": 1, "n": 1}, attempt=ME)
    store = ScriptedStore(OutcomeUnknown(), _row(ME))
    asyncio.run(store.decide(BatchIf([brief, made])))
    assert Select(LANES, {"p": 1, "c": 3}, limit=1, consistency=Consistency.SERIAL) == store.sent[1]
