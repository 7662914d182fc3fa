"""Obeys a range that a bulk job has reserved on a lane: hands out nothing there, tells the job what is still open,
and takes the range back when the job gives it back or its deadline is over (docs/protocols/dispatcher.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.engines.books import Books
from penstock.engines.decide_lease import Tenure
from penstock.engines.lane import Lane
from penstock.engines.settled import encode_flights
from penstock.engines.source import LaneSource, Loan
from penstock.expiry import others_may_act


class Loans:
    """The loan of one lane, if there is one."""

    def __init__(self, books: Books, source: LaneSource, lane: Lane) -> None:
        self._books = books
        self._source = source
        self._lane = lane
        self._loan: Loan | None = None

    def begin(self, lent: bytes) -> list[tuple[bytes, int, int]]:
        """Hand out nothing more of the range: row, index and attempt of what is open in it."""
        self._loan = loan = self._source.loan_of(lent)
        return [(row.key, index, attempt) for row, index, attempt in self._books.lend(loan.first, loan.last)]

    async def answer(self, tenure: Tenure, lent: bytes | None, last: Any) -> Tenure:
        """The lane shows another loan than its owner knew: obey it. The tenure as it is then known."""
        if lent is None:
            await self._take_back(last)
        elif not await self._lane.answer_loan(tenure, lent, encode_flights(self.begin(lent))):
            return tenure
        return replace(tenure, lent=lent)

    async def end_overdue(self, tenure: Tenure, last: Any, now_us: int) -> Tenure:
        """Take a range back whose job let its deadline pass."""
        if tenure.lent is None or self._loan is None:
            return tenure
        if not others_may_act(self._loan.deadline_us, now_us=now_us, skew_us=2 * self._lane.terms.skew_us):
            return tenure
        if not await self._lane.end_loan(tenure.lent):
            return tenure
        await self._take_back(last)
        return replace(tenure, lent=None)

    async def _take_back(self, last: Any) -> None:
        """What the job settled is settled; the rest is handed out as before."""
        known = await self._source.known(last, self._loan.last) if self._loan is not None else {}
        self._loan = None
        self._books.take_back(known)
