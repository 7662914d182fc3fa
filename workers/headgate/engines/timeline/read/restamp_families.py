"""Restamped rows: rows that were stamped again because their write was not acknowledged in time. All of a family name
the place that was stamped first, and one of them is delivered. The rule is "Restamped rows" in
docs/internals/protocols/timeline.md.

Invariant: a family is known as long as one of its rows is above the position, or in the record of passed rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from headgate.engines.timeline.read.passed_rows import PassedRows
from headgate.store.model.positions import time_us_of


class Families:
    """The rows above the position that one lease term of a lane has read, or that the settle log names; an inspection
    outside any lease term has epoch 0."""

    def __init__(
        self,
        part_us: int,
        read_passed: Callable[[int], Awaitable[PassedRows]],
        *,
        epoch: int = 0,
    ) -> None:
        self._part_us = part_us
        self._read_passed = read_passed
        self._epoch = epoch
        self._chosen: dict[int, int] = {}
        """The row of each family; rows are given by the numbers of their due ids, a family by that of its first."""
        self._chosen_by: dict[int, int] = {}
        """The lease term whose settle log names the row, where one does."""
        self._passed: dict[int, PassedRows] = {}
        """What was passed in the part of the latest restamped row, as it was read since rows were passed."""

    def choose_first(self, first: UUID) -> bool:
        """Whether the row that a family is named after is the delivered one: nothing has to be read for it."""
        number = first.int
        return self._chosen.setdefault(number, number) == number

    async def choose(self, first: UUID, due: UUID) -> bool:
        """Whether the row at `due` is the delivered one of its family; the first caller's is."""
        if due != first and first.int not in self._chosen and await self._is_passed(first):
            return False
        return self._chosen.setdefault(first.int, due.int) == due.int

    async def _is_passed(self, first: UUID) -> bool:
        part, known = time_us_of(first) // self._part_us, self._passed
        if part not in known:
            passed = await self._read_passed(part)
            known.clear()
            known[part] = passed
        return bool(known[part].among({first}))

    def begun(self, first: UUID, due: UUID, *, epoch: int) -> None:
        """This row of the family is being delivered, or was in that lease term."""
        chosen_in = self._chosen_by.get(first.int, self._epoch if first.int in self._chosen else 0)
        if epoch >= chosen_in:
            self._chosen[first.int] = due.int
            self._chosen_by[first.int] = epoch

    def forget(self, rows: Iterable[tuple[UUID, UUID]]) -> None:
        """These rows, given by the first of their family and their own due id, are on record as passed."""
        for first, due in rows:
            if self._chosen.get(first.int) == due.int:
                del self._chosen[first.int]
                self._chosen_by.pop(first.int, None)
        self._passed = {}  # a read under way fills the one before: it may have missed them
