"""Obeys a range reservation of a bulk job on a lane: delivers nothing from it, reports the open messages to the job,
and takes the range back when the job releases it or its deadline is over (docs/internals/protocols/dispatcher.md).

Immediate reactions are decided where the renewal learns of the reservation. Longer work (making accepted settles
durable, answering, reading the job's settles) runs next to the renewals, so that a slow store does not cost the
lease.

Invariant: before the answer is written, every accepted settle in the range is on record, and the answer contains all
open messages of the range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headgate.engines.books import Books
from headgate.engines.decide_lease import Tenure
from headgate.engines.lane import Lane
from headgate.engines.recorder import Recorder
from headgate.engines.settled import Facts, encode_flights
from headgate.engines.source import LaneSource, Loan
from headgate.expiry import others_may_act
from headgate.store.store import STORE_ERRORS

RETRY_PAUSE_S = 0.3


class Loans:
    """The reservation of one lane, if there is one, for one tenure."""

    def __init__(
        self,
        books: Books,
        source: LaneSource,
        lane: Lane,
        recorder: Recorder,
        *,
        tenure: Callable[[], Tenure],
        last: Callable[[], Any],
        learned: Callable[[Facts], None],
    ) -> None:
        self._books = books
        self._source = source
        self._lane = lane
        self._recorder = recorder
        self._tenure = tenure
        self._last = last
        self._learned = learned
        self._lent: bytes | None = None
        self._loan: Loan | None = None
        self._unanswered = False
        self._overdue = False
        self._returned: list[Loan] = []
        self._owed = asyncio.Event()

    def obey(self, lent: bytes | None, *, answered: bool = False) -> None:
        """From now on this is reserved, and nothing else: deliver nothing more of it."""
        if lent == self._lent:
            return
        if self._loan is not None:
            self._returned.append(self._loan)
        self._lent, self._loan = lent, None if lent is None else self._source.loan_of(lent)
        self._unanswered = lent is not None and not answered
        self._overdue = False
        if self._loan is not None:
            self._books.lend(self._loan.first, self._loan.last)
        self._owed.set()

    def watch(self, now_us: int) -> None:
        """Take back a range whose job let its deadline pass."""
        if self._loan is None:
            return
        skew_us = 2 * self._lane.terms.skew_us
        if others_may_act(self._loan.deadline_us, now_us=now_us, skew_us=skew_us):
            self._overdue = True
            self._owed.set()

    async def run(self) -> None:
        """Do the owed work, until cancelled."""
        while True:
            await self._owed.wait()
            self._owed.clear()
            try:
                await self._see_to_it()
            except STORE_ERRORS:
                self._owed.set()
            if self._owed.is_set():
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _see_to_it(self) -> None:
        if self._returned:
            await self._take_back(self._returned[0])
            del self._returned[0]
            self._owed.set()
        elif self._overdue and self._lent is not None:
            # applied or not, the next renewal returns the reservation of that time
            await self._lane.end_loan(self._lent)
        elif self._unanswered and self._lent is not None:
            await self._answer(self._lent)

    async def _answer(self, lent: bytes) -> None:
        """Report to the job the messages that it must not touch. Nothing is added to them after they were
        collected."""
        told = await self._recorder.flush()
        opened = [(row.key, index, attempt) for row, index, attempt in self._books.open_in_loan()]
        if lent != self._lent:
            return
        if told and await self._lane.answer_loan(self._tenure(), lent, encode_flights(opened)):
            self._unanswered = lent != self._lent and self._unanswered
        else:
            self._owed.set()

    async def _take_back(self, loan: Loan) -> None:
        """The job's settles are applied, also in rows that are not read yet; the rest is delivered as before."""
        known = await self._source.known(max(loan.first, self._last()), loan.last)
        for row in list(self._books.rows()):
            self._books.strike(row, self._source.settled_elsewhere(row, known))
        self._learned(self._books.take_back(known))
